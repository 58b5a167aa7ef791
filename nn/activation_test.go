package nn

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/rng"
)

// An element of a long vector has the bits that it has by itself, in place or not.
func TestSiLUOfAnElementIgnoresItsNeighbours(t *testing.T) {
	t.Run(check.Precision, func(t *testing.T) { testSiLU(t, check.Pick(0x1p-23, 0x1p-52)) })
}

func testSiLU(t *testing.T, ulp float64) {
	k := kernel.Active[float]()
	s := &source{key: rng.New(31)}
	x, dy := make([]float, 2*siluPart+77), make([]float, 2*siluPart+77)
	for i := range x {
		x[i], dy[i] = float(8*s.normal()), float(s.normal())
	}
	y, dx := make([]float, len(x)), make([]float, len(x))
	activateElements(SiLU, k, y, x)
	activateElementsGrad(SiLU, k, dx, dy, x)
	same, dsame := slices.Clone(x), slices.Clone(x)
	activateElements(SiLU, k, same, same)
	activateElementsGrad(SiLU, k, dsame, dy, dsame)
	if !slices.Equal(same, y) || !slices.Equal(dsame, dx) {
		t.Error("results in place differ")
	}
	for i, v := range x {
		one, done := []float{v}, []float{v}
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
