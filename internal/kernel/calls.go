//go:build (amd64 || arm64) && !purego

package kernel

import "unsafe"

const (
	errShort = "kernel: slice too short"
	errCoef  = "kernel: no coefficients"
)

// pointerTo returns a pointer to the first element of x. It panics if x has fewer than n elements.
func pointerTo(x []float32, n int) *float32 {
	if len(x) < n {
		panic(errShort)
	}
	return unsafe.SliceData(x)
}

// pointerOrNil is pointerTo, or nil if x is nil.
func pointerOrNil(x []float32, n int) *float32 {
	if x == nil {
		return nil
	}
	return pointerTo(x, n)
}

// wrapUnary adapts an assembly routine of two vectors to slices. The functions below do the same for
// routines of other arguments: they check lengths once per call.
func wrapUnary(f func(n int, dst, x *float32)) func(dst, x []float32) {
	return func(dst, x []float32) {
		n := len(dst)
		f(n, pointerTo(dst, n), pointerTo(x, n))
	}
}

func wrapBinary(f func(n int, dst, x, y *float32)) func(dst, x, y []float32) {
	return func(dst, x, y []float32) {
		n := len(dst)
		f(n, pointerTo(dst, n), pointerTo(x, n), pointerTo(y, n))
	}
}

func wrapScaled(f func(n int, dst *float32, a float32, x *float32)) func(dst []float32, a float32, x []float32) {
	return func(dst []float32, a float32, x []float32) {
		n := len(dst)
		f(n, pointerTo(dst, n), a, pointerTo(x, n))
	}
}

func wrapDot(f func(n int, x, y *float32) float32) func(x, y []float32) float32 {
	return func(x, y []float32) float32 {
		n := len(x)
		return f(n, pointerTo(x, n), pointerTo(y, n))
	}
}

func wrapReduction(f func(n int, x *float32) float32) func(x []float32) float32 {
	return func(x []float32) float32 {
		return f(len(x), pointerTo(x, len(x)))
	}
}

func wrapExp(f func(n int, dst, x *float32, shift float32) float32) func(dst, x []float32, shift float32) float32 {
	return func(dst, x []float32, shift float32) float32 {
		n := len(dst)
		return f(n, pointerTo(dst, n), pointerTo(x, n), shift)
	}
}

func wrapExpRows(f func(rows, n int, x *float32, xrs int, factor float32, shift, sum *float32)) func(x []float32, xrs, n int, factor float32, shift, sum []float32) {
	return func(x []float32, xrs, n int, factor float32, shift, sum []float32) {
		if rows := len(shift); rows > 0 {
			f(rows, n, pointerTo(x, (rows-1)*xrs+n), xrs, factor, pointerTo(shift, rows), pointerTo(sum, rows))
		}
	}
}

func wrapPolyRows(f func(rows, n int, dst, x *float32, rs, terms int, coef, sum *float32)) func(dst, x []float32, rs, n int, coef, sum []float32) {
	return func(dst, x []float32, rs, n int, coef, sum []float32) {
		if len(coef) == 0 {
			panic(errCoef)
		}
		if rows := len(sum); rows > 0 {
			all := (rows-1)*rs + n
			f(rows, n, pointerTo(dst, all), pointerTo(x, all), rs, len(coef), pointerTo(coef, len(coef)), pointerTo(sum, rows))
		}
	}
}

func wrapMulRows(f func(rows, n int, dst, x *float32, rs int, a *float32)) func(dst, x []float32, rs, n int, a []float32) {
	return func(dst, x []float32, rs, n int, a []float32) {
		if rows := len(a); rows > 0 {
			all := (rows-1)*rs + n
			f(rows, n, pointerTo(dst, all), pointerTo(x, all), rs, pointerTo(a, rows))
		}
	}
}

func wrapScaleRows(f func(rows, n int, dst *float32, drs int, x *float32, xrs int, a *float32)) func(dst []float32, drs int, x []float32, xrs, n int, a []float32) {
	return func(dst []float32, drs int, x []float32, xrs, n int, a []float32) {
		if rows := len(a); rows > 0 {
			f(rows, n, pointerToRows(dst, drs, rows, n), drs, pointerToRows(x, xrs, rows, n), xrs, pointerTo(a, rows))
		}
	}
}

func wrapMixRows(f func(rows, n int, dst *float32, drs int, x *float32, xrs int, a, y *float32, yrs int, b *float32)) func(dst []float32, drs int, x []float32, xrs int, a, y []float32, yrs int, b []float32, n int) {
	return func(dst []float32, drs int, x []float32, xrs int, a, y []float32, yrs int, b []float32, n int) {
		if rows := len(a); rows > 0 {
			f(rows, n, pointerToRows(dst, drs, rows, n), drs, pointerToRows(x, xrs, rows, n), xrs, pointerTo(a, rows), pointerToRows(y, yrs, rows, n), yrs, pointerTo(b, rows))
		}
	}
}

func wrapClearRows(f func(rows, n int, x *float32, xrs int)) func(x []float32, xrs, rows, n int) {
	return func(x []float32, xrs, rows, n int) {
		if rows > 0 && n > 0 {
			f(rows, n, pointerToRows(x, xrs, rows, n), xrs)
		}
	}
}

func wrapAddRows(f func(rows, n int, dst *float32, drs int, x *float32, xrs int, y *float32, yrs int)) func(dst []float32, drs int, x []float32, xrs int, y []float32, yrs, rows, n int) {
	return func(dst []float32, drs int, x []float32, xrs int, y []float32, yrs, rows, n int) {
		if rows > 0 {
			if drs == n && xrs == n && yrs == n {
				rows, n = 1, rows*n // one long row
			}
			f(rows, n, pointerToRows(dst, drs, rows, n), drs, pointerToRows(x, xrs, rows, n), xrs, pointerToRows(y, yrs, rows, n), yrs)
		}
	}
}

func wrapSumRows(f func(n, rows int, sum, x *float32, xrs int)) func(sum, x []float32, xrs, rows int) {
	return func(sum, x []float32, xrs, rows int) {
		if n := len(sum); rows > 0 {
			f(n, rows, pointerTo(sum, n), pointerToRows(x, xrs, rows, n), xrs)
		}
	}
}

func wrapRowDots(f func(rows, n int, dst, x *float32, xrs int, y *float32, yrs int)) func(dst, x []float32, xrs int, y []float32, yrs, n int) {
	return func(dst, x []float32, xrs int, y []float32, yrs, n int) {
		if rows := len(dst); rows > 0 {
			f(rows, n, pointerTo(dst, rows), pointerToRows(x, xrs, rows, n), xrs, pointerToRows(y, yrs, rows, n), yrs)
		}
	}
}

func wrapTopTwo(f func(rows, n int, x *float32, xrs int, y *float32, first int32, best, next *float32, at *int32)) func(x []float32, xrs, n int, y []float32, first int, best, next []float32, at []int32) {
	return func(x []float32, xrs, n int, y []float32, first int, best, next []float32, at []int32) {
		if n%Lanes != 0 {
			panic("kernel: n is not a multiple of Lanes")
		}
		if rows := len(best) / Lanes; rows > 0 && n > 0 {
			if len(at) < rows*Lanes {
				panic(errShort)
			}
			f(rows, n, pointerToRows(x, xrs, rows, n), xrs, pointerTo(y, n), int32(first), pointerTo(best, rows*Lanes), pointerTo(next, rows*Lanes), unsafe.SliceData(at))
		}
	}
}

func wrapLayerNorm(f func(rows, n int, dst *float32, drs int, x *float32, xrs int, gain, bias, stats *float32, count, eps float32)) func(dst []float32, drs int, x []float32, xrs, rows, n int, gain, bias, stats []float32, eps float32) {
	return func(dst []float32, drs int, x []float32, xrs, rows, n int, gain, bias, stats []float32, eps float32) {
		if rows > 0 {
			f(rows, n, pointerToRows(dst, drs, rows, n), drs, pointerToRows(x, xrs, rows, n), xrs, pointerTo(gain, n), pointerOrNil(bias, n), pointerTo(stats, 2*rows), float32(n), eps)
		}
	}
}

func wrapLayerNormGrad(f func(rows, n int, dx *float32, dxrs int, dgain, dbias, dy *float32, dyrs int, x *float32, xrs int, gain, stats *float32, count float32)) func(dx []float32, dxrs int, dgain, dbias, dy []float32, dyrs int, x []float32, xrs, rows, n int, gain, stats []float32) {
	return func(dx []float32, dxrs int, dgain, dbias, dy []float32, dyrs int, x []float32, xrs, rows, n int, gain, stats []float32) {
		if rows > 0 {
			f(rows, n, pointerToRows(dx, dxrs, rows, n), dxrs, pointerOrNil(dgain, n), pointerOrNil(dbias, n), pointerToRows(dy, dyrs, rows, n), dyrs,
				pointerToRows(x, xrs, rows, n), xrs, pointerTo(gain, n), pointerTo(stats, 2*rows), float32(n))
		}
	}
}

func wrapAdamW(f func(n int, w, g, m, v, s *float32)) func(w, g, m, v []float32, s *AdamWStep[float32]) {
	return func(w, g, m, v []float32, s *AdamWStep[float32]) {
		n := len(w)
		f(n, pointerTo(w, n), pointerTo(g, n), pointerTo(m, n), pointerTo(v, n), &s.Rate)
	}
}
