//go:build !float64

package nn

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Rows, threads and packed weights do not change bits.
func TestGatedMLPOfARowIgnoresOtherRowsAndThreads(t *testing.T) {
	defer par.SetThreads(0)
	const width, hidden, rows = 97, 300, 3*rowTile + 5
	for act := range gates {
		s := &source{key: rng.New(42)}
		m := gated(s, width, hidden, act)
		x, dy := matrix(s, rows, width), matrix(s, rows, width)
		pass := func(threads int) [][]float32 {
			par.SetThreads(threads)
			weights := []*param.Param{m.GateProj.W, m.GateProj.B, m.UpProj.W, m.UpProj.B, m.DownProj.W, m.DownProj.B}
			for _, p := range weights {
				clear(p.Grad)
			}
			y, dx, tr := tensor.NewMat(rows, width), tensor.NewMat(rows, width), m.NewTrace()
			m.Forward(y, y, x, Scope{}, tr, true)
			m.Backward(dx, dy, x, tr, nil)
			out := [][]float32{y.Data, dx.Data}
			for _, p := range weights {
				out = append(out, slices.Clone(p.Grad))
			}
			return out
		}
		one, three := pass(1), pass(3)
		for i := range one {
			if !slices.Equal(one[i], three[i]) {
				t.Errorf("activation %d: result %d differs between one and three threads", act, i)
			}
		}
		for _, n := range []int{1, 2, GEMVRows, GEMVRows + 1, 30, rowTile + 9} {
			frozen := m.Freeze(n)
			for way, step := range []Stepper{m, frozen} {
				y := tensor.NewMat(n, width)
				if err := step.Step(y, x.Slice(0, n), nil, Scope{}, m.NewTrace()); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(y.Data, one[0][:n*width]) {
					t.Errorf("activation %d, way %d: the first %d rows differ by themselves", act, way, n)
				}
			}
		}
	}
}
