package hybrid

import (
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/engine"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// hybridSegment is a call between states of a mechanism with a window. The tail
// is a segment of its own: with one denominator its keys are those that leave the
// window, prepared already, and otherwise the call's. A call without states is two plain calls
// instead: its tail may take the direct form, which a state of sums excludes, and both parts
// read keys and values where they are.
type hybridSegment struct {
	w           *hybrid
	init, final *hybridState
	shape       attention.Shape // of both
	seqs        []engine.SequenceTask
	group       int // key heads of a sequence
	keys        int // of the longest sequence
	fades       bool
}

func (w *hybrid) segment(c *attention.Call, keep bool) (*hybridSegment, error) {
	x := &hybridSegment{w: w, seqs: engine.SequenceTasks(c), group: c.K.H, fades: engine.HasFadingKeys(c)}
	var err error
	if x.keys, err = w.tail.CheckSegment(c, x.seqs, keep); err != nil {
		return nil, err
	}
	x.init, x.final, err = engine.StatesOf(w.tail, c, x.seqs, func(s *hybridState) (*engine.Engine, *attention.Shape) { return s.w.tail, &s.shape })
	if err != nil {
		return nil, err
	}
	if x.init != nil {
		x.shape = x.init.shape
	} else {
		x.shape = x.final.shape
	}
	return x, nil
}

// tails returns the tails of the states before and after.
func (x *hybridSegment) tails() (init, final *engine.RecurrentState) {
	if x.init != nil {
		init = x.init.tail
	}
	if x.final != nil {
		final = x.final.tail
	}
	return init, final
}

// tailCall is c as a tail that sees all keys has it.
func (x *hybridSegment) tailCall(c *attention.Call) *attention.Call {
	t := *c
	t.Init, t.Final = nil, nil
	if x.init != nil {
		t.Init = x.init.tail
	}
	if x.final != nil {
		t.Final = x.final.tail
	}
	return &t
}

// windowHead is a key head of a sequence of the segment.
type windowHead struct {
	s            *engine.SequenceTask
	i, kh        int
	heads        headtask.HeadRange
	window, tail *headtask.Task   // as they see tokens
	own          [2]headtask.Task // both as they see the call's own keys
	x            recentTokens
	tokensBefore int // tokens of the window before the call
	end          int // the same with the tokens of the call
	ages         headtask.BandAges
}

// each calls f for every key head.
func (x *hybridSegment) each(c *attention.Call, f func(h *windowHead, ar *arena.Arena)) {
	w := x.w
	par.RunEach(len(x.seqs)*x.group, 3*w.joining(c)+w.Plan(c.Shape()).FLOPs, func(i int) {
		ar := arena.Acquire()
		defer ar.Release()
		h := &windowHead{s: &x.seqs[i/x.group], i: i, kh: i % x.group}
		h.window, h.tail = w.windowEngine.NewTask(c, h.s, h.kh, ar), w.tail.NewTask(c, h.s, h.kh, ar)
		defer w.windowEngine.Release(h.window)
		defer w.tail.Release(h.tail)
		h.heads = h.window.QueryHeads(h.kh)
		h.tail.FirstPosition = h.s.Offset
		h.own = [2]headtask.Task{*h.window, *h.tail}
		take := func(n int) []float { return arena.Take[float](ar, n) }
		m := h.window.M
		if x.init != nil {
			h.tokensBefore = x.init.rings[i].n
		}
		h.end = h.tokensBefore + m
		h.x = w.room(&x.shape, h.end, x.fades, take, make([]bool, h.end))
		if x.init != nil {
			r := &x.init.rings[i]
			h.x.copy(w, &x.shape, 0, &r.recentTokens, r.start, r.n)
		}
		w.enter(h.window, h.tail, &x.shape, &h.x, h.tokensBefore, m)
		w.seeAll(h.window, &x.shape, &h.x, h.end)
		h.window.Offset = h.tokensBefore + h.s.Offset
		var behind float64
		if x.init != nil && x.fades {
			if ages := x.init.tail.Heads[i].Decays; ages != nil {
				behind = ages.Pending
			}
		}
		h.ages = h.window.BandAges(behind)
		if w.oneDenominator() {
			w.seeLeft(h.tail, &x.shape, &h.x, h.end)
			h.tail.Offset = h.tokensBefore + h.s.Offset - w.window.Width
		}
		f(h, ar)
	})
}

// sums is the segment of a tail that sees what leaves the window.
func (x *hybridSegment) sums() *engine.RecurrentSegment {
	init, final := x.tails()
	return &engine.RecurrentSegment{Engine: x.w.tail, Init: init, Final: final, Shape: &x.shape, Keys: x.keys, Sequences: x.seqs, Group: x.group, Fades: x.fades}
}

func (w *hybrid) segmentForward(out tensor.Heads, c *attention.Call, saved *windowSaved, keep *attention.Saved) error {
	x, err := w.segment(c, keep != nil)
	if err != nil {
		return err
	}
	own := likeOutput(&saved.o, c)
	saved.window.Den = scratch.Grow(saved.window.Den[:0], c.Q.B*c.Q.H*c.Q.N)
	saved.sums.Resize(len(saved.window.Den))
	saved.tail.Den = scratch.Grow(saved.tail.Den[:0], len(saved.window.Den))
	if w.oneDenominator() {
		if keep != nil {
			resizeSaved(keep, c)
			saved.resize(len(keep.Den))
		}
	} else {
		// States may be one and the same: their windows are not looked at by the tail.
		if err := w.tail.Forward(out, x.tailCall(c), keep); err != nil && !attention.IsNonFinite(err) {
			return err
		}
	}
	tail := x.sums()
	x.each(c, func(h *windowHead, _ *arena.Arena) {
		near, far := h.window, h.tail
		near.O, near.Den = engine.HeadsOf(near.O, own, h.s, h.heads), engine.DenOf(near.Den, saved.window.Den, c, h.s, h.heads)
		far.O, far.Den = engine.HeadsOf(far.O, out, h.s, h.heads), engine.DenOf(far.Den, saved.tail.Den, c, h.s, h.heads)
		near.Sums, near.SavesDen = engine.SumsOf(near.Sums, &saved.sums, c, h.s, h.heads), keep != nil
		near.BandForward()
		if w.oneDenominator() {
			for g := range far.Q {
				far.ClearUnseen(g, 0, min(-far.Offset, far.N))
			}
			tail.Forward(far, h.s, h.kh)
		}
		j := &joinTask{windowTask: near, o: far.O, tail: far.Den, ages: h.ages}
		if keep != nil && w.oneDenominator() {
			before := tail.Earlier(h.i)
			for i := range h.tokensBefore {
				before.Longest = max(before.Longest, scratch.Norm2(h.x.tailRows[i*far.PreparedWidth:][:far.PreparedWidth]))
			}
			w.keepRows(j, c, h.s, h.kh, before, saved, keep)
		}
		for g := range near.Q {
			if q := h.heads.Lo + g; w.oneDenominator() {
				w.joinRows(j, g, q)
			} else {
				w.addRows(far.O[g], near.O[g], q)
			}
		}
		if x.final != nil {
			r := &x.final.rings[h.i]
			n := min(h.end, w.window.Width)
			if r.start, r.n, r.rates = 0, n, nil; x.fades {
				r.rates = make([]float, len(r.exist))
			}
			r.recentTokens.copy(w, &x.shape, 0, &h.x, h.end-n, n)
		}
	})
	if x.final != nil {
		tokens := int64(x.keys)
		if x.init != nil {
			tokens += x.init.tokens
		}
		x.final.tokens = tokens
		if w.oneDenominator() {
			x.final.tail.TokenCount = max(tokens-int64(w.window.Width), 0)
		}
	}
	if keep != nil && w.oneDenominator() {
		saved.count(c, x.seqs, keep)
	}
	return attention.ReportNonFinite(out, keep, true)
}

// checkGrads reports gradients of states that do not fit, and makes room for the
// gradient of the state before.
func (x *hybridSegment) checkGrads(g *attention.Grads) error {
	width := x.w.window.Width
	if g.DInit != nil {
		d := engine.StateGradOf(g.DInit)
		d.Resize(&x.shape)
		d.WindowGrads = scratch.Grow(d.WindowGrads[:0], len(d.Heads))
	}
	if g.DFinal == nil {
		return nil
	}
	// ends returns the tokens of the window, and those that are new to the tail.
	ends := func(i int) (last, left int) {
		m := x.seqs[i/x.group].M
		if !x.w.oneDenominator() {
			left = m
		}
		if x.init != nil {
			m += x.init.rings[i].n
		}
		if x.w.oneDenominator() {
			left = max(m-width, 0)
		}
		return min(m, width), left
	}
	open := x.sums().OpenBefore
	err := engine.StateGradOf(g.DFinal).Check(&x.shape, func(i int) int { _, left := ends(i); return (open(i) + left) % x.shape.Chunk })
	if err != nil {
		return err
	}
	return engine.StateGradOf(g.DFinal).CheckLate(func(i int) int { last, _ := ends(i); return last })
}

func (w *hybrid) segmentBackward(g *attention.Grads, dout, out tensor.Heads, c *attention.Call, keep *attention.Saved, scratch *windowScratch) error {
	x, err := w.segment(c, true)
	if err != nil {
		return err
	}
	if err := x.checkGrads(g); err != nil {
		return err
	}
	p := w.part(dout, out, c, len(x.seqs), keep, scratch)
	if !w.oneDenominator() {
		windowTask{w: w, c: c, seqs: x.seqs, gradients: p}.run()
		if err := w.tail.Backward(g, p.tailDo, p.tailO, x.tailCall(c), p.tail); err != nil {
			return err
		}
	}
	b := &hybridBackward{hybridSegment: x, splitGrads: p, c: c, g: g, tail: x.sums()}
	b.dscale = make([]float64, len(x.seqs)*c.Q.H)
	b.dq = headsIn(&scratch.dq, c.Q.B, c.Q.H, c.Q.N, c.Q.D)
	b.dk = headsIn(&scratch.dk, c.K.B, c.K.H, c.K.N, c.K.D)
	if b.ageWanted = c.HasDecay() && g.DLogG.D != 0; b.ageWanted {
		b.dlogG = headsIn(&scratch.dlogG, c.K.B, c.K.H, c.K.N, 1)
	}
	x.each(c, b.head)
	addHeads(g.DQ, b.dq)
	w.tail.AddTau(b.dscale, c)
	w.addGamma(p.dgamma, c.Q.H)
	return nil
}

// hybridBackward is Backward of a segment.
type hybridBackward struct {
	*hybridSegment
	*splitGrads
	c         *attention.Call
	g         *attention.Grads
	tail      *engine.RecurrentSegment // with one denominator
	dscale    []float64                // [sequences, H]
	ageWanted bool

	// What the window gives the call's queries and keys.
	dq, dk, dlogG tensor.Heads
}

// latelyGrad are gradients of tokens of a head: of the rows of both parts, and of the
// values.
type latelyGrad struct {
	windowRows, tailRows, v []float
	ldn, ldf, ldv           int
}

// head does a key head. Gradients of all tokens that the window sees come first:
// then those before the call go to the state, and the call's own to its keys.
func (b *hybridBackward) head(h *windowHead, ar *arena.Arena) {
	near, s, c := h.window, h.s, b.c
	joined := b.w.oneDenominator()
	if joined {
		b.w.partHeads(b.splitGrads, c, s, h.heads, h.ages)
	}
	near.O, near.DO, near.DQ = engine.HeadsOf(near.O, b.nearO, s, h.heads), engine.HeadsOf(near.DO, b.nearDo, s, h.heads), engine.HeadsOf(near.DQ, b.dq, s, h.heads)
	near.Den = engine.DenOf(near.Den, savedOf(b.keep).window.Den, c, s, h.heads)
	near.DScale = make([]float64, len(near.Q))
	ages := b.ageWanted || b.g.DInit != nil && b.fades
	if ages {
		near.DAge = arena.TakeZeros[float64](ar, h.end)
	}
	d := &latelyGrad{ldn: scratch.Stride[float](near.PreparedWidth), ldv: scratch.Stride[float](near.Dv), ldf: scratch.Stride[float](h.tail.PreparedWidth)}
	d.windowRows, d.v = near.BandPairs()
	if joined {
		b.backTail(h, ar, d)
	}
	b.addLate(h, d)
	own := &h.own[0]
	var sum float64
	if ages {
		own.DAge = arena.TakeZeros[float64](ar, max(own.PositionCount(), own.M+1))
		for j := range own.M {
			own.DAge[j] = near.DAge[h.tokensBefore+j]
		}
		if joined {
			b.w.ageEps(own, h.ages, b.dout, b.out, c, s, h.heads, b.keep)
		}
		own.DVal = tensor.Mat{Data: d.v[h.tokensBefore*d.ldv:], Rows: own.M, Cols: own.Dv, Stride: d.ldv}
		if b.ageWanted {
			own.DLogG = b.dlogG.Head(s.Batch, h.kh).Slice(s.K0, s.K0+s.M)
		}
		var after float64
		if b.g.DFinal != nil {
			after = engine.StateGradOf(b.g.DFinal).WindowGrads[h.i].Age
		}
		sum = own.AgeGrad(after, b.seenBefore(h))
	}
	if b.g.DInit != nil {
		b.toState(h, d, sum)
	}
	b.toKeys(h, d)
}

// backTail goes back through the tail, of a joint denominator, and adds what that
// gives to d.
func (b *hybridBackward) backTail(h *windowHead, ar *arena.Arena, d *latelyGrad) {
	far, s, c := h.tail, h.s, b.c
	d.tailRows = arena.TakeZeros[float](ar, h.end*d.ldf)
	far.O, far.DO, far.DQ = engine.HeadsOf(far.O, b.tailO, s, h.heads), engine.HeadsOf(far.DO, b.tailDo, s, h.heads), engine.HeadsOf(far.DQ, b.g.DQ, s, h.heads)
	far.Den = engine.DenOf(far.Den, b.splitGrads.tail.Den, c, s, h.heads)
	far.DScale = b.dscale[s.Index*c.Q.H+h.heads.Lo:][:h.heads.N]
	far.DK = tensor.Mat{Data: d.tailRows, Rows: far.M, Cols: far.PreparedWidth, Stride: d.ldf}
	far.DVal = tensor.Mat{Data: arena.TakeZeros[float](ar, far.M*far.Dv), Rows: far.M, Cols: far.Dv, Stride: far.Dv}
	if h.window.DAge != nil {
		far.DAge = h.window.DAge // of the same tokens
	}
	for g := range far.Q {
		for i := range min(-far.Offset, far.N) {
			clear(far.DQ[g].Row(i))
		}
	}
	b.tail.Backward(far, s, h.kh, b.g)
	for j := range far.M {
		far.Table.Add(d.v[j*d.ldv:][:far.Dv], d.v[j*d.ldv:], far.DVal.Row(j))
	}
}

// addLate adds the gradient of the window after the call to d, by token.
func (b *hybridBackward) addLate(h *windowHead, d *latelyGrad) {
	if b.g.DFinal == nil {
		return
	}
	l := &engine.StateGradOf(b.g.DFinal).WindowGrads[h.i]
	add := func(to, from []float) { h.window.Table.Add(to[:len(from)], to, from) }
	for k := range l.Count {
		j := h.end - l.Count + k
		add(d.windowRows[j*d.ldn:], l.WindowRows[k*h.window.PreparedWidth:][:h.window.PreparedWidth])
		add(d.v[j*d.ldv:], l.Values[k*h.window.Dv:][:h.window.Dv])
		if d.tailRows != nil {
			add(d.tailRows[j*d.ldf:], l.TailRows[k*h.tail.PreparedWidth:][:h.tail.PreparedWidth])
		}
		if h.window.DAge != nil {
			h.window.DAge[j] -= float64(l.Ones[k])
		}
	}
}

// seenBefore reports whether there is an unmasked key before the call.
func (b *hybridBackward) seenBefore(h *windowHead) bool {
	return b.init != nil && b.init.tail.Heads[h.i].First != headtask.Unseen || slices.Contains(h.x.exist[:h.tokensBefore], true)
}

// toState sets the gradient of the window before the call; age is the sum of dG
// from the call on.
func (b *hybridBackward) toState(h *windowHead, d *latelyGrad, age float64) {
	l, dn, df, dv := &engine.StateGradOf(b.g.DInit).WindowGrads[h.i], h.window.PreparedWidth, h.tail.PreparedWidth, h.window.Dv
	if d.tailRows == nil {
		df = 0
	}
	l.Open(h.tokensBefore, df, dn, dv)
	l.Age = age
	clear(l.TailRows)
	clear(l.WindowRows)
	clear(l.Values)
	clear(l.Ones)
	for j, exists := range h.x.exist[:h.tokensBefore] {
		if h.window.DAge != nil {
			l.Ones[j] = float(-h.window.DAge[j])
		}
		if !exists {
			continue
		}
		copy(l.WindowRows[j*dn:][:dn], d.windowRows[j*d.ldn:])
		copy(l.Values[j*dv:][:dv], d.v[j*d.ldv:])
		if df > 0 {
			copy(l.TailRows[j*df:][:df], d.tailRows[j*d.ldf:])
		}
	}
}

// toKeys sets dk, dV and dlog_g of the call's own keys.
func (b *hybridBackward) toKeys(h *windowHead, d *latelyGrad) {
	s, near, far := h.s, &h.own[0], &h.own[1]
	near.DK = b.dk.Head(s.Batch, h.kh).Slice(s.K0, s.K0+s.M)
	near.GradK(0, s.M, d.windowRows[h.tokensBefore*d.ldn:], d.ldn)
	of := func(x tensor.Heads) tensor.Mat { return x.Head(s.Batch, h.kh).Slice(s.K0, s.K0+s.Keys) }
	dk, dv := of(b.g.DK), of(b.g.DV)
	if d.tailRows != nil {
		far.DK = dk.Slice(0, s.M)
		far.GradK(0, s.M, d.tailRows[h.tokensBefore*d.ldf:], d.ldf)
		for j := range s.Keys {
			clear(dv.Row(j))
			if j >= s.M {
				clear(dk.Row(j))
			}
		}
	}
	for j := range s.M {
		near.Table.Add(dk.Row(j), dk.Row(j), near.DK.Row(j))
		if near.HasKey(j) {
			near.Table.Add(dv.Row(j), dv.Row(j), d.v[(h.tokensBefore+j)*d.ldv:])
		}
	}
	if !b.ageWanted {
		return
	}
	to := of(b.g.DLogG)
	for j := range s.Keys {
		if d.tailRows != nil {
			to.Row(j)[0] = 0
		}
		if j < s.M {
			to.Row(j)[0] += near.DLogG.Row(j)[0]
		}
	}
}
