// Package cpu selects the instruction set of the kernels.
package cpu

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// The instruction sets with kernels.
const (
	AVX512  = "avx512" // AVX-512 F, BW, DQ and VL
	AVX2    = "avx2"   // AVX2 with FMA
	NEON    = "neon"   // Advanced SIMD of arm64
	Generic = "generic"
)

// Variable is the environment variable that selects another instruction set than the best.
const Variable = "FARFIELD_ISA"

var available, lacking = detectSets()

var chosen, reason = chooseSet(os.Getenv(Variable))

// InstructionSets returns the instruction sets that machine and build support, best first and Generic
// last. The caller must not change it.
func InstructionSets() []string { return available }

// ActiveSet returns the instruction set in use.
func ActiveSet() string { return chosen }

// SelectionReason describes in one line the selected instruction set and why.
func SelectionReason() string { return reason }

// CheckSelection returns an error if Variable asks for a set that is not available. The best one
// is then in use.
func CheckSelection() error {
	if wish := os.Getenv(Variable); wish != "" && !slices.Contains(available, wish) {
		return fmt.Errorf("%s: %q is no instruction set of this machine; there are %s", Variable, wish, strings.Join(available, ", "))
	}
	return nil
}

// chooseSet selects wish if it is available, otherwise the best set. why describes the choice.
func chooseSet(wish string) (isa, why string) {
	isa = available[0]
	why = fmt.Sprintf("%s: the best of %s", isa, strings.Join(available, ", "))
	if lacking != "" {
		why += " (" + lacking + ")"
	}
	switch {
	case wish == "":
	case slices.Contains(available, wish):
		isa, why = wish, fmt.Sprintf("%s: asked for by %s", wish, Variable)
	default:
		why += fmt.Sprintf("; %s=%q is ignored: it is none of these", Variable, wish)
	}
	return isa, why
}

// Info describes the processor. Unknown fields are zero.
type Info struct {
	Model      string // name by the maker
	Arch       string // GOARCH
	Cores      int    // usable logical processors
	L1, L2, L3 int    // data cache sizes per core, in bytes
}

// Describe returns the properties of the processor.
func Describe() Info {
	info := Info{Arch: runtime.GOARCH, Cores: runtime.NumCPU()}
	info.readSystem()
	return info
}

// String returns one line, such as "AMD EPYC, 2 cores, caches 32 KiB, 1 MiB, 32 MiB".
func (i Info) String() string {
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
