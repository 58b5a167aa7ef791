package nn

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
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

func TestRMSNormOfARowIgnoresOtherRowsAndThreads(t *testing.T) {
	defer par.SetThreads(0)
	const rows, width = 1500, 97
	s := &source{key: rng.New(52)}
	n := RMSNorm{Gain: weight(s, width), Eps: 1e-5}
	x, dy := matrix(s, rows, width), matrix(s, rows, width)
	pass := func(threads int) [][]float {
		par.SetThreads(threads)
		clear(n.Gain.Grad)
		y, dx, stats := tensor.NewMat(rows, width), tensor.NewMat(rows, width), make([]float, 2*rows)
		n.Forward(y, x, stats)
		n.Backward(dx, dy, x, stats)
		return [][]float{y.Data, dx.Data, slices.Clone(n.Gain.Grad)}
	}
	one, three := pass(1), pass(3)
	for i := range one {
		if !slices.Equal(one[i], three[i]) {
			t.Errorf("result %d differs between one and three threads", i)
		}
	}
	for _, i := range []int{0, 63, 64, rows - 1} {
		row := tensor.NewMat(1, width)
		n.Forward(row, x.Slice(i, i+1), make([]float, 2))
		if !slices.Equal(row.Data, one[0][i*width:][:width]) {
			t.Errorf("row %d depends on the rows around it", i)
		}
		// In place.
		copy(row.Data, x.Row(i))
		n.Forward(row, row, make([]float, 2))
		if !slices.Equal(row.Data, one[0][i*width:][:width]) {
			t.Errorf("row %d differs in place", i)
		}
	}
}
