//go:build (amd64 || arm64) && !purego

package kernel

import "unsafe"

const (
	errShort = "kernel: slice too short"
	errCoef  = "kernel: no coefficients"
)

// at returns a pointer to the first element of x, which holds at least n.
func at(x []float32, n int) *float32 {
	if len(x) < n {
		panic(errShort)
	}
	return unsafe.SliceData(x)
}

// orNil is at, or nil where x is.
func orNil(x []float32, n int) *float32 {
	if x == nil {
		return nil
	}
	return at(x, n)
}

func unary(f func(n int, dst, x *float32)) func(dst, x []float32) {
	return func(dst, x []float32) {
		n := len(dst)
		f(n, at(dst, n), at(x, n))
	}
}

func binary(f func(n int, dst, x, y *float32)) func(dst, x, y []float32) {
	return func(dst, x, y []float32) {
		n := len(dst)
		f(n, at(dst, n), at(x, n), at(y, n))
	}
}

func scaled(f func(n int, dst *float32, a float32, x *float32)) func(dst []float32, a float32, x []float32) {
	return func(dst []float32, a float32, x []float32) {
		n := len(dst)
		f(n, at(dst, n), a, at(x, n))
	}
}

func dot(f func(n int, x, y *float32) float32) func(x, y []float32) float32 {
	return func(x, y []float32) float32 {
		n := len(x)
		return f(n, at(x, n), at(y, n))
	}
}

func reduction(f func(n int, x *float32) float32) func(x []float32) float32 {
	return func(x []float32) float32 {
		return f(len(x), at(x, len(x)))
	}
}

func exp(f func(n int, dst, x *float32, shift float32) float32) func(dst, x []float32, shift float32) float32 {
	return func(dst, x []float32, shift float32) float32 {
		n := len(dst)
		return f(n, at(dst, n), at(x, n), shift)
	}
}

func expRows(f func(rows, n int, x *float32, xrs int, factor float32, shift, sum *float32)) func(x []float32, xrs, n int, factor float32, shift, sum []float32) {
	return func(x []float32, xrs, n int, factor float32, shift, sum []float32) {
		if rows := len(shift); rows > 0 {
			f(rows, n, at(x, (rows-1)*xrs+n), xrs, factor, at(shift, rows), at(sum, rows))
		}
	}
}

func polyRows(f func(rows, n int, dst, x *float32, rs, terms int, coef, sum *float32)) func(dst, x []float32, rs, n int, coef, sum []float32) {
	return func(dst, x []float32, rs, n int, coef, sum []float32) {
		if len(coef) == 0 {
			panic(errCoef)
		}
		if rows := len(sum); rows > 0 {
			all := (rows-1)*rs + n
			f(rows, n, at(dst, all), at(x, all), rs, len(coef), at(coef, len(coef)), at(sum, rows))
		}
	}
}

func mulRows(f func(rows, n int, dst, x *float32, rs int, a *float32)) func(dst, x []float32, rs, n int, a []float32) {
	return func(dst, x []float32, rs, n int, a []float32) {
		if rows := len(a); rows > 0 {
			all := (rows-1)*rs + n
			f(rows, n, at(dst, all), at(x, all), rs, at(a, rows))
		}
	}
}

func scaleRows(f func(rows, n int, dst *float32, drs int, x *float32, xrs int, a *float32)) func(dst []float32, drs int, x []float32, xrs, n int, a []float32) {
	return func(dst []float32, drs int, x []float32, xrs, n int, a []float32) {
		if rows := len(a); rows > 0 {
			f(rows, n, rowsAt(dst, drs, rows, n), drs, rowsAt(x, xrs, rows, n), xrs, at(a, rows))
		}
	}
}

func addRows(f func(rows, n int, dst *float32, drs int, x *float32, xrs int, y *float32, yrs int)) func(dst []float32, drs int, x []float32, xrs int, y []float32, yrs, rows, n int) {
	return func(dst []float32, drs int, x []float32, xrs int, y []float32, yrs, rows, n int) {
		if rows > 0 {
			if drs == n && xrs == n && yrs == n {
				rows, n = 1, rows*n // without an end at each
			}
			f(rows, n, rowsAt(dst, drs, rows, n), drs, rowsAt(x, xrs, rows, n), xrs, rowsAt(y, yrs, rows, n), yrs)
		}
	}
}

func sumRows(f func(n, rows int, sum, x *float32, xrs int)) func(sum, x []float32, xrs, rows int) {
	return func(sum, x []float32, xrs, rows int) {
		if n := len(sum); rows > 0 {
			f(n, rows, at(sum, n), rowsAt(x, xrs, rows, n), xrs)
		}
	}
}

func rowDots(f func(rows, n int, dst, x *float32, xrs int, y *float32, yrs int)) func(dst, x []float32, xrs int, y []float32, yrs, n int) {
	return func(dst, x []float32, xrs int, y []float32, yrs, n int) {
		if rows := len(dst); rows > 0 {
			f(rows, n, at(dst, rows), rowsAt(x, xrs, rows, n), xrs, rowsAt(y, yrs, rows, n), yrs)
		}
	}
}

func layerNorm(f func(rows, n int, dst *float32, drs int, x *float32, xrs int, gain, bias, stats *float32, count, eps float32)) func(dst []float32, drs int, x []float32, xrs, rows, n int, gain, bias, stats []float32, eps float32) {
	return func(dst []float32, drs int, x []float32, xrs, rows, n int, gain, bias, stats []float32, eps float32) {
		if rows > 0 {
			f(rows, n, rowsAt(dst, drs, rows, n), drs, rowsAt(x, xrs, rows, n), xrs, at(gain, n), orNil(bias, n), at(stats, 2*rows), float32(n), eps)
		}
	}
}

func layerNormGrad(f func(rows, n int, dx *float32, dxrs int, dgain, dbias, dy *float32, dyrs int, x *float32, xrs int, gain, stats *float32, count float32)) func(dx []float32, dxrs int, dgain, dbias, dy []float32, dyrs int, x []float32, xrs, rows, n int, gain, stats []float32) {
	return func(dx []float32, dxrs int, dgain, dbias, dy []float32, dyrs int, x []float32, xrs, rows, n int, gain, stats []float32) {
		if rows > 0 {
			f(rows, n, rowsAt(dx, dxrs, rows, n), dxrs, orNil(dgain, n), orNil(dbias, n), rowsAt(dy, dyrs, rows, n), dyrs,
				rowsAt(x, xrs, rows, n), xrs, at(gain, n), at(stats, 2*rows), float32(n))
		}
	}
}

func adamW(f func(n int, w, g, m, v, s *float32)) func(w, g, m, v []float32, s *AdamWStep[float32]) {
	return func(w, g, m, v []float32, s *AdamWStep[float32]) {
		n := len(w)
		f(n, at(w, n), at(g, n), at(m, n), at(v, n), &s.Rate)
	}
}
