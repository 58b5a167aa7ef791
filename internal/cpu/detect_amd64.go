//go:build !purego

package cpu

import "golang.org/x/sys/cpu"

// detectSets returns the instruction sets, best first, and why others are missing.
func detectSets() (sets []string, lacking string) {
	x := &cpu.X86
	avx512 := x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasBMI2
	avx2 := x.HasAVX2 && x.HasFMA
	switch {
	case avx2 && avx512:
		return []string{AVX512, AVX2, Generic}, ""
	case avx2:
		return []string{AVX2, Generic}, "the processor has no AVX-512 F, BW, DQ and VL"
	}
	return []string{Generic}, "the processor has no AVX2 with FMA"
}
