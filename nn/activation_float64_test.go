//go:build float64

package nn

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/kernel"
)

func TestActivationsAndTheirSlopes(t *testing.T) {
	k := kernel.Active[float64]()
	for _, x := range []float64{-40, -3, -0.5, -1e-9, 1e-9, 0.25, 2, 40} {
		for a, f := range map[Activation]func(float64) float64{
			GELU: func(x float64) float64 { return x * 0.5 * (1 + math.Erf(x/math.Sqrt2)) },
			ReLU: func(x float64) float64 { return max(x, 0) },
			SiLU: func(x float64) float64 { return x / (1 + math.Exp(-x)) },
		} {
			y, d := []float64{x}, []float64{x}
			activateElements(a, k, y, y)
			if math.Abs(y[0]-f(x)) > 1e-15*(1+math.Abs(x)) {
				t.Errorf("activation %d of %v is %v, want %v", a, x, y[0], f(x))
			}
			activateElementsGrad(a, k, d, []float64{2}, d)
			h := min(1e-5, math.Abs(x)/2)
			if want := 2 * (f(x+h) - f(x-h)) / (2 * h); math.Abs(d[0]-want) > 1e-6 {
				t.Errorf("activation %d at %v: slope is %v, want %v", a, x, d[0], want)
			}
		}
	}
}
