package nn

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// siluWork is the cost of a SiLU in operations: a vectorised exponential, and a division in
// plain Go.
const siluWork = 24

// siluPart is the number of elements whose sigmoids are computed at a time.
const siluPart = 512

// setSigmoid sets s to 1/(1 + e^-x). s may be x.
func setSigmoid(t *kernel.Table[float], s, x []float) {
	t.Scale(s, -1, x)
	t.Exp(s, s, 0)
	for i, e := range s {
		s[i] = 1 / (1 + e)
	}
}

// setSiLU sets y = x·σ(x) (Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2). y may
// be x.
func setSiLU(t *kernel.Table[float], y, x []float) {
	if len(y) > 0 && &y[0] != &x[0] {
		setSigmoid(t, y, x)
		t.Mul(y, y, x)
		return
	}
	eachSigmoid(t, x, func(i int, s []float) { t.Mul(y[i:][:len(s)], s, x[i:]) })
}

// setSiLUGrad sets dx = dy∘silu'(x). dx may be dy or x.
func setSiLUGrad(t *kernel.Table[float], dx, dy, x []float) {
	eachSigmoid(t, x, func(i int, s []float) {
		dx, dy, x := dx[i:][:len(s)], dy[i:][:len(s)], x[i:][:len(s)]
		for j, s := range s {
			dx[j] = dy[j] * siluSlope(s, x[j])
		}
	})
}

// eachSigmoid calls do with the sigmoids s of x[i:i+len(s)], part by part.
func eachSigmoid(t *kernel.Table[float], x []float, do func(i int, s []float)) {
	ar := arena.Acquire()
	defer ar.Release()
	room := arena.Take[float](ar, min(len(x), siluPart))
	for i := 0; i < len(x); i += len(room) {
		s := room[:min(len(room), len(x)-i)]
		setSigmoid(t, s, x[i:])
		do(i, s)
	}
}

// siluSlope returns the derivative of SiLU at x, given s = σ(x).
func siluSlope(s, x float) float { return s * (1 + x*(1-s)) }
