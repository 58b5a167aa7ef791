//go:build !float64

package engine

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// Forward and Backward run in the forms of the plan, each in its own.
func TestPlannedFormsRun(t *testing.T) {
	fast := poly2(t)
	const d = 8
	mixed := false
	for _, n := range []int{20, 64, 150, 700} {
		for _, causal := range []bool{false, true} {
			in := random32(1, n, d)
			c := &attention.Call{Q: in, K: in, V: in, Causal: causal}
			p := fast.Plan(c.Shape())
			mixed = mixed || p.Form == attention.Linear
			run := func(form, back attention.Form) (out tensor.Heads, g attention.Grads) {
				c := *c
				c.Form = form
				var keep attention.Saved
				out = tensor.NewHeads(1, 1, n, d)
				g = attention.Grads{DQ: tensor.NewHeads(1, 1, n, d), DK: tensor.NewHeads(1, 1, n, d), DV: tensor.NewHeads(1, 1, n, d)}
				if err := fast.Forward(out, &c, &keep); err != nil {
					t.Fatal(err)
				}
				c.Form = back
				if err := fast.Backward(&g, in, out, &c, &keep); err != nil {
					t.Fatal(err)
				}
				return out, g
			}
			out, g := run(attention.Auto, attention.Auto)
			want, grads := run(p.Form, p.Back)
			if !slices.Equal(out.Data, want.Data) || !slices.Equal(g.DQ.Data, grads.DQ.Data) ||
				!slices.Equal(g.DK.Data, grads.DK.Data) || !slices.Equal(g.DV.Data, grads.DV.Data) {
				t.Errorf("N = %d, causal %v: not what forward %v, backward %v gives", n, causal, p.Form, p.Back)
			}
		}
	}
	if !mixed {
		t.Error("no length runs in the linear form")
	}
}

func random32(key uint64, n, d int) tensor.Heads {
	x := tensor.NewHeads(1, 1, n, d)
	for i := range x.Data {
		key = key*6364136223846793005 + 1442695040888963407
		x.Data[i] = float32(int64(key)) / (1 << 63)
	}
	return x
}
