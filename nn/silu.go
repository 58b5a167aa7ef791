package nn

import (
	"math"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// siluWork is the arithmetic that an element of a SiLU is worth.
const siluWork = 24

// sigmoid sets s to 1/(1 + e^-x), which may be x.
func sigmoid[T tensor.Float](t *kernel.Table[T], s, x []T) {
	t.Scale(s, -1, x)
	t.Exp(s, s, 0)
	for i, e := range s {
		s[i] = 1 / (1 + e)
	}
}

// silu sets y = x·σ(x) (Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2,
// with another name).
func silu[T tensor.Float](t *kernel.Table[T], y, x []T) {
	sigmoid(t, y, x)
	t.Mul(y, y, x)
}

// siluGrad is the derivative of silu at x, of which s is the sigmoid.
func siluGrad[T tensor.Float](s, x T) T { return s * (1 + x*(1-s)) }

// softplus is log(1 + e^x), logistic its derivative.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func logistic(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + math.Exp(-x))
	}
	e := math.Exp(x)
	return e / (1 + e)
}
