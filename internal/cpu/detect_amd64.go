//go:build !purego

package cpu

import "golang.org/x/sys/cpu"

// detectSets returns the instruction sets, best first, and why any is missing.
func detectSets() (sets []string, lacking string) {
	x := &cpu.X86
	wide := x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasBMI2
	narrow := x.HasAVX2 && x.HasFMA
	switch {
	case narrow && wide:
		return []string{AVX512, AVX2, Generic}, ""
	case narrow:
		return []string{AVX2, Generic}, "the processor has no AVX-512 F, BW, DQ and VL"
	}
	return []string{Generic}, "the processor has no AVX2 with FMA"
}
