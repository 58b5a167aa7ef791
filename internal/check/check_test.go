package check

import (
	"math"
	"testing"
)

func TestRatio(t *testing.T) {
	for _, c := range []struct {
		got   []float32
		want  []float64
		limit float64
		ratio float64
	}{
		{[]float32{1, 2}, []float64{1, 2.5}, 0.25, 2},
		{[]float32{1}, []float64{1}, 0, 0},
		{[]float32{1}, []float64{2}, 0, math.Inf(1)},
		{[]float32{float32(math.NaN())}, []float64{0}, 1, math.Inf(1)},
		{[]float32{float32(math.Inf(1))}, []float64{0}, 1, math.Inf(1)},
		{[]float32{1}, []float64{0}, math.NaN(), math.Inf(1)},
		{[]float32{1, 2}, []float64{1}, 1, math.Inf(1)},
		{nil, nil, 0, 0},
	} {
		if got := ErrorRatio(c.got, c.want, c.limit); got != c.ratio {
			t.Errorf("Ratio(%v, %v, %v) = %v, want %v", c.got, c.want, c.limit, got, c.ratio)
		}
	}
}

func TestLimits(t *testing.T) {
	const u = 0x1p-24
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"direct output", DirectLimits[float32](2).Output(3, 2), 8 * u * 3 * 2},
		{"linear output", LinearLimits[float32](9, 16).Output(1, 1), 15 * u},
		{"linear gradient", LinearLimits[float32](9, 16).Gradient(2, 1), 30 * u},
		{"softmax gradient", SoftmaxLimits[float32]().Gradient(1, 1), 16 * u},
		{"float64 output", LinearLimits[float64](9, 16).Output(1, 1), 1e-14},
		{"float64 gradient", DirectLimits[float64](2).Gradient(1, 1), 1e-12},
		{"sum over few keys", LinearLimits[float32](9, 16).Sum(9, 2), 30 * u},
		{"sum over many keys", DirectLimits[float32](2).Sum(100, 2), 36 * u},
		{"float64 sum", DirectLimits[float64](2).Sum(100, 2), 2e-14},
	} {
		if c.got != c.want {
			t.Errorf("%s: %g, want %g", c.name, c.got, c.want)
		}
	}
}

func TestGradientOfAPolynomialIsExact(t *testing.T) {
	x := []float64{0.5, -2, 30}
	f := func() float64 { return x[0]*x[0]*x[1] + math.Sin(x[1]) + x[2]*x[2]*x[2] }
	got := NumericGradient(f, x)
	want := []float64{2 * 0.5 * -2, 0.25 + math.Cos(-2), 2700}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-8*math.Abs(want[i]) {
			t.Errorf("derivative %d: %v, want %v", i, got[i], want[i])
		}
	}
	if x[0] != 0.5 || x[1] != -2 || x[2] != 30 {
		t.Errorf("x was left changed: %v", x)
	}
}

func TestMaxShowsNaN(t *testing.T) {
	if m := MaxAbs([]float64{1, math.NaN(), 2}); !math.IsNaN(m) {
		t.Errorf("Max with a NaN is %v", m)
	}
	if m := MaxAbs([]float32{1, -3}); m != 3 {
		t.Errorf("Max is %v", m)
	}
}
