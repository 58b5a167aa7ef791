package nn

import (
	"math"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// Activation is what an MLP does with its units.
type Activation int

const (
	TanhGELU Activation = iota // GELU in its tanh form (Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2)
	GELU                       // x·Φ(x), with the error function
	ReLU                       // max(x, 0)
)

// activate sets y, which x may be.
func activate[T tensor.Float](a Activation, k *kernel.Table[T], y, x []T) {
	switch a {
	case TanhGELU:
		k.GELU(y, x)
	case GELU:
		for i, v := range x {
			y[i] = T(float64(v) * normal(float64(v)))
		}
	case ReLU:
		for i, v := range x {
			y[i] = max(v, 0)
		}
	}
}

// activateGrad sets dx, which x may be; the derivative of ReLU at 0 is 0.
func activateGrad[T tensor.Float](a Activation, k *kernel.Table[T], dx, dy, x []T) {
	switch a {
	case TanhGELU:
		k.GELUGrad(dx, dy, x)
	case GELU:
		for i, v := range x {
			z := float64(v)
			dx[i] = dy[i] * T(normal(z)+z*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi))
		}
	case ReLU:
		for i, v := range x {
			if dx[i] = 0; v > 0 {
				dx[i] = dy[i]
			}
		}
	}
}

// normal is Φ, the normal distribution function.
func normal(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
