//go:build float64

package model

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Another loss than the head's: a weighted sum of the outputs.
func TestGradientsFromOutputs(t *testing.T) {
	for _, name := range []string{"encoder softmax", "post-norm", "mamba-2"} {
		c := cases()[name]
		m, b := made(t, c), batch(c, 1, 2, 5, false)
		dy := tensor.NewMat(b.B*b.N, c.Width)
		for i := range dy.Data {
			dy.Data[i] = rng.New(7).Normal(uint64(i))
		}
		f := func() (sum float64) {
			y, err := m.Outputs(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			return dot(y.Data, dy.Data)
		}
		f()
		if err := m.BackwardOutputs(dy, 1); err != nil {
			t.Fatal(err)
		}
		if err := m.BackwardOutputs(dy, 1); err == nil {
			t.Errorf("%s: a second BackwardOutputs is accepted", name)
		}
		if err := m.Backward(1); err == nil {
			t.Errorf("%s: Backward is accepted without a loss", name)
		}
		for i, p := range m.Params().All() {
			start, direction := slices.Clone(p.Data), make([]float64, len(p.Data))
			for j := range direction {
				direction[j] = rng.New(8).Fold(uint64(i)).Normal(uint64(j)) / float64(len(direction))
			}
			at := func(x float64) float64 {
				for j, d := range direction {
					p.Data[j] = start[j] + x*d
				}
				return f()
			}
			const h = 1e-3
			want := (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
			copy(p.Data, start)
			if got := dot(p.Grad, direction); !(max(got-want, want-got) <= 1e-6*(1+max(want, -want))) {
				t.Errorf("%s %s: slope is %v, want %v", name, p.Name, got, want)
			}
		}
		f()
		if err := m.BackwardOutputs(tensor.NewMat(3, c.Width), 1); err == nil {
			t.Errorf("%s: a gradient of 3 rows is accepted", name)
		}
	}
}
