//go:build !purego

package kernel

import "github.com/farfield-ml/farfield/internal/cpu"

func halfTable(t *Table[float32]) *HalfTable {
	h := &HalfTable{table: t, widen: widenGo}
	switch t.Name {
	case cpu.AVX512:
		h.mix = [3]func(k, step int, c, a *float32, b *uint16, brs int){mixHalf64AVX512, mixHalf32AVX512, mixHalf16AVX512}
		h.widen = wrapWiden(widenAVX512)
	case cpu.AVX2:
		h.mix = [3]func(k, step int, c, a *float32, b *uint16, brs int){mixHalf64AVX2, mixHalf32AVX2, mixHalf16AVX2}
		h.widen = wrapWiden(widenAVX2)
	}
	return h
}

func wrapWiden(f func(n int, dst *float32, x *uint16)) func(dst []float32, x []uint16) {
	return func(dst []float32, x []uint16) {
		if n := len(x); n > 0 {
			if n%Lanes != 0 {
				panic(errWhole)
			}
			f(n, pointerTo(dst, n), &x[0])
		}
	}
}
