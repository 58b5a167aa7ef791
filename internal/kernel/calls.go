//go:build (amd64 || arm64) && !purego

package kernel

import (
	"math"
	"unsafe"
)

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

func layerNorm(
	sum func(n int, x *float32) float32,
	variance func(n int, x *float32, mean float32) float32,
	plain func(n int, dst, x, gain *float32, mean, rstd float32),
	biased func(n int, dst, x, gain, bias *float32, mean, rstd float32),
) func(dst, x, gain, bias []float32, eps float32) (mean, rstd float32) {
	return func(dst, x, gain, bias []float32, eps float32) (mean, rstd float32) {
		n := len(dst)
		to, from, by := at(dst, n), at(x, n), at(gain, n)
		mean = sum(n, from) / float32(n)
		spread := variance(n, from, mean) / float32(n)
		rstd = 1 / float32(math.Sqrt(float64(spread+eps)))
		if bias == nil {
			plain(n, to, from, by, mean, rstd)
		} else {
			biased(n, to, from, by, at(bias, n), mean, rstd)
		}
		return mean, rstd
	}
}

func layerNormGrad(
	sums func(n int, dy, x, gain *float32, mean, rstd float32) (s1, s2 float32),
	row func(n int, dx, dy, x, gain *float32, mean, rstd, s1, s2 float32),
	gainGrad func(n int, dgain, dy, x *float32, mean, rstd float32),
	add func(n int, dst, x, y *float32),
) func(dx, dgain, dbias, dy, x, gain []float32, mean, rstd float32) {
	return func(dx, dgain, dbias, dy, x, gain []float32, mean, rstd float32) {
		n := len(dx)
		to, from, in, by := at(dx, n), at(dy, n), at(x, n), at(gain, n)
		if dgain != nil {
			gainGrad(n, at(dgain, n), from, in, mean, rstd)
		}
		if dbias != nil {
			add(n, at(dbias, n), at(dbias, n), from)
		}
		s1, s2 := sums(n, from, in, by, mean, rstd)
		row(n, to, from, in, by, mean, rstd, s1/float32(n), s2/float32(n))
	}
}

func adamW(f func(n int, w, g, m, v, s *float32)) func(w, g, m, v []float32, s *AdamWStep[float32]) {
	return func(w, g, m, v []float32, s *AdamWStep[float32]) {
		n := len(w)
		f(n, at(w, n), at(g, n), at(m, n), at(v, n), &s.Rate)
	}
}
