package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// put copies x to the tokens of to from n0 on.
func put(to tensor.Heads, n0 int, x tensor.Heads) {
	for b := range x.B {
		for h := range x.H {
			for n := range x.N {
				copy(to.Head(b, h).Row(n0+n), x.Head(b, h).Row(n))
			}
		}
	}
}

func segments(t *testing.T, s subject) {
	for _, sh := range streams(s) {
		oc, do := sh.call(40)
		m, book := build(t, s, sh.h)
		c, doT := callIn(oc), in(do)
		want, v := book.Forward(oc), check.MaxAbs(oc.V.Data)
		var grads *oracle.Grads
		if s.whole != nil { // those of a call alone, which the textbook confirms
			a := answer("gradients", s, sh, 40, func() map[string][]float64 { return confirm(t, s, sh, book, oc, do) })
			grads = &oracle.Grads{DQ: oracle.Heads{Data: a["dq"]}, DK: oracle.Heads{Data: a["dk"]}, DV: oracle.Heads{Data: a["dv"]}}
			for _, p := range m.Params().All() {
				grads.DTau = append(grads.DTau, a["d"+p.Name]...)
			}
		} else {
			grads = book.Backward(oc, do)
		}
		stepped := output(c)
		step(t, newState(t, m), stepped, c, 0, sh.n, 1)

		cuts := []int{0, 3, 8, 9, 17, sh.n}
		got := &results{o: output(c)}
		got.g = attention.Grads{DQ: poisoned(sh.b, sh.h, sh.n, sh.d), DK: poisoned(sh.b, sh.hkv, sh.n, sh.d), DV: poisoned(sh.b, sh.hkv, sh.n, sh.dv)}
		if sh.decay > 0 {
			got.g.DLogG = poisoned(sh.b, sh.hkv, sh.n, 1)
		}
		var calls []*attention.Call
		var parts []*results
		for i, j0 := range cuts[:len(cuts)-1] {
			p := piece(c, j0, cuts[i+1])
			p.Causal, p.Final = true, newState(t, m)
			if i > 0 {
				p.Init = calls[i-1].Final
			}
			r := forward(t, m, p)
			put(got.o, j0, r.o)
			got.keep.UnseenCount += r.keep.UnseenCount
			got.keep.WeakCount += r.keep.WeakCount
			calls, parts = append(calls, p), append(parts, r)
		}
		if !sameHeads(got.o, stepped) {
			t.Errorf("%s: segments have other bits than steps", sh.name)
		}
		if got.keep.UnseenCount != int64(want.QueriesWithoutKeys) {
			t.Errorf("%s: %d queries see no key, want %d", sh.name, got.keep.UnseenCount, want.QueriesWithoutKeys)
		}
		m.Params().ZeroGrad()
		var after *attention.StateGrad
		for i := len(calls) - 1; i >= 0; i-- {
			j0, n := cuts[i], cuts[i+1]-cuts[i]
			g := attention.Grads{DQ: poisoned(sh.b, sh.h, n, sh.d), DK: poisoned(sh.b, sh.hkv, n, sh.d), DV: poisoned(sh.b, sh.hkv, n, sh.dv), DFinal: after}
			if sh.decay > 0 {
				g.DLogG = poisoned(sh.b, sh.hkv, n, 1)
			}
			if after = nil; i > 0 {
				after = new(attention.StateGrad)
				g.DInit = after
			}
			if err := m.Backward(&g, doT.Tokens(j0, j0+n), parts[i].o, calls[i], &parts[i].keep); err != nil {
				t.Fatal(err)
			}
			put(got.g.DQ, j0, g.DQ)
			put(got.g.DK, j0, g.DK)
			put(got.g.DV, j0, g.DV)
			put(got.g.DLogG, j0, g.DLogG)
		}
		for _, p := range m.Params().All() {
			got.tau = append(got.tau, p.Grad...)
		}
		if got.keep.WeakCount > 0 && check.UnitRoundoff[float]() == 0x1p-24 {
			continue // float32 promises nothing there
		}
		l := limits(s, m, &attention.Call{Q: c.Q, K: c.K, V: c.V, Chunk: 4, Form: attention.Step})
		size := check.MaxAbs(do.Data) * v
		if s.whole != nil {
			size *= check.Pick(2.0, 1) // in float32 both sides err
		}
		got.holdGradients(t, sh.name+", in segments", l, sh, want, grads, size)
	}
}

// holdGradients reports gradients beyond the limits. size is max|do|·max|v|.
func (r *results) holdGradients(t *testing.T, name string, l check.Limits, sh shape, want *oracle.Result, grads *oracle.Grads, size float64) {
	t.Helper()
	cond := max(1, check.MaxAbs(want.Cond))
	for _, x := range []struct {
		name string
		got  []float
		want []float64
		sum  int
	}{
		{"dq", r.g.DQ.Data, grads.DQ.Data, 1}, {"dk", r.g.DK.Data, grads.DK.Data, 1}, {"dv", r.g.DV.Data, grads.DV.Data, 1},
		{"parameters", r.tau, parameters(grads), sh.n * sh.b}, {"dlog_g", r.g.DLogG.Data, grads.DLogG.Data, sh.n},
	} {
		limit := l.Gradient(cond, max(check.MaxAbs(x.want), size)) * float64(x.sum)
		if e := check.ErrorRatio(x.got, x.want, limit); e > 1 {
			t.Errorf("%s: %s is off by %.3g limits", name, x.name, e)
		}
	}
}
