// Package bench describes the machine and measures the time of work on it. The packages that
// compute have the work, and internal/report draws the results.
package bench

import (
	"fmt"
	"runtime"
	"time"

	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
)

// Machine describes the machine on which something is measured.
type Machine struct {
	CPU       CPU
	ISA       string  // instruction set in use
	ISAReason string  // why that instruction set is in use
	Threads   int     // goroutines that compute
	Peak      float64 // float32 operations that one core can do in a second; 0: not measured
	Go        string
}

// DescribeMachine returns the description of this machine. It measures the peak for the time d, or
// not at all if d is 0.
func DescribeMachine(d time.Duration) Machine {
	m := Machine{
		CPU:       DescribeCPU(),
		ISA:       kernel.Active[float32]().Name,
		ISAReason: cpu.SelectionReason(),
		Threads:   par.Threads(),
		Go:        fmt.Sprintf("%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH),
	}
	if d > 0 {
		m.Peak = kernel.FMAPeak(m.ISA, d)
	}
	return m
}

// String returns the description in one line.
func (m Machine) String() string {
	s := fmt.Sprintf("%v; %s kernels; threads %d; %s", m.CPU, m.ISA, m.Threads, m.Go)
	if m.Peak > 0 {
		s += fmt.Sprintf("; peak %.0f GFLOP/s a core", m.Peak/1e9)
	}
	return s
}
