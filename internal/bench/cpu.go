package bench

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// CPU describes the processor. Unknown fields are zero.
type CPU struct {
	Model      string // the maker's name of it
	Arch       string // GOARCH
	Cores      int    // logical processors that the process may use
	L1, L2, L3 int    // sizes of the data caches of a core, in bytes
}

// DescribeCPU returns the properties of the processor.
func DescribeCPU() CPU {
	cache := cpuid.CPU.Cache
	return CPU{Model: cpuid.CPU.BrandName, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), L1: max(cache.L1D, 0), L2: max(cache.L2, 0), L3: max(cache.L3, 0)}
}

// String returns one line, such as "AMD EPYC, 2 cores, caches 32 KiB, 1 MiB, 32 MiB".
func (i CPU) String() string {
	s := i.Model
	if s == "" {
		s = i.Arch
	}
	unit := "cores"
	if i.Cores == 1 {
		unit = "core"
	}
	s += fmt.Sprintf(", %d %s", i.Cores, unit)
	var caches []string
	for _, n := range []int{i.L1, i.L2, i.L3} {
		switch {
		case n >= 1<<20 && n%(1<<20) == 0:
			caches = append(caches, fmt.Sprintf("%d MiB", n>>20))
		case n > 0:
			caches = append(caches, fmt.Sprintf("%d KiB", n>>10))
		}
	}
	if caches != nil {
		s += ", caches " + strings.Join(caches, ", ")
	}
	return s
}
