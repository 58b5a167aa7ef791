// Package cpu selects the instruction set of the kernels, which are in internal/kernel. Package
// internal/bench describes the machine for people.
package cpu

import (
	"fmt"
	"os"
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

// Variable is the environment variable that selects an instruction set other than the best.
const Variable = "FARFIELD_ISA"

var available, lacking = detectSets()

var chosen, reason = chooseSet(os.Getenv(Variable))

// InstructionSets returns the instruction sets that machine and build support, best first and Generic
// last. The caller must not change it.
func InstructionSets() []string { return available }

// ActiveSet returns the instruction set in use.
func ActiveSet() string { return chosen }

// SelectionReason says in one line which instruction set is selected, and why.
func SelectionReason() string { return reason }

// CheckSelection returns an error if Variable asks for an instruction set that is not available;
// the best one is then in use.
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
