//go:build float64

package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// The log-decay of a masked token that ends the second of two merged caches is still to
// come, for eps as for the keys.
func TestMergedCacheKeepsWhatWaits(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	book := &oracle.Call{Q: calltest.Normal(r, 1, 1, 4, 3), K: calltest.Normal(r, 1, 1, 4, 3), V: calltest.Normal(r, 1, 1, 4, 2), KeyMask: []bool{true, true, true, false}, Causal: true}
	book.LogG = tensor.HeadsOf([]float64{-1, -1, -1, -5}, 1, 1, 4, 1)
	c := calltest.NewCall(book)
	e := mustNew(t, attention.Spec{Name: "square", Similarity: similarityOf(func(x float64) float64 { return 1 + x*x }, func(x float64) float64 { return 2 * x }), Positive: true, Eps: 0.5})
	whole, a, b := mustState(t, e, c), mustState(t, e, c), mustState(t, e, c)
	for st, cut := range map[attention.State][2]int{whole: {0, 4}, a: {0, 2}, b: {2, 4}} {
		if err := st.Absorb(tokens(c, cut[0], cut[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Merge(b); err != nil {
		t.Fatal(err)
	}
	query := &attention.Call{Q: c.Q.Tokens(3, 4)}
	got, want := tensor.NewHeads(1, 1, 1, 2), tensor.NewHeads(1, 1, 1, 2)
	if err := errors.Join(a.Read(got, query), whole.Read(want, query)); err != nil {
		t.Fatal(err)
	}
	if ratio := check.ErrorRatio(got.Data, want.Data, 1e-14); ratio > 1 {
		t.Errorf("merged %v, in one stream %v", got.Data, want.Data)
	}
}

// Gradients are those that central differences of Forward show.
func TestDecayGradientsAreDerivatives(t *testing.T) {
	all := calltest.Problems()
	for _, what := range []string{"causal mask, decay", "packed causal rope, decay", "causal, more keys, decay", "causal pairs and mask, decay"} {
		for _, name := range []string{"taylorshift", "softmax", "square"} {
			m := polynomials()[name]
			if m == nil {
				m = calltest.Textbook[name]
			}
			for _, form := range []attention.Form{attention.Direct, attention.Linear} {
				c := calltest.NewCall(all[what])
				if form == attention.Linear && (m.Exp || c.AttnKeep != nil) {
					continue
				}
				// Differences reach to both sides of 0.
				for i, x := range c.LogG.Data {
					c.LogG.Data[i] = max(x, -3) - 0.1
				}
				c.Chunk = 4
				e := mechanismOf(t, name, m)
				do := calltest.Normal(rand.New(rand.NewPCG(5, 6)), c.Q.B, c.Q.H, c.Q.N, c.V.D)
				out, keep := calltest.Forward(t, e, c, form)
				g, _ := calltest.Backward(t, e, c, do, out, keep)
				want := check.NumericGradient(func() float64 {
					var s float64
					out, _ := calltest.Forward(t, e, c, form)
					for i, o := range out.Data {
						s += o * do.Data[i]
					}
					return s
				}, c.LogG.Data)
				if ratio := check.ErrorRatio(g.DLogG.Data, want, 1e-7*max(1, check.MaxAbs(want))); ratio > 1 {
					t.Errorf("%s, %s, %v: dlog_g is %v, want %v", name, what, form, g.DLogG.Data, want)
				}
			}
		}
	}
}

// Queries that are not causal read a state with decay as State.Read does. Their
// gradient through the state's sums equals the difference quotient.
func TestDecayBeforeUnmaskedCalls(t *testing.T) {
	const n, chunk = 9, 4
	r := rand.New(rand.NewPCG(8, 9))
	for name, m := range all() {
		if m.Tau != nil {
			continue
		}
		e := mechanismOf(t, name, m)
		before := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 4, 0, 5), K: calltest.Normal(r, 1, 2, n, 5), V: calltest.Normal(r, 1, 2, n, 3), Causal: true})
		before.LogG = tensor.NewHeads(1, 2, n, 1)
		for i := range before.LogG.Data {
			before.LogG.Data[i] = -0.05 - 0.4*r.Float64()
		}
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 4, 6, 5), K: calltest.Normal(r, 1, 2, 2, 5), V: calltest.Normal(r, 1, 2, 2, 3)})
		do, out := calltest.Normal(r, 1, 4, 6, 3), tensor.NewHeads(1, 4, 6, 3)
		before.Chunk, c.Chunk = chunk, chunk
		st := statesOf(t, e, c, 2, attention.Rounded)
		before.Final, c.Init = st[0], st[0]
		run := func() (loss float64, keep [2]attention.Saved) {
			if err := e.Forward(tensor.NewHeads(1, 4, 0, 3), before, &keep[0]); err != nil {
				t.Fatal(err)
			}
			if err := e.Forward(out, c, &keep[1]); err != nil {
				t.Fatal(err)
			}
			for i, o := range out.Data {
				loss += o * do.Data[i]
			}
			return loss, keep
		}
		_, keep := run()
		st[1].Absorb(before)
		st[1].Absorb(c)
		read := tensor.NewHeads(1, 4, 6, 3)
		if err := st[1].Read(read, c); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(out.Data, read.Data) {
			t.Errorf("%s: the outputs are not those of reading", name)
		}
		var dinit attention.StateGrad
		heads := func(h, n, d int) tensor.Heads { return tensor.NewHeads(1, h, n, d) }
		g := &attention.Grads{DQ: heads(4, 6, 5), DK: heads(2, 2, 5), DV: heads(2, 2, 3), DInit: &dinit}
		if err := e.Backward(g, do, out, c, &keep[1]); err != nil {
			t.Fatal(err)
		}
		none := heads(4, 0, 3)
		g = &attention.Grads{DQ: heads(4, 0, 5), DK: heads(2, n, 5), DV: heads(2, n, 3), DLogG: heads(2, n, 1), DFinal: &dinit}
		if err := e.Backward(g, none, none, before, &keep[0]); err != nil {
			t.Fatal(err)
		}
		want := check.NumericGradient(func() float64 { loss, _ := run(); return loss }, before.LogG.Data)
		if ratio := check.ErrorRatio(g.DLogG.Data, want, 1e-7*max(1, check.MaxAbs(want))); ratio > 1 {
			t.Errorf("%s: dlog_g is %v, want %v", name, g.DLogG.Data, want)
		}
	}
}
