package bench

import (
	"math"
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	m := DescribeMachine(0)
	for _, want := range []string{m.ISA + " kernels", "threads ", "go1."} {
		if !strings.Contains(m.String(), want) {
			t.Errorf("%q does not say %q", m, want)
		}
	}
	if m.Peak != 0 || strings.Contains(m.String(), "peak") {
		t.Errorf("%q states a peak that was not measured", m)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1}, 5}, {[]float64{100, 1, 3}, 3}} {
		if got := Median(c.x); got != c.want {
			t.Errorf("median of %v is %g, want %g", c.x, got, c.want)
		}
	}
}

func TestCrossover(t *testing.T) {
	n := []float64{100, 1000, 10000}
	quadratic, linear := make([]float64, 3), make([]float64, 3)
	for i, x := range n {
		quadratic[i], linear[i] = x*x, 2000*x
	}
	at, found := FindCrossover(n, quadratic, linear)
	if !found || math.Abs(at-2000) > 1e-6 {
		t.Errorf("x² and 2000x cross at %g, %t", at, found)
	}
	if at, found := FindCrossover(n, linear, linear); found {
		t.Errorf("a line crosses itself at %g", at)
	}
	if at, found := FindCrossover(n, []float64{9, 9, 9}, []float64{1, 1, 1}); found {
		t.Errorf("lines that do not meet cross at %g", at)
	}
	if _, found := FindCrossover(nil, nil, nil); found {
		t.Error("no points cross")
	}
}

func TestInterpolate(t *testing.T) {
	x, y := []float64{1, 10, 100}, []float64{1, 100, 10}
	for at, want := range map[float64]float64{1: 1, 2: 4, 10: 100, 1000: 1, 50: 100 * math.Pow(5, -1)} {
		if got := Interpolate(x, y, at); math.Abs(got/want-1) > 1e-12 {
			t.Errorf("at %g: %g, want %g", at, got, want)
		}
	}
}
