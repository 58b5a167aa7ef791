package peers

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime returns the processor time of this process so far, or 0 if it is not known.
func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
