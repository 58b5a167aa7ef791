//go:build !float64

package nn

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

func TestRMSNormOfARowIgnoresOtherRowsAndThreads(t *testing.T) {
	defer par.SetThreads(0)
	const rows, width = 1500, 97
	s := &source{key: rng.New(52)}
	n := RMSNorm{Gain: weight(s, width), Eps: 1e-5}
	x, dy := matrix(s, rows, width), matrix(s, rows, width)
	pass := func(threads int) [][]float32 {
		par.SetThreads(threads)
		clear(n.Gain.Grad)
		y, dx, stats := tensor.NewMat(rows, width), tensor.NewMat(rows, width), make([]float32, 2*rows)
		n.Forward(y, x, stats)
		n.Backward(dx, dy, x, stats)
		return [][]float32{y.Data, dx.Data, slices.Clone(n.Gain.Grad)}
	}
	one, three := pass(1), pass(3)
	for i := range one {
		if !slices.Equal(one[i], three[i]) {
			t.Errorf("result %d differs between one and three threads", i)
		}
	}
	for _, i := range []int{0, 63, 64, rows - 1} {
		row := tensor.NewMat(1, width)
		n.Forward(row, x.Slice(i, i+1), make([]float32, 2))
		if !slices.Equal(row.Data, one[0][i*width:][:width]) {
			t.Errorf("row %d depends on the rows around it", i)
		}
		// In place.
		copy(row.Data, x.Row(i))
		n.Forward(row, row, make([]float32, 2))
		if !slices.Equal(row.Data, one[0][i*width:][:width]) {
			t.Errorf("row %d differs in place", i)
		}
	}
}
