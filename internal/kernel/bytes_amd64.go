//go:build !purego

package kernel

import (
	"slices"

	"golang.org/x/sys/cpu"

	isa "github.com/farfield-ml/farfield/internal/cpu"
)

// ByteTables returns the tables that the instruction set in use allows, best first and plain Go
// last.
func ByteTables() []*ByteTable {
	sets := isa.InstructionSets()
	sets = sets[slices.Index(sets, isa.ActiveSet()):]
	var list []*ByteTable
	if slices.Contains(sets, isa.AVX512) && cpu.X86.HasAVX512VNNI {
		list = append(list, &ByteTable{
			Name: "avx512-vnni",
			tiles: []byteTile{
				{rows: 12, cols: 32, run: byteTile12x32AVX512}, {rows: 8, cols: 32, run: byteTile8x32AVX512}, {rows: 4, cols: 32, run: byteTile4x32AVX512},
				{rows: 2, cols: 32, run: byteTile2x32AVX512}, {rows: 1, cols: 32, run: byteTile1x32AVX512},
			},
			largest: wrapLargest(largestAVX512), quantise: wrapQuantise(quantiseAVX512),
		})
	}
	if slices.Contains(sets, isa.AVX2) {
		list = append(list, &ByteTable{
			Name: "avx2",
			tiles: []byteTile{
				{rows: 6, cols: 16, words: byteTile6x16AVX2}, {rows: 4, cols: 16, words: byteTile4x16AVX2},
				{rows: 2, cols: 32, words: byteTile2x32AVX2}, {rows: 1, cols: 32, words: byteTile1x32AVX2},
			},
			largest: wrapLargest(largestAVX2), quantise: wrapQuantise(quantiseAVX2), pair: wrapPairBytes(pairBytesAVX2),
		})
	}
	return append(list, genericBytes)
}

// searchAVX512 returns the routines of a ByteSearch, or nil on a processor without VNNI.
func searchAVX512() *byteSearch[float32] {
	if !cpu.X86.HasAVX512VNNI {
		return nil
	}
	return &byteSearch[float32]{
		largest: wrapLargest(largestAVX512), quantise: wrapQuantise(quantiseAVX512),
		peaks: func(panels, groups int, a []int8, ars int, b []uint8, scales []float32, sums []int32, bias, peaks []float32, prs int) {
			columns := panels * byteColumns
			_, _, _, _ = a[(SearchRows-1)*ars+groups*byteGroup-1], b[columns*groups*byteGroup-1], sums[SearchRows-1], peaks[(SearchRows-1)*prs+columns/2-1]
			bytePeaks12AVX512(panels, groups, &a[0], ars, &b[0], pointerTo(scales, SearchRows), &sums[0], pointerTo(bias, columns), &peaks[0], prs)
		},
		places: func(dst []int32, x []float32, least float32) int {
			n := len(x)
			_, _ = dst[n+Lanes-1], x[:n&^(Lanes-1)][n-1] // whole vectors
			return placesAVX512(n, &dst[0], &x[0], least)
		},
	}
}

func wrapLargest(f func(n int, x *float32) uint32) func(x []float32) uint32 {
	return func(x []float32) uint32 { return f(len(x), pointerTo(x, len(x))) }
}

func wrapQuantise(f func(n int, dst *int8, x *float32, factor float32) int32) func(dst []int8, x []float32, factor float32) int32 {
	return func(dst []int8, x []float32, factor float32) int32 {
		if len(x) == 0 {
			return 0
		}
		_ = dst[Pad(len(x))-1]
		return f(len(x), &dst[0], &x[0], factor)
	}
}

func wrapPairBytes(f func(n int, dst *int16, x *int8)) func(dst []int16, x []int8) {
	return func(dst []int16, x []int8) {
		if n := len(x); n > 0 {
			_ = dst[:n][Pad(n)-1] // whole groups
			f(n, &dst[0], &x[0])
		}
	}
}
