package kernel

import (
	"math"
	"slices"
	"testing"
)

// All of float32. Where e^(-x²/2) is subnormal, terms with this factor may be 0.
func TestErfGELUAccuracy(t *testing.T) { each(t, testErfGELUAccuracy) }

func testErfGELUAccuracy(t *testing.T, k *Table[float32]) {
	const smallest = 0x1p-126
	y, ones := make([]float32, walked), slices.Repeat([]float32{1}, walked)
	var low, high, slope float64 // the worst of GELU below and above 0, and of its gradient
	check := func(x []float32) {
		k.ErfGELU(y[:len(x)], x)
		for i, v := range x {
			want, got := float64(v)*lower(float64(v)), float64(y[i])
			if math.Abs(want) < smallest {
				if !(math.Abs(got) <= smallest && math.Abs(got-want) <= math.Abs(want)) {
					t.Fatalf("GELU(%v) = %v, want %v", v, got, want)
				}
				continue
			}
			err := ulps(got-want, want)
			if v < 0 {
				low = max(low, err)
			} else {
				high = max(high, err)
			}
		}
		k.ErfGELUGrad(y[:len(x)], ones, x)
		for i, v := range x {
			// The two parts of the gradient cancel at -0.75.
			z := float64(v)
			part, other := lower(z), z*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi)
			if math.Exp(-z*z/2) >= smallest {
				slope = max(slope, ulps(float64(y[i])-part-other, max(part, math.Abs(other))))
			}
		}
	}
	walk(20, check)
	// Where most numbers are that a network meets, number by number at random.
	r := source()
	for range 64 {
		x := make([]float32, walked)
		for i := range x {
			x[i] = float32(3 * r.NormFloat64())
		}
		check(x)
	}
	t.Logf("worst errors: %.2f ulp below 0, %.2f above, %.2f of the gradient", low, high, slope)
	if !(low <= 7 && high <= 4 && slope <= 4) {
		t.Errorf("off by %.2f ulp below 0, %.2f above, and %.2f in the gradient", low, high, slope)
	}
}

// lower returns Φ(x).
func lower(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }

// ulps returns an error in units in the last place of float32 at x.
func ulps(err, x float64) float64 {
	_, e := math.Frexp(x)
	return math.Abs(err) / math.Ldexp(1, e-24)
}

func TestErfGELULimits(t *testing.T) { each(t, testErfGELULimits) }

func testErfGELULimits(t *testing.T, k *Table[float32]) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	x := []float32{inf, -inf, math.MaxFloat32, -math.MaxFloat32, 14, -20, 0, nan}
	got, slope := make([]float32, len(x)), slices.Repeat([]float32{1}, len(x))
	k.ErfGELU(got, x)
	k.ErfGELUGrad(slope, slope, x)
	for i, want := range []float32{inf, 0, math.MaxFloat32, 0, 14, 0, 0, nan} {
		if got[i] != want && (got[i] == got[i] || want == want) {
			t.Errorf("GELU(%v) = %v, want %v", x[i], got[i], want)
		}
	}
	for i, want := range []float32{1, 0, 1, 0, 1, 0, 0.5, nan} {
		if slope[i] != want && (slope[i] == slope[i] || want == want) {
			t.Errorf("the slope at %v is %v, want %v", x[i], slope[i], want)
		}
	}
}
