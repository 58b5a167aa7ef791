// Package bench describes the machine and times work on it. What is timed lives in the packages
// that compute, and pages with figures in internal/report.
package bench

import (
	"fmt"
	"runtime"
	"time"

	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
)

// Machine describes the machine of measurements.
type Machine struct {
	CPU       CPU
	ISA       string  // instruction set in use
	ISAReason string  // why that set is in use
	Threads   int     // goroutines that compute
	Peak      float64 // float32 operations a second of one core; 0: not measured
	Go        string
}

// DescribeMachine returns the description of this machine. The peak is measured for d;
// none is if d is 0.
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

// String is one line.
func (m Machine) String() string {
	s := fmt.Sprintf("%v; %s kernels; threads %d; %s", m.CPU, m.ISA, m.Threads, m.Go)
	if m.Peak > 0 {
		s += fmt.Sprintf("; peak %.0f GFLOP/s a core", m.Peak/1e9)
	}
	return s
}
