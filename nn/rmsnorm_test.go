package nn

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/rng"
)

func TestRMSNormIsItsDefinition(t *testing.T) {
	for _, residual := range []bool{false, true} {
		t.Run(check.Precision, func(t *testing.T) { testRMSNorm(t, check.Pick(0x1p-24, 0x1p-53), residual) })
	}
}

func testRMSNorm(t *testing.T, unit float64, residual bool) {
	for _, c := range []struct{ rows, width int }{{1, 1}, {3, 7}, {normRows + 9, 65}, {2, 1000}} {
		s := &source{key: rng.New(51)}
		n := RMSNorm{Gain: weight(s, c.width), Eps: 1e-5, Residual: residual}
		x, y := matrix(s, c.rows, c.width), matrix(s, c.rows, c.width)
		stats := make([]float, 2*c.rows)
		n.Forward(y, x, stats)
		for i := range c.rows {
			square := 0.0
			for _, v := range x.Row(i) {
				square += float64(v) * float64(v)
			}
			factor := 1 / math.Sqrt(square/float64(c.width)+float64(n.Eps))
			// A sum of width squares errs by at most width+1 roundings, its root by half
			// of that. The factor, its product with x and that with the gain round once.
			bound := (float64(c.width+1)/2 + 3) * unit
			if got := float64(stats[2*i+1]); stats[2*i] != 0 || !(math.Abs(got-factor) <= bound*factor) {
				t.Fatalf("%v: row %d has statistics %v, want a factor of %v", c, i, stats[2*i:2*i+2], factor)
			}
			for j, got := range y.Row(i) {
				want := float64(x.Row(i)[j]) * factor * float64(n.Gain.Data[j])
				allowed := bound * math.Abs(want)
				if residual { // the sum rounds once more
					want += float64(x.Row(i)[j])
					allowed += unit * (math.Abs(want) + allowed)
				}
				if !(math.Abs(float64(got)-want) <= allowed) {
					t.Fatalf("%v: row %d, column %d is %v, want %v", c, i, j, got, want)
				}
			}
		}
	}
}
