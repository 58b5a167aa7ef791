//go:build float64

package engine

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// The gradient of a state is the derivative by what it holds.
func TestStateGradientsAreDerivatives(t *testing.T) {
	const n, d, dv, chunk = 9, 4, 3, 5
	r := rand.New(rand.NewPCG(5, 6))
	for name, m := range polynomials() {
		for _, causal := range []bool{false, true} {
			e := mechanismOf(t, name, m)
			c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 4, n, d), K: calltest.Normal(r, 1, 2, n, d), V: calltest.Normal(r, 1, 2, n, dv), Causal: causal})
			lead := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 4, 0, d), K: calltest.Normal(r, 1, 2, 13, d), V: calltest.Normal(r, 1, 2, 13, dv)})
			do, out := calltest.Convert(calltest.Normal(r, 1, 4, n, dv)), tensor.NewHeads(1, 4, n, dv)
			c.Chunk = chunk
			st := statesOf(t, e, c, 1, attention.Rounded)[0].(*RecurrentState)
			if err := st.Absorb(lead); err != nil {
				t.Fatal(err)
			}
			c.Init = st
			loss := func() (sum float64) {
				if err := e.Forward(out, c, nil); err != nil {
					t.Fatal(err)
				}
				for i, y := range out.Data {
					sum += y * do.Data[i]
				}
				return sum
			}
			var keep attention.Saved
			if err := e.Forward(out, c, &keep); err != nil {
				t.Fatal(err)
			}
			var dinit attention.StateGrad
			g := &attention.Grads{DQ: tensor.NewHeads(1, 4, n, d), DK: tensor.NewHeads(1, 2, n, d), DV: tensor.NewHeads(1, 2, n, dv), DInit: &dinit}
			if err := e.Backward(g, do, out, c, &keep); err != nil {
				t.Fatal(err)
			}
			judge := func(what string, x *float64, got float64) {
				t.Helper()
				at, h := *x, 1e-4*max(1, math.Abs(*x))
				diff := func(h float64) float64 {
					*x = at + h
					up := loss()
					*x = at - h
					down := loss()
					*x = at
					return (up - down) / (2 * h)
				}
				want := (4*diff(h/2) - diff(h)) / 3
				if math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
					t.Errorf("%s, causal %t, %s: gradient is %v, the quotient of differences %v", name, causal, what, got, want)
				}
			}
			for i, s := range st.Heads {
				dh := &StateGradOf(&dinit).Heads[i]
				if s.Count != 3 || dh.Count != 3 {
					t.Fatalf("%d tokens are open, %d have gradients", s.Count, dh.Count)
				}
				for f := 0; f < s.Monomials.Count; f += 1 + s.Monomials.Count/7 {
					if f > 0 || !m.OutputNorm { // a number of keys has no gradient
						judge("z", &s.Moments.Z[f], s.Monomials.Weights[f]*dh.Moments.Z[f])
					}
					judge("s", &s.Moments.S[f*s.Moments.Stride+1], s.Monomials.Weights[f]*dh.Moments.S[f*s.Moments.Stride+1])
				}
				for j := range s.Count {
					judge("prepared key", &s.X[2*s.ColumnStride+j], dh.Keys[j*d+1])
					judge("value", &s.V[j*s.Moments.Stride+2], dh.Values[j*dv+2])
				}
			}
		}
	}
}
