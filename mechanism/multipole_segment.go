package mechanism

import (
	"errors"
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// A call that continues a state is one pass over the tokens that the state keeps, followed by its
// own tokens. The pass begins with the state's sums. Cells are numbered like the rows of the
// codebook, and near keys take the same columns in every block, so that outputs are bitwise equal
// to those of Step.

// multipoleSegment is a call between states.
type multipoleSegment struct {
	x           *multipoleAttention
	c           *attention.Call
	shape       attention.Shape // of both states
	n, m        int             // queries and keys of the call
	init, final *multipoleState // nil: none
}

// segmentOf returns the segment of a call. It returns an error if its states do not fit.
func (x *multipoleAttention) segmentOf(c *attention.Call) (s multipoleSegment, err error) {
	s = multipoleSegment{x: x, c: c, n: c.Q.N, m: c.K.N, shape: attention.Shape{B: c.Q.B, H: c.Q.H, Hkv: c.K.H, D: c.Q.D, Dv: c.V.D}}
	if !c.Causal {
		return s, errors.New("init and final: multipole goes on from states in causal calls alone")
	}
	if c.CuQ != nil || c.CuK != nil {
		return s, errors.New("init and final: not defined with cu_q and cu_k for multipole, whose blocks count from the first token of a state")
	}
	if c.K.N < c.Q.N {
		return s, fmt.Errorf("k: a causal call between states has %d queries and only %d keys", c.Q.N, c.K.N)
	}
	of := func(what string, state attention.State) (*multipoleState, error) {
		if state == nil {
			return nil, nil
		}
		st, ok := state.(*multipoleState)
		if !ok || st == nil {
			return nil, fmt.Errorf("%s: a %T is no state of multipole with a codebook", what, state)
		}
		if err := x.Identity().Fits(what, &s.shape, st.x.Identity(), &st.shape); err != nil {
			return st, err
		}
		return st, x.sameNumbers(what, st.x)
	}
	if s.init, err = of("init", c.Init); err != nil {
		return s, err
	}
	if s.final, err = of("final", c.Final); err != nil {
		return s, err
	}
	return s, nil
}

// savedSegment identifies the call that a Saved belongs to.
type savedSegment struct{ queries, keys, units, heads, d, dv, tokens int }

// saved returns the call, with the tokens of its initial state if it has queries.
func (s *multipoleSegment) saved() savedSegment {
	tokens := 0
	if s.init != nil && s.c.Q.N > 0 {
		tokens = s.init.tokens
	}
	return savedSegment{s.c.Q.N, s.c.K.N, s.c.K.B * s.c.K.H, s.c.Q.H, s.c.Q.D, s.c.V.D, tokens}
}

// ForwardSegment computes Forward of a call with an initial or a final state, and sets the final
// state. keep.Heads gets one element for each key head. It returns an error if a state does not
// fit the call, or if keep is nil and an output is not finite.
func (x *multipoleAttention) ForwardSegment(out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	s, err := x.segmentOf(c)
	if err != nil {
		return err
	}
	units := c.K.B * c.K.H
	if keep != nil {
		keep.Den, keep.Moments = keep.Den[:0], keep.Moments[:0]
		keep.Heads = scratch.Resize(keep.Heads, units)
		keep.UnseenCount, keep.WeakCount, keep.Aux, keep.Residual, keep.ExactShare = 0, 0, 0, 0, 0
		saved := s.saved()
		keep.Own = &saved
	}
	unseen, broken := make([]int, units), make([]bool, units)
	par.RunEach(units, s.work(), func(i int) {
		ar := arena.Acquire()
		defer ar.Release()
		var saved *[]float
		if keep != nil {
			saved = &keep.Heads[i]
		}
		unseen[i], broken[i] = s.forwardHead(ar, i, out, saved)
	})
	if s.final != nil {
		before := 0
		if s.init != nil {
			before = s.init.tokens
		}
		s.final.tokens = before + c.K.N
	}
	for _, n := range unseen {
		if keep != nil {
			keep.UnseenCount += int64(n)
		}
	}
	return attention.ReportNonFinite(out, keep, slices.Contains(broken, true))
}

// work returns the operations of the call.
func (s *multipoleSegment) work() float64 {
	shape := s.c.Shape()
	shape.B = 1
	return float64(s.c.Q.B*s.c.Q.H) * s.x.Cost(shape).FLOPs
}

// segmentHead is a key head of a segment. Its rows are the tokens that its state keeps, then its
// own tokens.
type segmentHead struct {
	b, keyHead, group int
	before            int // rows of the state
	skipped           int // tokens between the sinks and the other rows of the state
	past              *multipoleHead
	mask              []bool  // [rows]
	cells             []float // [rows]
	k, v              tensor.Mat
	left              int // queries that see no key
}

// kept returns the rows that a state keeps of n tokens: those before sinks, and those from last
// on.
func (x *multipoleAttention) kept(n int) (sinks, last int) {
	sinks = min(x.sinks, n)
	return sinks, max(n-x.keep(), sinks)
}

// open returns key head i of the segment. cells holds the cells of the call's own keys; nil: open
// finds them.
func (s *multipoleSegment) open(ar *arena.Arena, i int, cells []float) *segmentHead {
	c, x, keyHeads := s.c, s.x, s.shape.Hkv
	h := &segmentHead{b: i / keyHeads, keyHead: i % keyHeads, group: s.shape.H / keyHeads}
	tokens, m, d, dv := 0, s.m, s.shape.D, s.shape.Dv
	if s.init != nil {
		h.past, tokens = &s.init.heads[i], s.init.tokens
	}
	sinks, last := x.kept(tokens)
	h.skipped, h.before = last-sinks, sinks+tokens-last
	rows := h.before + m
	h.mask, h.cells = make([]bool, rows), arena.Take[float](ar, rows)
	h.k, h.v = scratch.TakeMat(ar, rows, d), scratch.TakeMat(ar, rows, dv)
	for r := range h.before {
		from := r
		if r >= sinks {
			from = x.sinks + r + h.skipped - h.past.base
		}
		k, v := h.past.key(from)
		copy(h.k.Row(r), k)
		copy(h.v.Row(r), v)
		h.mask[r], h.cells[r] = h.past.valid[from], -1
		if r >= sinks {
			h.cells[r] = float(h.past.cells[from-x.sinks])
		}
	}
	var mask []bool
	if c.KeyMask != nil || c.KeyLens != nil {
		mask = h.mask[h.before:]
	}
	for j := range m {
		h.mask[h.before+j] = (c.KeyMask == nil || c.KeyMask[h.b*m+j]) && (c.KeyLens == nil || int64(j) < c.KeyLens[h.b])
	}
	scratch.CopyMat(h.k.Slice(h.before, rows), headwise.RotateAndMask(ar, c.K.Head(h.b, h.keyHead), mask, c.Rope, 0))
	scratch.CopyMat(h.v.Slice(h.before, rows), headwise.RotateAndMask(ar, c.V.Head(h.b, h.keyHead), mask, nil, 0))
	if cells != nil {
		copy(h.cells[h.before:], cells)
	} else {
		own := headwise.Head{K: h.k.Slice(h.before, rows), Mask: mask, Scratch: ar, Table: kernel.Active[float](), KeyHead: h.keyHead, KeyHeads: keyHeads}
		found := h.cells[h.before:]
		for j := range found {
			found[j] = -1
		}
		mark := ar.Mark()
		book := x.book(h.keyHead, keyHeads)
		x.assignKeys(&own, found, 0, m, newNearestCells(book, arena.Take[float](ar, kernel.Pad(book.Rows))).withRoom(ar))
		ar.Reset(mark)
	}
	if h.past == nil || h.past.exist == 0 {
		first := h.before
		for first < rows && !h.mask[first] {
			first++
		}
		h.left = min(max(first-h.before-(m-s.n), 0), s.n)
		if first == rows {
			h.left = s.n
		}
	}
	return h
}

// head returns a query head g of the group.
func (s *multipoleSegment) head(ar *arena.Arena, h *segmentHead, g int) *headwise.Head {
	c, offset := s.c, s.m-s.n
	q := c.Q.Head(h.b, h.keyHead*h.group+g).Slice(h.left, s.n)
	shift := h.before + offset + h.left
	return &headwise.Head{Q: headwise.RotateAndMask(ar, q, nil, c.Rope, offset+h.left), K: h.k, V: h.v, Out: scratch.TakeMat(ar, q.Rows, s.shape.Dv),
		Mask: h.mask, Causal: true, Offset: shift, Shift: shift, Head: h.keyHead*h.group + g, KeyHead: h.keyHead, KeyHeads: s.shape.Hkv, Scratch: ar, Table: kernel.Active[float]()}
}

// blocks returns the bounds of the blocks of a head's queries.
func (s *multipoleSegment) blocks(h *segmentHead, q *headwise.Head) (first, end int) {
	shift := q.Shift + h.skipped
	return floorDiv(shift, s.x.block), floorDiv(shift+q.Q.Rows-1, s.x.block) + 1
}

// pass returns the pass of a query head whose first block of queries is block.
func (s *multipoleSegment) pass(h *segmentHead, q *headwise.Head, block int) multipolePass {
	x, ar, d := s.x, q.Scratch, q.K.Cols
	p := multipolePass{multipoleAttention: x, h: q, scale: x.factor(d), cells: arena.Take[int32](ar, q.K.Rows), length: x.block,
		ordered: true, count: x.codebook.Shape[1], skipped: h.skipped, end: q.K.Rows, first: min(x.sinks, q.K.Rows), last: q.K.Rows}
	for r, cell := range h.cells {
		if p.cells[r] = int32(cell); r < p.first {
			p.cells[r] = -1
		}
	}
	p.takeSums(x.layout(d, q.V.Cols))
	var known []bool
	if x.hasReferences() {
		p.sums.references, known = arena.Take[float](ar, p.count*d), make([]bool, p.count)
	}
	if h.past != nil {
		sums := &h.past.sums
		p.past = sums
		copy(p.sums.counts, sums.counts)
		copy(p.sums.hi, sums.hi)
		copy(p.sums.lo, sums.lo)
		copy(p.sums.references, sums.references)
		copy(known, h.past.known)
		for c, n := range p.sums.counts {
			if n > 0 {
				p.used, p.isStale[c], p.stale = p.count, 1, append(p.stale, int32(c))
			}
		}
	}
	if x.hasReferences() {
		for r := p.first; r < p.last; r++ {
			if c := p.cells[r]; c >= 0 && !known[c] {
				known[c] = true
				copy(p.sums.reference(int(c)), q.K.Row(r))
			}
		}
	}
	p.near = p.newNearKeys(x.sinks+x.keep(), x.sinks+x.keep())
	p.tame = !scratch.HasNonFiniteSum(q.K.Slice(p.first, p.last)) && !scratch.HasNonFiniteSum(q.V.Slice(p.first, p.last))
	p.start(block)
	return p
}

// forwardHead computes the outputs of a key head's query heads, and its final state. It returns
// how many queries see no key, and whether an output may not be finite.
func (s *multipoleSegment) forwardHead(ar *arena.Arena, i int, out tensor.Heads, saved *[]float) (unseen int, broken bool) {
	h := s.open(ar, i, nil)
	n := s.n
	var lse []float
	if saved != nil {
		*saved = scratch.Resize(*saved, h.group*n+s.m)
		copy((*saved)[h.group*n:], h.cells[h.before:])
		lse = *saved
	} else {
		lse = arena.Take[float](ar, h.group*n)
	}
	for g := range h.group {
		to := out.Head(h.b, h.keyHead*h.group+g)
		scratch.ClearRows(to, 0, h.left)
		if h.left == n {
			continue
		}
		mark := ar.Mark()
		q := s.head(ar, h, g)
		block, end := s.blocks(h, q)
		p := s.pass(h, q, block)
		p.forward(lse[g*n:][:n-h.left], block, end)
		scratch.CopyMat(to.Slice(h.left, n), q.Out)
		broken = broken || scratch.HasNonFiniteSum(q.Out)
		ar.Reset(mark)
	}
	if s.final != nil {
		s.close(ar, i, h)
	}
	return h.left * h.group, broken
}

// close sets head i of the final state: the initial state followed by the segment's keys.
func (s *multipoleSegment) close(ar *arena.Arena, i int, h *segmentHead) {
	to := s.final.working(ar, i)
	switch {
	case h.past == nil:
		to.reset()
	case h.past != to.multipoleHead:
		states.CopyArrays(func(p *states.Pass) { to.visit(p, s.x) }, func(p *states.Pass) { h.past.visit(p, s.x) }, int64(h.past.tokens), false)
	}
	for r := h.before; r < h.k.Rows; r++ {
		cell := int32(h.cells[r])
		if !h.mask[r] {
			cell = -1
		}
		to.push(h.k.Row(r), h.v.Row(r), cell)
	}
}

// multipoleStateGrad is the gradient of a state: what attention.StateGrad.Own holds.
type multipoleStateGrad struct {
	shape  attention.Shape
	tokens int
	heads  []multipoleHeadGrad // [B·Hkv]
}

// multipoleHeadGrad has the gradients of the sums of all cells, and of the rows of tokens that
// a state keeps.
type multipoleHeadGrad struct {
	sums []float // [cells][width]
	k, v tensor.Mat
}

// parts returns the sums and the rows of each head, in order.
func (g *multipoleStateGrad) parts() (list [][]float) {
	for i := range g.heads {
		h := &g.heads[i]
		list = append(list, h.sums, h.k.Data, h.v.Data)
	}
	return list
}

// AppendNumbers appends the gradients of each head's sums, keys and values.
func (g *multipoleStateGrad) AppendNumbers(to []tensor.Float) []tensor.Float {
	for _, x := range g.parts() {
		to = append(to, x...)
	}
	return to
}

// SetGradNumbers sets g to the gradient of s, from numbers in the order of AppendNumbers. It
// returns an error if their count does not fit s.
func (s *multipoleState) SetGradNumbers(g *attention.StateGrad, numbers []tensor.Float) error {
	x := &multipoleStateGrad{shape: s.shape, tokens: s.tokens, heads: make([]multipoleHeadGrad, len(s.heads))}
	sinks, last := s.x.kept(s.tokens)
	rows, d, dv, need := sinks+s.tokens-last, s.shape.D, s.shape.Dv, 0
	for i := range s.heads {
		sums := len(s.heads[i].sums.hi)
		x.heads[i] = multipoleHeadGrad{sums: make([]float, sums), k: matrixOf(make([]float, rows*d), rows, d), v: matrixOf(make([]float, rows*dv), rows, dv)}
		need += sums + rows*(d+dv)
	}
	if len(numbers) != need {
		return fmt.Errorf("gradient: has %d numbers, a state of %d tokens has %d", len(numbers), s.tokens, need)
	}
	for _, to := range x.parts() {
		numbers = numbers[copy(to, numbers):]
	}
	g.Own = x
	return nil
}

// BackwardSegment computes Backward of a call with an initial or a final state. g.DFinal, if not
// nil, is the gradient of the final state; g.DInit, if not nil, is set to that of the initial one.
// It returns an error if keep is not from ForwardSegment of this call, or DFinal does not fit.
func (x *multipoleAttention) BackwardSegment(g *attention.Grads, dout, out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	s, err := x.segmentOf(c)
	if err != nil {
		return err
	}
	units := c.K.B * c.K.H
	tilts := make([][]float, units)
	if keep == nil || len(keep.Heads) != units {
		return errOtherSegment
	}
	if saved, ok := keep.Own.(*savedSegment); !ok || *saved != s.saved() {
		return errOtherSegment
	}
	tokens := 0
	if s.init != nil {
		tokens = s.init.tokens
	}
	var before, after *multipoleStateGrad
	if g.DFinal != nil {
		var ok bool
		if after, ok = g.DFinal.Own.(*multipoleStateGrad); !ok || after.shape != s.shape || after.tokens != tokens+c.K.N {
			return errors.New("dfinal: is not the gradient of the state after this call")
		}
	}
	if g.DInit != nil {
		before = &multipoleStateGrad{shape: s.shape, tokens: tokens, heads: make([]multipoleHeadGrad, units)}
		g.DInit.Own = before
	}
	par.RunEach(units, 3*s.work(), func(i int) {
		ar := arena.Acquire()
		defer ar.Release()
		b := segmentBackward{multipoleSegment: &s, grads: g, dout: dout, out: out}
		if before != nil {
			b.before = &before.heads[i]
		}
		if after != nil {
			b.after = &after.heads[i]
		}
		if x.tilt != nil {
			tilts[i] = make([]float, x.codebook.Shape[1]*c.K.D)
			b.tilts = tilts[i]
		}
		b.backwardHead(ar, i, keep.Heads[i])
	})
	for i, dtilt := range tilts {
		if dtilt != nil {
			to := x.headRows(x.tilt.Grad, i%c.K.H, c.K.H)
			kernel.Active[float]().Add(to.Data, to.Data, dtilt)
		}
	}
	return nil
}

var errOtherSegment = errors.New("saved: not what Forward left for this call")

// segmentBackward is Backward of a key head of a segment.
type segmentBackward struct {
	*multipoleSegment
	grads         *attention.Grads
	dout, out     tensor.Heads
	before, after *multipoleHeadGrad // before is nil if it is not wanted, after if nothing follows
	tilts         []float            // gradient of the tilt of the key head; nil: there is none
}

func (s *segmentBackward) backwardHead(ar *arena.Arena, i int, saved []float) {
	c, t := s.c, kernel.Active[float]()
	n := c.Q.N
	h := s.open(ar, i, saved[c.Q.H/c.K.H*n:])
	rows := h.k.Rows
	dk, dv := zeroMat(ar, rows, c.K.D), zeroMat(ar, rows, c.V.D)
	sums := arena.TakeZeros[float](ar, s.x.codebook.Shape[1]*s.x.layout(c.K.D, c.V.D).width)
	for g := range h.group {
		head := h.keyHead*h.group + g
		dq := s.grads.DQ.Head(h.b, head)
		scratch.ClearRows(dq, 0, h.left)
		if h.left == n {
			continue
		}
		mark := ar.Mark()
		q := s.head(ar, h, g)
		scratch.CopyMat(q.Out, s.out.Head(h.b, head).Slice(h.left, n))
		q.NeedsBackward, q.Saved = true, saved[g*n:][:n-h.left]
		own := &headwise.Grads{DOut: scratch.Contiguous(ar, s.dout.Head(h.b, head).Slice(h.left, n)),
			DQ: scratch.TakeMat(ar, n-h.left, c.Q.D), DK: scratch.TakeMat(ar, rows, c.K.D), DV: scratch.TakeMat(ar, rows, c.V.D)}
		own.Clear()
		block, end := s.blocks(h, q)
		p := s.pass(h, q, end-1)
		p.backward(own, end-1, block)
		t.Add(dk.Data, dk.Data, own.DK.Data)
		t.Add(dv.Data, dv.Data, own.DV.Data)
		t.Add(sums, sums, p.grads.sums)
		p.balanceTilts()
		t.Add(s.tilts, s.tilts, p.grads.tilts)
		if c.Rope != nil {
			c.Rope.RotateRows(own.DQ, c.K.N-n+h.left, true)
		}
		scratch.CopyMat(dq.Slice(h.left, n), own.DQ)
		ar.Reset(mark)
	}
	if s.after != nil {
		s.addFinal(ar, h, dk, dv, sums)
	}
	for r, exists := range h.mask {
		if !exists {
			clear(dk.Row(r))
			clear(dv.Row(r))
		}
	}
	if s.before != nil {
		*s.before = multipoleHeadGrad{sums: slices.Clone(sums), k: cloneMat(dk.Slice(0, h.before)), v: cloneMat(dv.Slice(0, h.before))}
	}
	dk, dv = dk.Slice(h.before, rows), dv.Slice(h.before, rows)
	if c.Rope != nil {
		c.Rope.RotateRows(dk, 0, true)
	}
	scratch.CopyMat(s.grads.DK.Head(h.b, h.keyHead), dk)
	scratch.CopyMat(s.grads.DV.Head(h.b, h.keyHead), dv)
}

// addFinal adds the gradient of the final state to dk and dv of the rows, and to the gradient of
// the sums with which the segment began.
func (s *segmentBackward) addFinal(ar *arena.Arena, h *segmentHead, dk, dv tensor.Mat, sums []float) {
	t, tokens := kernel.Active[float](), h.k.Rows+h.skipped
	mark := ar.Mark()
	defer ar.Reset(mark)
	sinks, last := s.x.kept(tokens)
	for r := range s.after.k.Rows { // of the final state
		at := r
		if r >= sinks {
			at = r - sinks + last - h.skipped
		}
		t.Add(dk.Row(at), dk.Row(at), s.after.k.Row(r))
		t.Add(dv.Row(at), dv.Row(at), s.after.v.Row(r))
	}
	q := &headwise.Head{Q: tensor.Mat{Cols: h.k.Cols, Stride: h.k.Cols}, K: h.k, V: h.v, Mask: h.mask, Causal: true, Shift: h.k.Rows,
		KeyHead: h.keyHead, KeyHeads: s.shape.Hkv, Scratch: ar, Table: t}
	p := s.pass(h, q, 0)
	p.grads = multipoleGrads{Grads: &headwise.Grads{DK: dk, DV: dv}, sums: s.after.sums, tilts: s.tilts}
	if s.tilts != nil {
		p.grads.balances = arena.TakeZeros[float](ar, p.count)
	}
	for r := p.first; r+h.skipped < last; r++ {
		p.pull(r, 1)
	}
	p.balanceTilts()
	t.Add(sums, sums, s.after.sums)
}

// zeroMat returns a matrix of zeros in scratch memory.
func zeroMat(ar *arena.Arena, rows, cols int) tensor.Mat {
	return tensor.Mat{Data: arena.TakeZeros[float](ar, rows*cols), Rows: rows, Cols: cols, Stride: cols}
}

// cloneMat returns a copy of x on the heap.
func cloneMat(x tensor.Mat) tensor.Mat {
	y := tensor.Mat{Data: make([]float, x.Rows*x.Cols), Rows: x.Rows, Cols: x.Cols, Stride: x.Cols}
	scratch.CopyMat(y, x)
	return y
}
