package reproduce

import "golang.org/x/sys/unix"

// processorSeconds returns the processor time of this process so far, or 0 if it is not known.
func processorSeconds() float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return float64(t.Nano()) / 1e9
}
