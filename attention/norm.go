package attention

import (
	"math"

	"github.com/farfield-ml/farfield/tensor"
)

// Norm normalises one token's query or key over its channels. Sums are taken
// in float64. A token that cannot be normalised (all channels equal, or zero)
// becomes exactly zero and has zero gradient.
type Norm int

const (
	// NoNorm leaves rows as they are.
	NoNorm Norm = iota
	// Standard subtracts the mean and divides by the population standard
	// deviation (FAST, eq. 5-6, epsilon 0): |x̂|² = D.
	Standard
	// Unit divides by the 2-norm (TaylorShift, normalisation 1).
	Unit
	// Bounded subtracts the mean and divides by the 2-norm, so that scores
	// stay in [-1, 1].
	Bounded
)

// MaxLen is the largest 2-norm of a normalised row of width d.
func (n Norm) MaxLen(d int) float64 {
	switch n {
	case Standard:
		return math.Sqrt(float64(d))
	case Unit, Bounded:
		return 1
	}
	return math.Inf(1)
}

// stats returns shift and factor with x̂ = (x - shift)·factor; the factor is 0
// for a row that cannot be normalised.
func stats[T tensor.Float](n Norm, x []T) (shift, factor float64) {
	if n == NoNorm {
		return 0, 1
	}
	if n != Unit {
		// Deviations from the first channel: the mean of equal channels is then
		// exact, where rounding would turn a constant row into one of ±1.
		first := float64(x[0])
		var s [4]float64
		i := 0
		for ; i+4 <= len(x); i += 4 {
			y := x[i:][:4]
			s[0] += float64(y[0]) - first
			s[1] += float64(y[1]) - first
			s[2] += float64(y[2]) - first
			s[3] += float64(y[3]) - first
		}
		for ; i < len(x); i++ {
			s[0] += float64(x[i]) - first
		}
		shift = first + ((s[0]+s[1])+(s[2]+s[3]))/float64(len(x))
	}
	// Four sums, so that an addition need not wait for the one before.
	var sq [4]float64
	i := 0
	for ; i+4 <= len(x); i += 4 {
		y := x[i:][:4]
		a, b, c, d := float64(y[0])-shift, float64(y[1])-shift, float64(y[2])-shift, float64(y[3])-shift
		sq[0] += a * a
		sq[1] += b * b
		sq[2] += c * c
		sq[3] += d * d
	}
	for ; i < len(x); i++ {
		d := float64(x[i]) - shift
		sq[0] += d * d
	}
	ss := (sq[0] + sq[1]) + (sq[2] + sq[3])
	if n == Standard {
		ss /= float64(len(x))
	}
	if ss == 0 {
		return shift, 0
	}
	return shift, 1 / math.Sqrt(ss)
}

// normalise sets dst to the normalised x.
func normalise[T tensor.Float](n Norm, dst, x []T) {
	if n == NoNorm {
		copy(dst, x)
		return
	}
	shift, factor := stats(n, x)
	if factor == 0 {
		clear(dst[:len(x)])
		return
	}
	for i, v := range x {
		dst[i] = T((float64(v) - shift) * factor)
	}
}

// normaliseGrad sets dx from the gradient dy of the normalised x. With
// r = 1 for unit length and r = D for the standard deviation:
// dx = factor·(dy - mean(dy) - x̂·(x̂·dy)/r), without the mean where none was
// subtracted.
func normaliseGrad[T tensor.Float](n Norm, dx, dy, x []T) {
	if n == NoNorm {
		copy(dx, dy)
		return
	}
	shift, factor := stats(n, x)
	if factor == 0 {
		clear(dx[:len(x)])
		return
	}
	var mean, dot float64
	for i, v := range x {
		mean += float64(dy[i])
		dot += float64(dy[i]) * (float64(v) - shift) * factor
	}
	mean /= float64(len(x))
	if n == Unit {
		mean = 0
	}
	if n == Standard {
		dot /= float64(len(x))
	}
	for i, v := range x {
		dx[i] = T(factor * (float64(dy[i]) - mean - (float64(v)-shift)*factor*dot))
	}
}
