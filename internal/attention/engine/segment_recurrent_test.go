package engine

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/tensor"
)

// statesOf returns n empty states for the sequences of c.
func statesOf(t *testing.T, e attention.Mechanism, c *attention.Call, n int, carry attention.Carry) []attention.State {
	t.Helper()
	s := c.Shape()
	s.B, s.Carry = len(c.Sequences()), carry
	var list []attention.State
	for range n {
		st, err := e.NewState(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, st)
	}
	return list
}

// inSegments runs successive calls forward and then backward, the last first. It
// returns the gradients of each call.
func inSegments(t *testing.T, e attention.Mechanism, calls []*attention.Call, do []tensor.Heads, carry attention.Carry) (out []tensor.Heads, keep []*attention.Saved, grads []*attention.Grads) {
	t.Helper()
	states := statesOf(t, e, calls[0], len(calls), carry)
	out, keep, grads = make([]tensor.Heads, len(calls)), make([]*attention.Saved, len(calls)), make([]*attention.Grads, len(calls))
	for i, c := range calls {
		if i > 0 {
			c.Init = states[i-1]
		}
		c.Final, keep[i] = states[i], new(attention.Saved)
		out[i] = calltest.Poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D)
		if err := e.Forward(out[i], c, keep[i]); err != nil {
			t.Fatal(err)
		}
	}
	var after *attention.StateGrad
	for i := len(calls) - 1; i >= 0; i-- {
		c := calls[i]
		g := &attention.Grads{
			DQ: calltest.Poisoned(c.Q.B, c.Q.H, c.Q.N, c.Q.D), DK: calltest.Poisoned(c.K.B, c.K.H, c.K.N, c.K.D),
			DV: calltest.Poisoned(c.V.B, c.V.H, c.V.N, c.V.D), DFinal: after,
		}
		if c.HasDecay() {
			g.DLogG = calltest.Poisoned(c.K.B, c.K.H, c.K.N, 1)
		}
		if after = nil; i > 0 {
			after = new(attention.StateGrad)
			g.DInit = after
		}
		if err := e.Backward(g, do[i], out[i], c, keep[i]); err != nil {
			t.Fatal(err)
		}
		grads[i] = g
	}
	return out, keep, grads
}

// fill copies heads from to the tokens of to from n0 on.
func fill(to tensor.Heads, n0 int, from tensor.Heads) {
	for b := range from.B {
		for h := range from.H {
			for n := range from.N {
				copy(to.Head(b, h).Row(n0+n), from.Head(b, h).Row(n))
			}
		}
	}
}

// allKinds are mechanisms of every kind of state.
func allKinds() map[string]*oracle.Mechanism {
	all := polynomials()
	all["softmax"] = calltest.Textbook["softmax"]
	return all
}

// segmentForm is the form whose bits segments have, and its limits.
func segmentForm(e attention.Mechanism, d, chunk int) (attention.Form, check.Limits) {
	if e.Traits().Linear {
		return attention.Linear, linearLimits(e, d, chunk)
	}
	return attention.Direct, check.SoftmaxLimits[float]()
}

// A causal sequence in segments is the sequence: the same bits forward, where
// chunks are the same, and the same gradients. It leaves the state that feeding
// leaves.
func TestSegmentsAreOneSequence(t *testing.T) {
	const n, d, dv = 131, 5, 3
	r := rand.New(rand.NewPCG(17, 18))
	oc := &oracle.Call{
		Q: calltest.Normal(r, 2, 6, n, d), K: calltest.Normal(r, 2, 2, n, d), V: calltest.Normal(r, 2, 2, n, dv),
		KeyMask: calltest.Flags(r, 2*n), Causal: true, Theta: 100,
	}
	clear(oc.KeyMask[:2])
	do := calltest.Normal(r, 2, 6, n, dv)
	faded, middle := *oc, *oc
	calltest.Fade(r, &faded)
	for h := range 4 {
		faded.LogG.Head(h/2, h%2).Row(n - 1)[0] = -1
	}
	calltest.Fade(r, &middle) // calls before and after it have no decay
	for h := range 4 {
		g := middle.LogG.Head(h/2, h%2)
		clear(g.Slice(0, 20).Data[:20])
		clear(g.Slice(100, n).Data[:n-100])
	}
	for name, m := range allKinds() {
		m = sixHeads(m)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := []*oracle.Call{oc, &faded, &middle}
			if !suite.IsLong() && name != "softmax" && name != "fastmax2" && name != "linear" {
				calls = calls[:2]
			}
			for _, oc := range calls {
				if m.OutputNorm && oc.LogG.D > 0 {
					continue // refused: see TestOutputNormRefusesDecay
				}
				want, grads := m.Forward(oc), m.Backward(oc, do)
				for _, carry := range []attention.Carry{attention.Rounded, attention.Compensated} {
					if carry == attention.Compensated && oc.LogG.D == 0 && !suite.IsLong() {
						continue // with decay more is carried
					}
					segmentsAgainst(t, name, m, oc, do, want, grads, carry)
				}
			}
		})
	}
}

func segmentsAgainst(t *testing.T, name string, m *oracle.Mechanism, oc *oracle.Call, do oracle.Heads, want *oracle.Result, grads *oracle.Grads, carry attention.Carry) {
	t.Helper()
	const chunk = 16
	n := oc.Q.N
	e, c := mechanismOf(t, name, m), calltest.NewCall(oc)
	c.Chunk = chunk
	form, l := segmentForm(e, c.Q.D, chunk)
	whole, wholeKeep := calltest.Forward(t, e, c, form)
	c.Form = attention.Auto
	for _, cuts := range [][]int{{n}, {64, n}, {3, 20, 21, 64, 100, 128, n}} {
		var calls []*attention.Call
		var dos []tensor.Heads
		mixed := false // some calls add up in another order, without decay
		for i, j0 := 0, 0; i < len(cuts); j0, i = cuts[i], i+1 {
			calls = append(calls, tokens(c, j0, cuts[i]))
			if g := &calls[i].LogG; g.D > 0 && (cuts[i] <= 20 || j0 >= 100) && oc.LogG.Head(0, 0).Row(n - 1)[0] == 0 {
				*g, mixed = tensor.Heads{}, true // it is 0
			}
			dos = append(dos, calltest.Convert(do).Tokens(j0, cuts[i]))
		}
		if tau := e.(*Engine).Spec.Tau; tau != nil {
			clear(tau.Grad)
		}
		outs, keeps, gs := inSegments(t, e, calls, dos, carry)
		out := calltest.Poisoned(2, 6, n, c.V.D)
		g := &attention.Grads{DQ: calltest.Poisoned(2, 6, n, c.Q.D), DK: calltest.Poisoned(2, 2, n, c.Q.D), DV: calltest.Poisoned(2, 2, n, c.V.D)}
		if c.HasDecay() {
			g.DLogG = calltest.Convert(grads.DLogG) // of calls without
		}
		keep := new(attention.Saved)
		for i, j0 := 0, 0; i < len(cuts); j0, i = cuts[i], i+1 {
			fill(out, j0, outs[i])
			fill(g.DLogG, j0, gs[i].DLogG)
			fill(g.DQ, j0, gs[i].DQ)
			fill(g.DK, j0, gs[i].DK)
			fill(g.DV, j0, gs[i].DV)
			keep.UnseenCount += keeps[i].UnseenCount
			keep.WeakCount += keeps[i].WeakCount
		}
		if keep.WeakCount != wholeKeep.WeakCount {
			t.Errorf("%s, cut at %v: %d weak rows, one call has %d", name, cuts, keep.WeakCount, wholeKeep.WeakCount)
		}
		if carry == attention.Rounded && !mixed && !slices.Equal(out.Data, whole.Data) {
			t.Errorf("%s, cut at %v: outputs have other bits than one call", name, cuts)
		}
		calltest.Judge(t, l, m, oc, want, out, keep)
		var dtau []float
		if tau := e.(*Engine).Spec.Tau; tau != nil {
			dtau = tau.Grad
		}
		calltest.JudgeGrads(t, l, oc, do, want, grads, g, dtau)
		fed := statesOf(t, e, c, 1, carry)[0]
		if err := fed.Absorb(c); err != nil {
			t.Fatal(err)
		}
		a, err := fed.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := calls[len(calls)-1].Final.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a, b) {
			t.Errorf("%s, cut at %v: the last state is not that of feeding", name, cuts)
		}
	}
}

// Keys of every kind of call may be given in a state: all the calltest.Textbook knows of
// lengths, masks, groups and packed sequences, unmasked and causal, holds for a
// call that follows keys.
func TestSegmentsAfterKeys(t *testing.T) {
	stored := map[string]bool{} // kinds of keys that states of causal calls have
	for what, c := range calltest.Problems() {
		if c.AttnKeep != nil || !c.Causal && c.Theta != 0 {
			continue
		}
		first, _, lead, ok := split(calltest.NewCall(c))
		if !ok {
			continue
		}
		if c.Causal && slices.Max(lead) > 0 {
			stored["mask"] = stored["mask"] || slices.Contains(first.KeyMask, false)
			stored["lengths"] = stored["lengths"] || c.KeyLens != nil
			stored["packed"] = stored["packed"] || c.CuK != nil
		}
		for name, m := range allKinds() {
			if m.OutputNorm && c.LogG.D > 0 || !calltest.IsTried(name, c) {
				continue // the former is refused: see TestOutputNormRefusesDecay
			}
			if name == "fastmax2" && c.Q.N*c.K.N >= 4096 && !suite.IsLong() {
				continue // softmax and linear have other states
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				want := m.Forward(c)
				do := calltest.Normal(rand.New(rand.NewPCG(3, 4)), c.Q.B, c.Q.H, c.Q.N, c.V.D)
				grads := m.Backward(c, do)
				afterKeys(t, name, m, c, do, want, grads)
			})
		}
	}
	for _, kind := range []string{"mask", "lengths", "packed"} {
		if !stored[kind] {
			t.Errorf("no causal call has keys in the state that are of kind %s", kind)
		}
	}
}

func afterKeys(t *testing.T, name string, m *oracle.Mechanism, oc *oracle.Call, do oracle.Heads, want *oracle.Result, grads *oracle.Grads) {
	const chunk = 3
	e, c := mechanismOf(t, name, m), calltest.NewCall(oc)
	if tau := e.(*Engine).Spec.Tau; tau != nil {
		clear(tau.Grad)
	}
	first, second, lead, _ := split(c)
	first.Chunk, second.Chunk = chunk, chunk
	calls := []*attention.Call{first, second}
	outs, keeps, gs := inSegments(t, e, calls, []tensor.Heads{calltest.Poisoned(c.Q.B, c.Q.H, 0, c.V.D), calltest.Convert(do)}, attention.Rounded)
	g := &attention.Grads{DQ: gs[1].DQ, DK: tensor.NewHeads(c.K.B, c.K.H, c.K.N, c.K.D), DV: tensor.NewHeads(c.V.B, c.V.H, c.V.N, c.V.D)}
	if c.HasDecay() {
		g.DLogG = tensor.NewHeads(c.K.B, c.K.H, c.K.N, 1)
	}
	from := [2]int{}
	for s, q := range c.Sequences() {
		if c.CuK == nil {
			from = [2]int{}
		}
		for part, n := range [2]int{lead[s], q.Keys - lead[s]} {
			for h := range c.K.H {
				for j := range n {
					at := q.K0 + j + part*lead[s]
					copy(g.DK.Head(q.Batch, h).Row(at), gs[part].DK.Head(q.Batch, h).Row(from[part]+j))
					copy(g.DV.Head(q.Batch, h).Row(at), gs[part].DV.Head(q.Batch, h).Row(from[part]+j))
					if c.HasDecay() {
						copy(g.DLogG.Head(q.Batch, h).Row(at), gs[part].DLogG.Head(q.Batch, h).Row(from[part]+j))
					}
				}
			}
			from[part] += n
		}
	}
	_, l := segmentForm(e, c.Q.D, chunk)
	calltest.Judge(t, l, m, oc, want, outs[1], keeps[1])
	var dtau []float
	if tau := e.(*Engine).Spec.Tau; tau != nil {
		dtau = tau.Grad
	}
	calltest.JudgeGrads(t, l, oc, do, want, grads, g, dtau)
}

// split returns c as the first of its keys, lead of each sequence and without
// queries, and a call that follows them. Not every causal call has keys to
// spare.
func split(c *attention.Call) (first, second *attention.Call, lead []int, ok bool) {
	a, b := *c, *c
	first, second = &a, &b
	seqs := c.Sequences()
	pick := func(x tensor.Heads, part int) tensor.Heads {
		var rows []tensor.Mat // of each batch row and head
		for b := range x.B {
			for h := range x.H {
				y := tensor.NewMat(0, x.D)
				for s, q := range seqs {
					if q.Batch != b {
						continue
					}
					j0, j1 := q.K0, q.K0+lead[s]
					if part == 1 {
						j0, j1 = j1, q.K0+q.Keys
					}
					for j := j0; j < j1; j++ {
						y.Data, y.Rows = append(y.Data, x.Head(b, h).Row(j)...), y.Rows+1
					}
				}
				rows = append(rows, y)
			}
		}
		z := tensor.NewHeads(x.B, x.H, rows[0].Rows, x.D)
		for i, y := range rows {
			copy(z.Data[i*y.Rows*x.D:], y.Data)
		}
		return z
	}
	for _, q := range seqs {
		n := q.Keys / 2
		if c.Causal {
			n = min(n, q.Keys-q.N)
		}
		if n < 0 {
			return nil, nil, nil, false
		}
		lead = append(lead, n)
	}
	a.K, a.V, b.K, b.V = pick(c.K, 0), pick(c.V, 0), pick(c.K, 1), pick(c.V, 1)
	if c.HasDecay() {
		a.LogG, b.LogG = pick(c.LogG, 0), pick(c.LogG, 1)
	}
	a.Q = tensor.NewHeads(c.Q.B, c.Q.H, 0, c.Q.D)
	if c.KeyMask != nil {
		a.KeyMask, b.KeyMask = []bool{}, []bool{}
		for s, q := range seqs {
			mask := c.KeyMask[q.Batch*c.K.N+q.K0:][:q.Keys]
			a.KeyMask = append(a.KeyMask, mask[:lead[s]]...)
			b.KeyMask = append(b.KeyMask, mask[lead[s]:]...)
		}
	}
	if c.KeyLens != nil {
		a.KeyLens, b.KeyLens = nil, nil
		for s, n := range c.KeyLens {
			a.KeyLens = append(a.KeyLens, min(n, int64(lead[s])))
			b.KeyLens = append(b.KeyLens, max(n-int64(lead[s]), 0))
		}
	}
	if c.CuK != nil {
		a.CuQ, a.CuK, b.CuK = make([]int64, len(c.CuQ)), []int64{0}, []int64{0}
		for s, q := range seqs {
			a.CuK = append(a.CuK, a.CuK[s]+int64(lead[s]))
			b.CuK = append(b.CuK, b.CuK[s]+int64(q.Keys-lead[s]))
		}
		if c.Rope != nil {
			for s := range lead {
				if lead[s] != lead[0] {
					return nil, nil, nil, false // a table for each would be needed
				}
			}
		}
	}
	if c.Rope != nil {
		b.Rope = c.Rope.Slice(lead[0])
	}
	return first, second, lead, true
}

func TestSegmentsRefuse(t *testing.T) {
	c := stateCall(6, 4, 3, 16)
	e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
	state := func(change func(s *attention.Shape)) attention.State {
		s := c.Shape()
		change(&s)
		st, err := e.NewState(s)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	same := func(*attention.Shape) {}
	_, soft := softmaxState(t, c)
	for _, x := range []struct {
		want   string
		change func(c *attention.Call, g *attention.Grads)
	}{
		{"form: direct needs every key", func(c *attention.Call, _ *attention.Grads) { c.Form = attention.Direct }},
		{"form: step keeps nothing", func(c *attention.Call, _ *attention.Grads) { c.Form = attention.Step }},
		{"attn_keep: not defined", func(c *attention.Call, _ *attention.Grads) { c.AttnKeep = make([]bool, 36) }},
		{"init: kind of state is *engine.keyCache, fastmax2 has *engine.RecurrentState", func(c *attention.Call, _ *attention.Grads) { c.Init = soft }},
		{"init: B is 1, needs 2", func(c *attention.Call, _ *attention.Grads) {
			c.Init = state(func(s *attention.Shape) { s.B = 1 })
		}},
		{"init: D is 5, needs 4", func(c *attention.Call, _ *attention.Grads) {
			c.Init = state(func(s *attention.Shape) { s.D = 5 })
		}},
		{"init: chunk is 8, needs 16", func(c *attention.Call, _ *attention.Grads) {
			c.Init = state(func(s *attention.Shape) { s.Chunk = 8 })
		}},
		{"final: carry is compensated, needs rounded", func(c *attention.Call, _ *attention.Grads) {
			c.Final = state(func(s *attention.Shape) { s.Carry = attention.Compensated })
		}},
		{"final: is the initial state itself", func(c *attention.Call, _ *attention.Grads) { c.Final = c.Init }},
		{"init: a causal sequence has 6 queries and only 5 keys", func(c *attention.Call, _ *attention.Grads) {
			c.K, c.V, c.KeyMask, c.Rope = c.K.Tokens(0, 5), c.V.Tokens(0, 5), nil, nil
		}},
		{"dinit: the call has no initial state", func(c *attention.Call, g *attention.Grads) {
			c.Init, g.DInit = nil, new(attention.StateGrad)
		}},
		{"dfinal: the call has no final state", func(c *attention.Call, g *attention.Grads) {
			c.Final, g.DFinal = nil, new(attention.StateGrad)
		}},
		{"d_log_g: the call has no log_g", func(c *attention.Call, g *attention.Grads) {
			g.DLogG = calltest.Poisoned(2, 2, 6, 1)
		}},
		{"dfinal: is of a state of shape", func(c *attention.Call, g *attention.Grads) {
			g.DFinal = new(attention.StateGrad)
		}},
	} {
		call := *c
		call.Init, call.Final = state(same), state(same)
		g := &attention.Grads{DQ: calltest.Poisoned(2, 6, 6, 4), DK: calltest.Poisoned(2, 2, 6, 4), DV: calltest.Poisoned(2, 2, 6, 3)}
		x.change(&call, g)
		g.DK.N, g.DV.N = call.K.N, call.K.N
		var keep attention.Saved
		out := calltest.Poisoned(2, 6, 6, 3)
		err := e.Forward(out, &call, &keep)
		if err == nil {
			err = e.Backward(g, out, out, &call, &keep)
		}
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error %v, want one that says %q", err, x.want)
		}
	}
}

// A state may be extended in place where no gradient is wanted, in any form.
func TestSegmentInPlace(t *testing.T) {
	const n = 150
	c := stateCall(n, 4, 3, 16)
	for _, name := range []string{"fastmax2", "softmax"} {
		e := mechanismOf(t, name, calltest.Textbook[name])
		states := statesOf(t, e, c, 2, attention.Rounded)
		fed, run := states[0], states[1]
		want, got := calltest.Poisoned(2, 6, n, 3), calltest.Poisoned(2, 6, n, 3)
		steps(t, fed, want, c, 0, 20, n)
		for _, cut := range [][2]int{{0, 20}, {20, 23}, {23, n}} {
			p := tokens(c, cut[0], cut[1])
			p.Init, p.Final, p.Form = run, run, attention.Step
			if err := e.Forward(got.Tokens(cut[0], cut[1]), p, nil); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got.Data, want.Data) {
			t.Errorf("%s: a state that is extended in place gives other bits than steps", name)
		}
		sameState(t, name+" in place", run, fed)
	}
}
