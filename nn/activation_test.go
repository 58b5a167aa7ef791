package nn

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
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

// An element of a long vector has the bits that it has by itself, in place or not.
func TestSiLUOfAnElementIgnoresItsNeighbours(t *testing.T) {
	t.Run("float32", func(t *testing.T) { testSiLU[float32](t, 0x1p-23) })
	t.Run("float64", func(t *testing.T) { testSiLU[float64](t, 0x1p-52) })
}

func testSiLU[T tensor.Float](t *testing.T, ulp float64) {
	k := kernel.Active[T]()
	s := &source{key: rng.New(31)}
	x, dy := make([]T, 2*siluPart+77), make([]T, 2*siluPart+77)
	for i := range x {
		x[i], dy[i] = T(8*s.normal()), T(s.normal())
	}
	y, dx := make([]T, len(x)), make([]T, len(x))
	activateElements(SiLU, k, y, x)
	activateElementsGrad(SiLU, k, dx, dy, x)
	same, dsame := slices.Clone(x), slices.Clone(x)
	activateElements(SiLU, k, same, same)
	activateElementsGrad(SiLU, k, dsame, dy, dsame)
	if !slices.Equal(same, y) || !slices.Equal(dsame, dx) {
		t.Error("results in place differ")
	}
	for i, v := range x {
		one, done := []T{v}, []T{v}
		activateElements(SiLU, k, one, one)
		activateElementsGrad(SiLU, k, done, dy[i:i+1], done)
		if one[0] != y[i] || done[0] != dx[i] {
			t.Fatalf("element %d is %v and %v, by itself %v and %v", i, y[i], dx[i], one[0], done[0])
		}
		sigmoid := 1 / (1 + math.Exp(-float64(v)))
		// The exponential is within 2 units in the last place; sum, quotient and product
		// round once each, by half a unit.
		if want := float64(v) * sigmoid; !(math.Abs(float64(y[i])-want) <= 3.5*ulp*math.Abs(want)) {
			t.Errorf("silu of %v is %v, want %v", v, y[i], want)
		}
		// σ(1+x(1-σ)): 1-σ errs by 3 units of σ < 1, and |x| multiplies that.
		if want := float64(dy[i]) * sigmoid * (1 + float64(v)*(1-sigmoid)); !(math.Abs(float64(dx[i])-want) <= (8+5*math.Abs(float64(v)))*ulp*math.Abs(float64(dy[i]))*sigmoid) {
			t.Errorf("slope of silu at %v is %v, want %v", v, dx[i], want)
		}
	}
}
