//go:build float64

package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// A feature map that widens rows is the same as rows mapped beforehand.
func TestLinearFeatureMapThatWidens(t *testing.T) {
	const n, d, dv = 40, 3, 5
	r := rand.New(rand.NewPCG(16, 17))
	widen := func(x tensor.Heads) tensor.Heads {
		y := tensor.NewHeads(x.B, x.H, x.N, 2*x.D)
		for i := range x.N {
			squares{}.Map(y.Head(0, 0).Row(i), x.Head(0, 0).Row(i))
		}
		return y
	}
	for _, causal := range []bool{false, true} {
		c := &oracle.Call{Q: calltest.Normal(r, 1, 1, n, d), K: calltest.Normal(r, 1, 1, n, d), V: calltest.Normal(r, 1, 1, n, dv), Causal: causal}
		do := calltest.Normal(r, 1, 1, n, dv)
		mapped := *c
		mapped.Q, mapped.K = widen(c.Q), widen(c.K)
		m := &oracle.Mechanism{Scale: 1, Coef: []float64{3, 1, 0.5}}
		want, grads := m.Forward(&mapped), m.Backward(&mapped, do)
		dq, dk := tensor.NewHeads(1, 1, n, d), tensor.NewHeads(1, 1, n, d)
		for i := range n {
			squares{}.Grad(dq.Head(0, 0).Row(i), grads.DQ.Head(0, 0).Row(i), c.Q.Head(0, 0).Row(i))
			squares{}.Grad(dk.Head(0, 0).Row(i), grads.DK.Head(0, 0).Row(i), c.K.Head(0, 0).Row(i))
		}
		grads.DQ, grads.DK = dq, dk

		e := mustNew(t, attention.Spec{Name: "squares", Scale: 1, Map: squares{}, Coef: m.Coef})
		call := calltest.NewCall(c)
		call.Chunk = 16
		out, keep := calltest.Forward(t, e, call, attention.Linear)
		calltest.Judge(t, linearLimits(e, d, 16), m, c, want, out, keep)
		g, _ := calltest.Backward(t, e, call, do, out, keep)
		calltest.JudgeGrads(t, linearLimits(e, d, 16), c, do, want, grads, g, nil)
	}
}

// Gradients are those that central differences of Forward show.
func TestLinearGradientsAreDerivatives(t *testing.T) {
	all := calltest.Problems()
	for _, what := range []string{"groups", "causal mask", "packed causal rope"} {
		for _, name := range []string{"taylorshift", "fastmax3", "square"} {
			c := calltest.NewCall(all[what])
			c.Chunk = 4
			e := mechanismOf(t, name, polynomials()[name])
			do := calltest.Normal(rand.New(rand.NewPCG(5, 6)), c.Q.B, c.Q.H, c.Q.N, c.V.D)
			out, keep := calltest.Forward(t, e, c, attention.Linear)
			g, dtau := calltest.Backward(t, e, c, do, out, keep)
			loss := func() float64 {
				var s float64
				out, _ := calltest.Forward(t, e, c, attention.Linear)
				for i, o := range out.Data {
					s += o * do.Data[i]
				}
				return s
			}
			parts := []struct {
				name   string
				got, x []float64
			}{{"dq", g.DQ.Data, c.Q.Data}, {"dk", g.DK.Data, c.K.Data}, {"dv", g.DV.Data, c.V.Data}}
			if tau := e.(*Engine).Spec.Tau; tau != nil {
				parts = append(parts, struct {
					name   string
					got, x []float64
				}{"dtau", dtau, tau.Data})
			}
			for _, x := range parts {
				want := check.NumericGradient(loss, x.x)
				if ratio := check.ErrorRatio(x.got, want, 1e-7*max(1, check.MaxAbs(want))); ratio > 1 {
					t.Errorf("%s, %s: %s is wrong, %.3g of the limit", name, what, x.name, ratio)
				}
			}
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for want, s := range map[string]attention.Spec{
		"x: needs one of Exp, Similarity and Coef":  {Name: "x"},
		"y: needs one of Exp, Similarity and Coef":  {Name: "y", Exp: true, Coef: []float64{1, 1}},
		"constant: a constant is no kernel":         {Name: "constant", Coef: []float64{1}},
		"short: the highest of 3 coefficients is 0": {Name: "short", Coef: []float64{1, 1, 0}},
	} {
		if _, err := newMechanism(s); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
