//go:build float64

package nn

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// averaging is the mean of all values, and loses half the squares of its queries.
type averaging struct{}

func (averaging) Traits() attention.Traits {
	return attention.Traits{Name: "averaging", NoCausal: "it averages all"}
}
func (averaging) Setting() string             { return "averaging" }
func (averaging) Params() *param.Set          { return nil }
func (averaging) Constants() *param.Set       { return nil }
func (averaging) Check(*attention.Call) error { return nil }
func (averaging) Cost(s attention.Shape) headwise.Cost {
	return headwise.Cost{FLOPs: float64(s.N * s.M)}
}
func (averaging) squares(h *headwise.Head) (s float64) {
	for i := range h.Q.Rows {
		for _, x := range h.Q.Row(i) {
			s += x * x / 2
		}
	}
	return s
}

func (a averaging) Forward(h *headwise.Head) {
	h.Aux = a.squares(h)
	for i := range h.Q.Rows {
		clear(h.Out.Row(i))
		for j := range h.V.Rows {
			for e, x := range h.V.Row(j) {
				h.Out.Row(i)[e] += x / float64(h.V.Rows)
			}
		}
	}
}

func (averaging) Backward(h *headwise.Head, g *headwise.Grads) {
	for i := range h.Q.Rows {
		for c, x := range h.Q.Row(i) {
			g.DQ.Row(i)[c] = g.DAux * x
		}
	}
	for j := range h.K.Rows {
		clear(g.DK.Row(j))
		clear(g.DV.Row(j))
		for i := range h.Q.Rows {
			for e, x := range g.DOut.Row(i) {
				g.DV.Row(j)[e] += x / float64(h.K.Rows)
			}
		}
	}
}

// What a mechanism loses of its own reaches the weights as far as it is asked to.
func TestGradientOfAnAuxiliaryLoss(t *testing.T) {
	const width, heads, d, weighs = 5, 2, 3, 0.25
	s := &source{key: rng.New(12)}
	linear := func(out, in int) Linear { return Linear{W: weight(s, out, in)} }
	a := Attention{
		Q: linear(heads*d, width), K: linear(heads*d, width), V: linear(heads*d, width), O: linear(width, heads*d),
		Mechanism: headwise.New(averaging{}), H: heads, Hkv: heads, D: d,
	}
	x, dy, dx := matrix(s, 6, width), matrix(s, 6, width), matrix(s, 6, width)
	var trace AttentionTrace
	f := func() float64 {
		y := tensor.NewMat(6, width)
		if err := a.Forward(y, y, x, Scope{B: 2}, &trace, true); err != nil {
			t.Fatal(err)
		}
		return sumOf(y, dy) + weighs*trace.Aux()
	}
	f()
	if err := a.Backward(dx, dy, x, &trace, &Scratch{Aux: weighs}); err != nil {
		t.Fatal(err)
	}
	for i := range x.Rows {
		if r := check.ErrorRatio(dx.Row(i), check.NumericGradient(f, x.Row(i)), 1e-8); r > 1 {
			t.Errorf("dx errs by %.3g limits", r)
		}
	}
	want := check.NumericGradient(f, a.Q.W.Data)
	for j := range want {
		want[j]++ // what was there before
	}
	if r := check.ErrorRatio(a.Q.W.Grad, want, 1e-8); r > 1 {
		t.Errorf("the gradient of the queries' weights errs by %.3g limits", r)
	}
}
