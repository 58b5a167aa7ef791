package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// statesOf returns n empty states for the sequences of c.
func statesOf[T tensor.Float](t *testing.T, e attention.Mechanism[T], c *attention.Call[T], n int, carry attention.Carry) []attention.State[T] {
	t.Helper()
	s := c.Shape()
	s.B, s.Carry = len(c.Sequences()), carry
	var list []attention.State[T]
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
func inSegments[T tensor.Float](t *testing.T, e attention.Mechanism[T], calls []*attention.Call[T], do []tensor.Heads[T], carry attention.Carry) (out []tensor.Heads[T], keep []*attention.Saved[T], grads []*attention.Grads[T]) {
	t.Helper()
	states := statesOf(t, e, calls[0], len(calls), carry)
	out, keep, grads = make([]tensor.Heads[T], len(calls)), make([]*attention.Saved[T], len(calls)), make([]*attention.Grads[T], len(calls))
	for i, c := range calls {
		if i > 0 {
			c.Init = states[i-1]
		}
		c.Final, keep[i] = states[i], new(attention.Saved[T])
		out[i] = calltest.Poisoned[T](c.Q.B, c.Q.H, c.Q.N, c.V.D)
		if err := e.Forward(out[i], c, keep[i]); err != nil {
			t.Fatal(err)
		}
	}
	var after *attention.StateGrad[T]
	for i := len(calls) - 1; i >= 0; i-- {
		c := calls[i]
		g := &attention.Grads[T]{
			DQ: calltest.Poisoned[T](c.Q.B, c.Q.H, c.Q.N, c.Q.D), DK: calltest.Poisoned[T](c.K.B, c.K.H, c.K.N, c.K.D),
			DV: calltest.Poisoned[T](c.V.B, c.V.H, c.V.N, c.V.D), DFinal: after,
		}
		if c.HasDecay() {
			g.DLogG = calltest.Poisoned[T](c.K.B, c.K.H, c.K.N, 1)
		}
		if after = nil; i > 0 {
			after = new(attention.StateGrad[T])
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
func fill[T tensor.Float](to tensor.Heads[T], n0 int, from tensor.Heads[T]) {
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
func segmentForm[T tensor.Float](e attention.Mechanism[T], d, chunk int) (attention.Form, check.Limits) {
	if e.Traits().Linear {
		return attention.Linear, linearLimits(e, d, chunk)
	}
	return attention.Direct, check.SoftmaxLimits[T]()
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
			for _, oc := range []*oracle.Call{oc, &faded, &middle} {
				if m.OutputNorm && oc.LogG.D > 0 {
					continue // refused: see TestOutputNormRefusesDecay
				}
				want, grads := m.Forward(oc), m.Backward(oc, do)
				for _, carry := range []attention.Carry{attention.Rounded, attention.Compensated} {
					segmentsAgainst[float32](t, name, m, oc, do, want, grads, carry)
					segmentsAgainst[float64](t, name, m, oc, do, want, grads, carry)
				}
			}
		})
	}
}

func segmentsAgainst[T tensor.Float](t *testing.T, name string, m *oracle.Mechanism, oc *oracle.Call, do tensor.Heads[float64], want *oracle.Result, grads *oracle.Grads, carry attention.Carry) {
	t.Helper()
	const chunk = 16
	n := oc.Q.N
	e, c := mechanismOf[T](t, name, m), calltest.NewCall[T](oc)
	c.Chunk = chunk
	form, l := segmentForm(e, c.Q.D, chunk)
	whole, wholeKeep := calltest.Forward(t, e, c, form)
	c.Form = attention.Auto
	for _, cuts := range [][]int{{n}, {64, n}, {3, 20, 21, 64, 100, 128, n}} {
		var calls []*attention.Call[T]
		var dos []tensor.Heads[T]
		mixed := false // some calls add up in another order, without decay
		for i, j0 := 0, 0; i < len(cuts); j0, i = cuts[i], i+1 {
			calls = append(calls, tokens(c, j0, cuts[i]))
			if g := &calls[i].LogG; g.D > 0 && (cuts[i] <= 20 || j0 >= 100) && oc.LogG.Head(0, 0).Row(n - 1)[0] == 0 {
				*g, mixed = tensor.Heads[T]{}, true // it is 0
			}
			dos = append(dos, calltest.Convert[T](do).Tokens(j0, cuts[i]))
		}
		if tau := e.(*Engine[T]).Spec.Tau; tau != nil {
			clear(tau.Grad)
		}
		outs, keeps, gs := inSegments(t, e, calls, dos, carry)
		out := calltest.Poisoned[T](2, 6, n, c.V.D)
		g := &attention.Grads[T]{DQ: calltest.Poisoned[T](2, 6, n, c.Q.D), DK: calltest.Poisoned[T](2, 2, n, c.Q.D), DV: calltest.Poisoned[T](2, 2, n, c.V.D)}
		if c.HasDecay() {
			g.DLogG = calltest.Convert[T](grads.DLogG) // of calls without
		}
		keep := new(attention.Saved[T])
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
		var dtau []T
		if tau := e.(*Engine[T]).Spec.Tau; tau != nil {
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
		first, _, lead, ok := split(calltest.NewCall[float64](c))
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
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				want := m.Forward(c)
				do := calltest.Normal(rand.New(rand.NewPCG(3, 4)), c.Q.B, c.Q.H, c.Q.N, c.V.D)
				grads := m.Backward(c, do)
				afterKeys[float64](t, name, m, c, do, want, grads)
				afterKeys[float32](t, name, m, c, do, want, grads)
			})
		}
	}
	for _, kind := range []string{"mask", "lengths", "packed"} {
		if !stored[kind] {
			t.Errorf("no causal call has keys in the state that are of kind %s", kind)
		}
	}
}

func afterKeys[T tensor.Float](t *testing.T, name string, m *oracle.Mechanism, oc *oracle.Call, do tensor.Heads[float64], want *oracle.Result, grads *oracle.Grads) {
	const chunk = 3
	e, c := mechanismOf[T](t, name, m), calltest.NewCall[T](oc)
	if tau := e.(*Engine[T]).Spec.Tau; tau != nil {
		clear(tau.Grad)
	}
	first, second, lead, _ := split(c)
	first.Chunk, second.Chunk = chunk, chunk
	calls := []*attention.Call[T]{first, second}
	outs, keeps, gs := inSegments(t, e, calls, []tensor.Heads[T]{calltest.Poisoned[T](c.Q.B, c.Q.H, 0, c.V.D), calltest.Convert[T](do)}, attention.Rounded)
	g := &attention.Grads[T]{DQ: gs[1].DQ, DK: tensor.NewHeads[T](c.K.B, c.K.H, c.K.N, c.K.D), DV: tensor.NewHeads[T](c.V.B, c.V.H, c.V.N, c.V.D)}
	if c.HasDecay() {
		g.DLogG = tensor.NewHeads[T](c.K.B, c.K.H, c.K.N, 1)
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
	var dtau []T
	if tau := e.(*Engine[T]).Spec.Tau; tau != nil {
		dtau = tau.Grad
	}
	calltest.JudgeGrads(t, l, oc, do, want, grads, g, dtau)
}

// split returns c as the first of its keys, lead of each sequence and without
// queries, and a call that follows them. Not every causal call has keys to
// spare.
func split[T tensor.Float](c *attention.Call[T]) (first, second *attention.Call[T], lead []int, ok bool) {
	a, b := *c, *c
	first, second = &a, &b
	seqs := c.Sequences()
	pick := func(x tensor.Heads[T], part int) tensor.Heads[T] {
		var rows []tensor.Mat[T] // of each batch row and head
		for b := range x.B {
			for h := range x.H {
				y := tensor.NewMat[T](0, x.D)
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
		z := tensor.NewHeads[T](x.B, x.H, rows[0].Rows, x.D)
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
	a.Q = tensor.NewHeads[T](c.Q.B, c.Q.H, 0, c.Q.D)
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

// The gradient of a state is the derivative by what it holds.
func TestStateGradientsAreDerivatives(t *testing.T) {
	const n, d, dv, chunk = 9, 4, 3, 5
	r := rand.New(rand.NewPCG(5, 6))
	for name, m := range polynomials() {
		for _, causal := range []bool{false, true} {
			e := mechanismOf[float64](t, name, m)
			c := calltest.NewCall[float64](&oracle.Call{Q: calltest.Normal(r, 1, 4, n, d), K: calltest.Normal(r, 1, 2, n, d), V: calltest.Normal(r, 1, 2, n, dv), Causal: causal})
			lead := calltest.NewCall[float64](&oracle.Call{Q: calltest.Normal(r, 1, 4, 0, d), K: calltest.Normal(r, 1, 2, 13, d), V: calltest.Normal(r, 1, 2, 13, dv)})
			do, out := calltest.Convert[float64](calltest.Normal(r, 1, 4, n, dv)), tensor.NewHeads[float64](1, 4, n, dv)
			c.Chunk = chunk
			st := statesOf(t, e, c, 1, attention.Rounded)[0].(*RecurrentState[float64])
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
			var keep attention.Saved[float64]
			if err := e.Forward(out, c, &keep); err != nil {
				t.Fatal(err)
			}
			var dinit attention.StateGrad[float64]
			g := &attention.Grads[float64]{DQ: tensor.NewHeads[float64](1, 4, n, d), DK: tensor.NewHeads[float64](1, 2, n, d), DV: tensor.NewHeads[float64](1, 2, n, dv), DInit: &dinit}
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

func TestSegmentsRefuse(t *testing.T) {
	c := stateCall(6, 4, 3, 16)
	e := mechanismOf[float32](t, "fastmax2", calltest.Textbook["fastmax2"])
	state := func(change func(s *attention.Shape)) attention.State[float32] {
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
		change func(c *attention.Call[float32], g *attention.Grads[float32])
	}{
		{"form: direct needs every key", func(c *attention.Call[float32], _ *attention.Grads[float32]) { c.Form = attention.Direct }},
		{"form: step keeps nothing", func(c *attention.Call[float32], _ *attention.Grads[float32]) { c.Form = attention.Step }},
		{"attn_keep: not defined", func(c *attention.Call[float32], _ *attention.Grads[float32]) { c.AttnKeep = make([]bool, 36) }},
		{"init: kind of state is *engine.keyCache[float32], fastmax2 has *engine.RecurrentState[float32]", func(c *attention.Call[float32], _ *attention.Grads[float32]) { c.Init = soft }},
		{"init: B is 1, needs 2", func(c *attention.Call[float32], _ *attention.Grads[float32]) {
			c.Init = state(func(s *attention.Shape) { s.B = 1 })
		}},
		{"init: D is 5, needs 4", func(c *attention.Call[float32], _ *attention.Grads[float32]) {
			c.Init = state(func(s *attention.Shape) { s.D = 5 })
		}},
		{"init: chunk is 8, needs 16", func(c *attention.Call[float32], _ *attention.Grads[float32]) {
			c.Init = state(func(s *attention.Shape) { s.Chunk = 8 })
		}},
		{"final: carry is compensated, needs rounded", func(c *attention.Call[float32], _ *attention.Grads[float32]) {
			c.Final = state(func(s *attention.Shape) { s.Carry = attention.Compensated })
		}},
		{"final: is the initial state itself", func(c *attention.Call[float32], _ *attention.Grads[float32]) { c.Final = c.Init }},
		{"init: a causal sequence has 6 queries and only 5 keys", func(c *attention.Call[float32], _ *attention.Grads[float32]) {
			c.K, c.V, c.KeyMask, c.Rope = c.K.Tokens(0, 5), c.V.Tokens(0, 5), nil, nil
		}},
		{"dinit: the call has no initial state", func(c *attention.Call[float32], g *attention.Grads[float32]) {
			c.Init, g.DInit = nil, new(attention.StateGrad[float32])
		}},
		{"dfinal: the call has no final state", func(c *attention.Call[float32], g *attention.Grads[float32]) {
			c.Final, g.DFinal = nil, new(attention.StateGrad[float32])
		}},
		{"d_log_g: the call has no log_g", func(c *attention.Call[float32], g *attention.Grads[float32]) {
			g.DLogG = calltest.Poisoned[float32](2, 2, 6, 1)
		}},
		{"dfinal: is of a state of shape", func(c *attention.Call[float32], g *attention.Grads[float32]) {
			g.DFinal = new(attention.StateGrad[float32])
		}},
	} {
		call := *c
		call.Init, call.Final = state(same), state(same)
		g := &attention.Grads[float32]{DQ: calltest.Poisoned[float32](2, 6, 6, 4), DK: calltest.Poisoned[float32](2, 2, 6, 4), DV: calltest.Poisoned[float32](2, 2, 6, 3)}
		x.change(&call, g)
		g.DK.N, g.DV.N = call.K.N, call.K.N
		var keep attention.Saved[float32]
		out := calltest.Poisoned[float32](2, 6, 6, 3)
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
		e := mechanismOf[float32](t, name, calltest.Textbook[name])
		states := statesOf(t, e, c, 2, attention.Rounded)
		fed, run := states[0], states[1]
		want, got := calltest.Poisoned[float32](2, 6, n, 3), calltest.Poisoned[float32](2, 6, n, 3)
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
