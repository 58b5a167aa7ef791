//go:build !purego

package kernel

import "github.com/farfield-ml/farfield/internal/cpu"

func halfTable(t *Table[float32]) *HalfTable {
	h := &HalfTable{table: t, widen: widenGo, widenPairs: widenPairsGo, pair: pairGo}
	switch t.Name {
	case cpu.AVX512:
		h.mix = [3]func(k, step int, c, a *float32, b *uint16, brs int){mixHalf64AVX512, mixHalf32AVX512, mixHalf16AVX512}
		h.widen, h.widenPairs, h.pair = wrapWiden(widenAVX512, Lanes), wrapWiden(widenPairsAVX512, pairColumns), pairRowsAVX2
	case cpu.AVX2:
		h.mix = [3]func(k, step int, c, a *float32, b *uint16, brs int){mixHalf64AVX2, mixHalf32AVX2, mixHalf16AVX2}
		h.widen, h.widenPairs, h.pair = wrapWiden(widenAVX2, Lanes), wrapWiden(widenPairsAVX2, pairColumns), pairRowsAVX2
	}
	return h
}

func wrapWiden(f func(n int, dst *float32, x *uint16), unit int) func(dst []float32, x []uint16) {
	return func(dst []float32, x []uint16) {
		if n := len(x); n > 0 {
			if n%unit != 0 {
				panic(errWhole)
			}
			f(n, pointerTo(dst, n), &x[0])
		}
	}
}

// pairRowsAVX2 is HalfTable.pair.
func pairRowsAVX2(dst []float32, x, y []uint16) (finite bool) {
	const step = 8
	n, bits := len(x)&^(step-1), uint32(0)
	if n > 0 {
		bits = pairHalvesAVX2(n, pointerTo(dst, n), &x[0], &y[:n][0])
	}
	return pairGo(dst[n:len(x)], x[n:], y[n:len(x)]) && bits == 0
}
