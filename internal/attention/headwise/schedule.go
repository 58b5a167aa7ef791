package headwise

import (
	"sync/atomic"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// scheduledCall is Forward or Backward of one call of a headwise mechanism. Its units
// are the query heads of its sequences: unit i is head i mod H of sequence i/H.
type scheduledCall struct {
	w     *driver
	c     *attention.Call
	seqs  []attention.Sequence
	units int
	out   tensor.Heads
	keep  *attention.Saved

	overflow atomic.Bool // an output may not be finite

	unseenCounts   []int                // of each unit
	illConditioned []illConditionedRows // of each unit
	aux, residual  []float64            // of each unit
	exact          []float64            // of each unit

	dout tensor.Heads
	g    attention.Grads
	// Query heads that share a key head each have their own gradients of its keys and
	// values, which are then added in the order of query heads. The gradients of unit i
	// begin at shared[starts[i]:].
	shared []float
	starts []int
	// Gradients of parameters: one set for each unit that is computed at the same time, from
	// unit first on, and the sum over all units before them.
	params []float
	first  int
	wave   int

	work float64 // operations of all units
}

func (w *driver) schedule(c *attention.Call, out tensor.Heads, keep *attention.Saved) *scheduledCall {
	p, _ := w.passes.Get().(*scheduledCall)
	if p == nil {
		p = new(scheduledCall)
	}
	*p = scheduledCall{
		w: w, c: c, seqs: c.AppendSequences(p.seqs[:0]), out: out, keep: keep,
		unseenCounts: p.unseenCounts, illConditioned: p.illConditioned, aux: p.aux, residual: p.residual, exact: p.exact, shared: p.shared[:0], starts: p.starts[:0], params: p.params[:0],
	}
	p.units = len(p.seqs) * c.Q.H
	p.unseenCounts, p.illConditioned, p.aux, p.residual = scratch.Resize(p.unseenCounts, p.units), scratch.Resize(p.illConditioned, p.units), scratch.Resize(p.aux, p.units), scratch.Resize(p.residual, p.units)
	p.exact = scratch.Resize(p.exact, p.units)
	s := c.Shape()
	for i := range p.seqs {
		s.N, s.M = p.seqs[i].N, p.seqs[i].M
		p.work += float64(c.Q.H) * w.Cost(s).FLOPs
	}
	return p
}

// release keeps p for another call and drops its pointers.
func (p *scheduledCall) release() {
	w := p.w
	*p = scheduledCall{seqs: p.seqs, unseenCounts: p.unseenCounts, illConditioned: p.illConditioned, aux: p.aux, residual: p.residual, exact: p.exact, shared: p.shared, starts: p.starts, params: p.params}
	w.passes.Put(p)
}

func (p *scheduledCall) sequenceOf(i int) (*attention.Sequence, int) {
	return &p.seqs[i/p.c.Q.H], i % p.c.Q.H
}

// unseenBefore returns the number of queries of s before the first one that sees a key, or all
// of them if no key is unmasked.
func unseenBefore(c *attention.Call, s *attention.Sequence, mask []bool) int {
	first := 0
	for first < s.M && mask != nil && !mask[first] {
		first++
	}
	switch {
	case first == s.M:
		return s.N
	case c.Causal:
		return min(max(first-s.Offset, 0), s.N)
	}
	return 0
}

// openHead sets h to head number head of sequence s, without output and saved memory.
// It returns the number of queries without a visible key. If that is all queries,
// nothing is set. With strided the values of a call without a mask are not copied.
func (w *driver) openHead(h *Head, c *attention.Call, s *attention.Sequence, head int, ar *arena.Arena, strided bool) (left int) {
	mask := c.Mask(s)
	left = unseenBefore(c, s, mask)
	if left == s.N {
		return left
	}
	kh := head / (c.Q.H / c.K.H)
	*h = Head{Mask: mask, Causal: c.Causal, Shift: s.Offset + left, Head: head, KeyHead: kh, KeyHeads: c.K.H, Scratch: ar, Table: kernel.Active[float]()}
	at := 0 // position of the first query
	if c.Causal {
		h.Offset = h.Shift
		at = h.Offset
	}
	h.Q = RotateAndMask(ar, c.Q.Head(s.Batch, head).Slice(s.Q0+left, s.Q0+s.N), nil, c.Rope, at)
	h.K = RotateAndMask(ar, c.K.Head(s.Batch, kh).Slice(s.K0, s.K0+s.M), mask, c.Rope, 0)
	h.V = c.V.Head(s.Batch, kh).Slice(s.K0, s.K0+s.M)
	if !strided || mask != nil {
		h.V = RotateAndMask(ar, h.V, mask, nil, 0)
	}
	return left
}

// takesStrides reports whether values and outputs of a call are used in place.
func (p *scheduledCall) takesStrides() bool {
	f, is := p.w.Function.(StridedRows)
	return is && p.keep == nil && f.TakesStridedRows()
}

// RotateAndMask returns x with contiguous rows, rotated by positions from at on, and with zeros
// in masked rows. The result is x itself if nothing has to change, otherwise a copy in scratch
// memory.
func RotateAndMask(ar *arena.Arena, x tensor.Mat, mask []bool, rope *attention.Rope, at int) tensor.Mat {
	if mask == nil && rope == nil {
		return scratch.Contiguous(ar, x)
	}
	y := scratch.TakeMat(ar, x.Rows, x.Cols)
	for i := range x.Rows {
		if mask == nil || mask[i] {
			copy(y.Row(i), x.Row(i))
		} else {
			clear(y.Row(i))
		}
	}
	if rope != nil {
		rope.RotateRows(y, at, false)
	}
	return y
}

// forwardTask runs units of a forward pass.
type forwardTask struct{ *scheduledCall }

func (p *scheduledCall) runForward() { par.Run(p.units, 1, p.work, forwardTask{p}) }

func (p *forwardTask) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		p.forwardUnit(i)
	}
}

func (w *driver) takeHead() *Head {
	h, _ := w.heads.Get().(*Head)
	if h == nil {
		h = new(Head)
	}
	return h
}

func (w *driver) putHead(h *Head) {
	*h = Head{}
	w.heads.Put(h)
}

func (p *scheduledCall) forwardUnit(i int) {
	ar := arena.Acquire()
	defer ar.Release()
	s, head := p.sequenceOf(i)
	h := p.w.takeHead()
	defer p.w.putHead(h)
	out := p.out.Head(s.Batch, head).Slice(s.Q0, s.Q0+s.N)
	strided := p.takesStrides()
	left := p.w.openHead(h, p.c, s, head, ar, strided)
	scratch.ClearRows(out, 0, left)
	p.unseenCounts[i], p.illConditioned[i], p.aux[i], p.residual[i], p.exact[i] = left, illConditionedRows{}, 0, 0, 0
	if p.keep != nil {
		p.keep.Heads[i] = p.keep.Heads[i][:0]
	}
	if left == s.N {
		return
	}
	out = out.Slice(left, s.N)
	if h.Out = out; !strided {
		h.Out = scratch.ForOutput(ar, out)
	}
	if h.NeedsBackward = p.keep != nil; h.NeedsBackward {
		h.Saved = p.keep.Heads[i]
	}
	broken := p.w.forward(h)
	if h.NeedsBackward {
		p.keep.Heads[i] = h.Saved
	}
	if broken {
		p.overflow.Store(true)
	}
	scratch.CopyMat(out, h.Out)
	p.unseenCounts[i] += h.UnseenQueries
	p.illConditioned[i] = illConditionedRows{h.illConditioned.count, left + h.illConditioned.first}
	p.aux[i], p.residual[i], p.exact[i] = h.Aux, h.Residual, h.ExactShare
}

// mostParams bounds the elements of the parameter gradients of all units that are computed at
// the same time, beyond one unit per thread.
const mostParams = 1 << 23

func (p *scheduledCall) runBackward() {
	w, c := p.w, p.c
	group := 1
	if c.K.H > 0 {
		group = c.Q.H / c.K.H
	}
	if group > 1 {
		n := 0
		for i := range p.units {
			s, _ := p.sequenceOf(i)
			p.starts = append(p.starts, n)
			n += s.M * (c.K.D + c.V.D)
		}
		p.shared = scratch.Resize(p.shared, n)
	}
	p.wave = max(p.units, 1)
	if w.size > 0 {
		p.wave = min(p.wave, max(par.Threads(), mostParams/w.size))
		p.params = scratch.Resize(p.params, (p.wave+1)*w.size)
		clear(p.paramSum())
	}
	for p.first = 0; p.first < p.units; p.first += p.wave {
		n := min(p.wave, p.units-p.first)
		par.Run(n, 1, 3*p.work*float64(n)/float64(p.units), backwardTask{p})
		t := kernel.Active[float]()
		for u := 0; u < n && w.size > 0; u++ {
			t.Add(p.paramSum(), p.paramSum(), p.params[u*w.size:][:w.size])
		}
	}
	p.addParams()
	if group > 1 {
		for i := range p.seqs {
			for kh := range c.K.H {
				p.addShared(&p.seqs[i], kh, group)
			}
		}
	}
}

// paramSum returns the sum of the parameter gradients of all finished units, in their
// order.
func (p *scheduledCall) paramSum() []float { return p.params[p.wave*p.w.size:] }

// addParams adds paramSum to the gradients of the parameters.
func (p *scheduledCall) addParams() {
	t, at := kernel.Active[float](), 0
	for _, x := range p.w.Params().All() {
		t.Add(x.Grad, x.Grad, p.paramSum()[at:][:len(x.Data)])
		at += len(x.Data)
	}
}

// addShared sets the gradients of key head kh to the sum over its query heads.
func (p *scheduledCall) addShared(s *attention.Sequence, kh, group int) {
	c, t := p.c, kernel.Active[float]()
	dk := p.g.DK.Head(s.Batch, kh).Slice(s.K0, s.K0+s.M)
	dv := p.g.DV.Head(s.Batch, kh).Slice(s.K0, s.K0+s.M)
	for g := range group {
		from := p.shared[p.starts[s.Index*c.Q.H+kh*group+g]:]
		for _, x := range []tensor.Mat{dk, dv} {
			for j := range x.Rows {
				if row := from[j*x.Cols:][:x.Cols]; g == 0 {
					copy(x.Row(j), row)
				} else {
					t.Add(x.Row(j), x.Row(j), row)
				}
			}
			from = from[x.Rows*x.Cols:]
		}
	}
}

// backwardTask runs units of a backward pass, from first on.
type backwardTask struct{ *scheduledCall }

func (p *backwardTask) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		p.backwardUnit(p.first+i, i)
	}
}

// backwardUnit computes unit i. Its parameter gradients are number place in params.
func (p *scheduledCall) backwardUnit(i, place int) {
	ar := arena.Acquire()
	defer ar.Release()
	w, c := p.w, p.c
	s, head := p.sequenceOf(i)
	kh := head / (c.Q.H / c.K.H)
	h := w.takeHead()
	defer w.putHead(h)
	params := p.params[:0]
	if w.size > 0 {
		params = p.params[place*w.size:][:w.size]
		clear(params)
	}
	dq := p.g.DQ.Head(s.Batch, head).Slice(s.Q0, s.Q0+s.N)
	dk := p.g.DK.Head(s.Batch, kh).Slice(s.K0, s.K0+s.Keys)
	dv := p.g.DV.Head(s.Batch, kh).Slice(s.K0, s.K0+s.Keys)
	if len(p.starts) > 0 { // shared by heads
		if head%(c.Q.H/c.K.H) == 0 {
			scratch.ClearRows(dk, s.M, s.Keys)
			scratch.ClearRows(dv, s.M, s.Keys)
		}
		own := p.shared[p.starts[i]:]
		dk = tensor.Mat{Data: own[:s.M*c.K.D], Rows: s.M, Cols: c.K.D, Stride: c.K.D}
		dv = tensor.Mat{Data: own[s.M*c.K.D:][:s.M*c.V.D], Rows: s.M, Cols: c.V.D, Stride: c.V.D}
	} else {
		scratch.ClearRows(dk, s.M, s.Keys)
		scratch.ClearRows(dv, s.M, s.Keys)
		dk, dv = dk.Slice(0, s.M), dv.Slice(0, s.M)
	}
	left := w.openHead(h, c, s, head, ar, false)
	scratch.ClearRows(dq, 0, left)
	if left == s.N {
		scratch.ClearRows(dk, 0, s.M)
		scratch.ClearRows(dv, 0, s.M)
		return
	}
	dq = dq.Slice(left, s.N)
	rows := func(x tensor.Heads) tensor.Mat {
		return scratch.Contiguous(ar, x.Head(s.Batch, head).Slice(s.Q0+left, s.Q0+s.N))
	}
	h.Out, h.NeedsBackward, h.Saved = rows(p.out), true, p.keep.Heads[i]
	g, _ := w.grads.Get().(*Grads)
	if g == nil {
		g = new(Grads)
	}
	*g = Grads{
		DOut: rows(p.dout), DAux: p.g.DAux,
		DQ: scratch.ForOutput(ar, dq), DK: scratch.ForOutput(ar, dk), DV: scratch.ForOutput(ar, dv), Params: g.Params[:0],
	}
	for _, x := range w.Params().All() {
		g.Params = append(g.Params, params[:len(x.Data):len(x.Data)])
		params = params[len(x.Data):]
	}
	w.backward(h, g)
	if c.Rope != nil {
		c.Rope.RotateRows(g.DQ, h.Offset, true)
		c.Rope.RotateRows(g.DK, 0, true)
	}
	for j := range h.Mask {
		if !h.Mask[j] {
			clear(g.DK.Row(j))
			clear(g.DV.Row(j))
		}
	}
	scratch.CopyMat(dq, g.DQ)
	scratch.CopyMat(dk, g.DK)
	scratch.CopyMat(dv, g.DV)
	clear(g.Params)
	*g = Grads{Params: g.Params[:0]}
	w.grads.Put(g)
}
