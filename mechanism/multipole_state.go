package mechanism

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/tensor"
)

// multipoleState holds the first tokens of a sequence, the last ones, and sums of all tokens
// between them.
type multipoleState struct {
	x      *multipoleAttention
	shape  attention.Shape
	tokens int
	heads  []multipoleHead // [B·Hkv]

	nearest []nearestCells // [Hkv]
	tilts   []cellTilts    // [Hkv]
}

// multipoleHead is the state of one key head. Every token stays among the last ones until it
// is far from every later query, wherever blocks begin in the stream that it may be merged
// into: keep tokens. Rows of tokens are the sinks, then the last tokens from base on.
type multipoleHead struct {
	tokens, exist int // absorbed, and unmasked ones among them
	base          int
	valid         []bool  // [sinks+2·keep] unmasked
	k, v          []float // [sinks+2·keep, D] and [sinks+2·keep, Dv]; zeros where a token is masked
	cells         []int32 // [2·keep] of the last tokens; -1 for masked ones

	// sums are of tokens from sinks up to the last keep.
	sums  cellSums
	known []bool // [cells] whether a cell has a reference; nil with order 0 and no tilt

	// Derived from the fields above, for the current block: the far keys before end, by cells.
	end   int // -1: not computed
	tile  farTile
	empty []int32 // cells without far keys

	head headwise.Head // of the queries of a call; empty between calls
}

// keep returns the number of last tokens that a state keeps. A query is near to the tokens of its
// block and to the window before it, which are at most the last block+window tokens wherever its
// block begins.
func (x *multipoleAttention) keep() int { return x.block + x.window }

// NewState returns an empty state for calls of shape s. It returns an error if the codebook
// does not fit s, or the state would be too large.
func (x *multipoleAttention) NewState(s attention.Shape) (attention.State, error) {
	if err := x.checkHeads(s.H, s.Hkv, s.D); err != nil {
		return nil, err
	}
	if err := s.CheckStateSize(x.StateBytes(s)); err != nil {
		return nil, err
	}
	return x.newState(s), nil
}

// StateBytes returns the memory of a state of shape s.
func (x *multipoleAttention) StateBytes(s attention.Shape) float64 {
	l, cells := x.layout(s.D, s.Dv), x.codebook.Shape[1]
	tokens := 2 * float64(x.keep())
	tilts := 0.0
	if x.tilt != nil {
		tilts = float64(s.Hkv*cells) * (float64(s.D)*entry.ElementBytes() + 8)
	}
	return tilts + float64(s.Hkv*kernel.Pad(cells))*entry.ElementBytes() + float64(s.B)*float64(s.Hkv)*(x.tokenBytes(&l, tokens)+4*tokens+x.sumBytes(&l)+4*float64(cells)+tileNumbers(&l, cells)*entry.ElementBytes())
}

// tokenBytes returns the memory of the sinks and of n more tokens.
func (x *multipoleAttention) tokenBytes(l *momentLayout, n float64) float64 {
	return (float64(x.sinks) + n) * (1 + float64(l.d+l.dv)*entry.ElementBytes())
}

// sumBytes returns the memory of the sums of all cells.
func (x *multipoleAttention) sumBytes(l *momentLayout) float64 {
	numbers, flags := 2*float64(l.width), 0.0
	if x.hasReferences() {
		numbers, flags = numbers+float64(l.d), 1
	}
	return float64(x.codebook.Shape[1]) * (numbers*entry.ElementBytes() + 8 + flags)
}

func (x *multipoleAttention) newState(s attention.Shape) *multipoleState {
	s = attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, D: s.D, Dv: s.Dv}
	st := &multipoleState{x: x, shape: s, heads: make([]multipoleHead, s.B*s.Hkv), nearest: make([]nearestCells, min(s.B, 1)*s.Hkv), tilts: make([]cellTilts, s.Hkv)}
	l, cells, rows := x.layout(s.D, s.Dv), x.codebook.Shape[1], x.sinks+2*x.keep()
	for i := range st.nearest {
		st.nearest[i] = newNearestCells(x.book(i, s.Hkv), make([]float, kernel.Pad(cells)))
		if x.tilt != nil {
			st.tilts[i] = cellTilts{make([]float, cells*s.D), make([]float64, cells)}
			x.setTilts(st.tilts[i], i, s.Hkv, nil)
		}
	}
	for i := range st.heads {
		h := &st.heads[i]
		*h = multipoleHead{
			valid: make([]bool, rows), k: make([]float, rows*s.D), v: make([]float, rows*s.Dv), cells: make([]int32, 2*x.keep()),
			sums:  cellSums{momentLayout: l, counts: make([]uint64, cells), hi: make([]float, cells*l.width), lo: make([]float, cells*l.width), tilts: st.tilts[i%s.Hkv]},
			tile:  newFarTile(l, cells, func(n int) []float { return make([]float, n) }),
			empty: make([]int32, 0, cells),
			end:   -1,
		}
		if x.hasReferences() {
			h.known, h.sums.references = make([]bool, cells), make([]float, cells*s.D)
		}
	}
	return st
}

func (s *multipoleState) Absorb(c *attention.Call) error { return attention.CheckedAbsorb(c, s) }

func (s *multipoleState) Read(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedRead(out, c, s)
}

func (s *multipoleState) Step(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedStep(out, c, s)
}

func (s *multipoleState) StateShape() *attention.Shape { return &s.shape }

func (s *multipoleState) Refuse(c *attention.Call) error {
	return headwise.RefuseHeadwise(multipole.Name, c)
}

// Run absorbs the tokens of c and answers their queries, one after another.
func (s *multipoleState) Run(out tensor.Heads, c *attention.Call, queries, keys int) {
	l, cells := s.x.layout(s.shape.D, s.shape.Dv), float64(s.x.codebook.Shape[1])
	query := cells*float64(l.d+l.features*l.dv) + float64(s.x.keep()+s.x.sinks)*float64(l.d+l.dv)
	work := 2 * float64(len(s.heads)) * (float64(keys)*cells*float64(l.d) + float64(queries*(s.shape.H/s.shape.Hkv))*query)
	par.RunEach(len(s.heads), work, func(i int) { s.runHead(i, out, c, queries, keys) })
	s.tokens += keys
}

// tiledTokens is the least number of tokens that Run computes as a segment, tile by tile.
const tiledTokens = 16

func (s *multipoleState) runHead(i int, out tensor.Heads, c *attention.Call, queries, keys int) {
	ar := arena.Acquire()
	defer ar.Release()
	if keys >= tiledTokens && (queries == keys || queries == 0) {
		x := multipoleSegment{x: s.x, c: c, shape: s.shape, n: queries, m: keys, init: s, final: s}
		x.forwardHead(ar, i, out, nil)
		return
	}
	b, kh, group := i/s.shape.Hkv, i%s.shape.Hkv, s.shape.H/s.shape.Hkv
	x := s.working(ar, i)
	var mask []bool
	var k, v tensor.Mat
	if keys > 0 {
		if c.KeyMask != nil {
			mask = c.KeyMask[b*keys:][:keys]
		}
		k, v = headwise.RotateAndMask(ar, c.K.Head(b, kh), mask, c.Rope, 0), headwise.RotateAndMask(ar, c.V.Head(b, kh), mask, nil, 0)
	}
	q, o := scratch.TakeMat(ar, group, s.shape.D), scratch.TakeMat(ar, group, s.shape.Dv)
	for j := range max(queries, keys) {
		if keys > 0 {
			x.absorb(k.Row(j), v.Row(j), mask == nil || mask[j])
		}
		if queries == 0 {
			continue
		}
		for g := range group {
			copy(q.Row(g), c.Q.Head(b, kh*group+g).Row(j))
			if c.Rope != nil {
				c.Rope.RotateRows(q.Slice(g, g+1), j, false)
			}
		}
		x.answer(o, q)
		for g := range group {
			copy(out.Head(b, kh*group+g).Row(j), o.Row(g))
		}
	}
}

// workingHead is a head of a state with the scratch memory for computing on it.
type workingHead struct {
	*multipoleHead
	x       *multipoleAttention
	ar      *arena.Arena
	t       *kernel.Table[float]
	nearest nearestCells
	room    []float
	hi, lo  []float // sums of a cell
	count   []uint64
	delta   []float64
}

// working returns head i of the state with scratch memory from ar.
func (s *multipoleState) working(ar *arena.Arena, i int) workingHead {
	h := &s.heads[i]
	l := &h.sums.momentLayout
	return workingHead{multipoleHead: h, x: s.x, ar: ar, t: kernel.Active[float](), nearest: s.nearest[i%s.shape.Hkv].withRoom(ar),
		room: arena.Take[float](ar, l.d+l.width), hi: arena.Take[float](ar, l.width), lo: arena.Take[float](ar, l.width), count: arena.Take[uint64](ar, 1), delta: arena.Take[float64](ar, l.d)}
}

// key returns the key and value in a row of tokens.
func (h *multipoleHead) key(row int) (k, v []float) {
	d, dv := h.sums.d, h.sums.dv
	return h.k[row*d:][:d], h.v[row*dv:][:dv]
}

// setKey sets a row of tokens.
func (h *multipoleHead) setKey(row int, k, v []float, valid bool) {
	toK, toV := h.key(row)
	copy(toK, k)
	copy(toV, v)
	h.valid[row] = valid
}

// absorb appends a token.
func (h *workingHead) absorb(k, v []float, valid bool) {
	cell := int32(-1)
	if valid {
		cell = h.cellOf(k)
	}
	h.push(k, v, cell)
}

// cellOf returns the row of the codebook nearest to a key.
func (h *workingHead) cellOf(k []float) int32 {
	mark := h.ar.Mark()
	defer h.ar.Reset(mark)
	return h.nearest.findOne(h.t, h.ar, arena.Take[float](h.ar, kernel.Pad(h.nearest.book.Rows)), k)
}

// push appends a token whose cell is known. cell is -1 for a masked token.
func (h *workingHead) push(k, v []float, cell int32) {
	sinks, keep, at := h.x.sinks, h.x.keep(), h.tokens-h.base
	if at == 2*keep { // forget the older half
		d, dv := h.sums.d, h.sums.dv
		copy(h.k[sinks*d:], h.k[(sinks+keep)*d:])
		copy(h.v[sinks*dv:], h.v[(sinks+keep)*dv:])
		copy(h.valid[sinks:], h.valid[sinks+keep:])
		copy(h.cells, h.cells[keep:])
		h.base, at = h.base+keep, keep
	}
	h.setKey(sinks+at, k, v, cell >= 0)
	h.cells[at] = cell
	if h.tokens < sinks {
		h.setKey(h.tokens, k, v, cell >= 0)
	} else {
		h.know(cell, k)
	}
	h.tokens++
	if cell >= 0 {
		h.exist++
	}
	if far := h.tokens - keep - 1; far >= sinks {
		h.fold(far-h.base, &h.sums)
	}
}

// know makes a key the reference of its cell unless the cell has one.
func (h *workingHead) know(cell int32, k []float) {
	if cell < 0 || h.known == nil || h.known[cell] {
		return
	}
	h.known[cell] = true
	copy(h.sums.reference(int(cell)), k)
}

// fold adds the token at a place among the last tokens to sums.
func (h *workingHead) fold(at int, sums *cellSums) {
	if cell := h.cells[at]; cell >= 0 {
		k, v := h.key(h.x.sinks + at)
		sums.add(h.t, int(cell), k, v, 1, h.room)
	}
}

// folded returns the end of the tokens that sums hold, which begin after the sinks.
func (h *workingHead) folded() int { return max(h.tokens-h.x.keep(), 0) }

// answer sets out [queries, Dv] for queries at the place of the last token.
func (h *workingHead) answer(out, q tensor.Mat) {
	scratch.ClearRows(out, 0, out.Rows)
	if h.exist == 0 {
		return
	}
	x, sinks := h.x, h.x.sinks
	block := floorDiv(h.tokens-1, x.block)
	end := max(block*x.block-x.window, sinks)
	h.moveTo(end)
	mark := h.ar.Mark()
	defer h.ar.Reset(mark)
	rows := sinks + h.tokens - h.base
	h.head = headwise.Head{Q: q, Out: out, Mask: h.valid[:rows], Scratch: h.ar, Table: h.t,
		K: matrixOf(h.k, rows, h.sums.d), V: matrixOf(h.v, rows, h.sums.dv)}
	p := multipolePass{multipoleAttention: x, h: &h.head, scale: x.factor(h.sums.d), first: min(sinks, h.tokens), last: rows, end: rows,
		lo: min(sinks+end-h.base, rows), hi: rows, sums: h.sums, tile: h.tile, empty: h.empty}
	p.near = p.newNearKeys(sinks+x.keep(), sinks+x.keep())
	if len(h.empty) < len(h.sums.counts) {
		p.used = len(h.sums.counts)
	}
	p.attend(p.scores(0, q.Rows), arena.Take[float](h.ar, q.Rows))
	h.head = headwise.Head{}
}

// moveTo sets the tile to the far keys before end. Each row is computed from the sums of its cell
// and the last tokens before end, in order, so that its bits depend only on the keys.
func (h *workingHead) moveTo(end int) {
	if end == h.end {
		return
	}
	sinks := h.x.sinks
	if from := max(h.end, sinks); h.end < 0 || from < h.base { // keys are gone that have become far since
		for c := range h.sums.counts {
			h.setRow(c, end)
		}
	} else {
		for j := from; j < min(end, h.tokens); j++ {
			if cell := h.cells[j-h.base]; cell >= 0 {
				h.setRow(int(cell), end)
			}
		}
	}
	h.end, h.empty = end, h.empty[:0]
	for c, n := range h.tile.counts {
		if n == 0 {
			h.empty = append(h.empty, int32(c))
		}
	}
}

// setRow computes the row of a cell in the tile.
func (h *workingHead) setRow(c, end int) {
	h.count[0] = h.sums.counts[c]
	one := cellSums{momentLayout: h.sums.momentLayout, counts: h.count, hi: h.hi, lo: h.lo}
	if h.known != nil {
		one.references = h.sums.reference(c)
	}
	if one.mass > 0 {
		one.tilts = cellTilts{h.sums.tilts.of(c, h.sums.d), h.sums.tilts.offsets[c : c+1]}
	}
	copy(one.hi, h.sums.cell(h.sums.hi, c))
	copy(one.lo, h.sums.cell(h.sums.lo, c))
	for j := max(h.folded(), h.x.sinks); j < min(end, h.tokens); j++ {
		if h.cells[j-h.base] == int32(c) {
			k, v := h.key(h.x.sinks + j - h.base)
			one.add(h.t, 0, k, v, 1, h.room)
		}
	}
	h.tile.set(h.t, c, &one, 0, h.delta)
}

// Identity returns the identity of the mechanism's states.
func (x *multipoleAttention) Identity() states.Identity {
	return states.Identity{Kind: multipoleKind, Name: multipole.Name, Setting: x.setting}
}

const multipoleKind = "tokens and sums of cells"

// Merge appends the tokens of next. With order 0 results are those of one stream, unless sums need
// more than twice the precision. With higher orders they differ by rounding. It returns an error if
// next is not a state of the same mechanism, setting, shape and codebook.
func (s *multipoleState) Merge(next attention.State) error {
	n, err := states.Mergeable(s, next)
	if err == nil {
		err = s.x.sameNumbers("merge", n.x)
	}
	if err != nil {
		return err
	}
	return states.Merge(s, next, func(n *multipoleState) error {
		ar := arena.Acquire()
		defer ar.Release()
		for i := range s.heads {
			mark := ar.Mark()
			to, from := s.working(ar, i), n.working(ar, i)
			to.merge(&from)
			ar.Reset(mark)
		}
		s.tokens += n.tokens
		return nil
	})
}

// merge appends the tokens of n.
func (h *workingHead) merge(n *workingHead) {
	h.end = -1
	sinks, keep := h.x.sinks, h.x.keep()
	if n.tokens <= keep {
		for j := range n.tokens {
			k, v := n.key(sinks + j - n.base)
			h.push(k, v, n.cells[j-n.base])
		}
		return
	}
	for j := max(h.folded(), sinks); j < h.tokens; j++ {
		h.fold(j-h.base, &h.sums)
	}
	// The first tokens of n are sinks here if this state has few, else far keys.
	for j := range min(sinks, n.folded()) {
		k, v := n.key(j)
		if h.tokens+j < sinks {
			h.setKey(h.tokens+j, k, v, n.valid[j])
		} else if n.valid[j] {
			cell := h.cellOf(k)
			h.know(cell, k)
			h.sums.add(h.t, int(cell), k, v, 1, h.room)
		}
	}
	for c := range h.sums.counts {
		h.addCell(n, c)
	}
	for j := n.folded(); j < n.tokens; j++ {
		k, v := n.key(sinks + j - n.base)
		if h.tokens+j < sinks {
			h.setKey(h.tokens+j, k, v, n.valid[sinks+j-n.base])
		} else { // a sink of n is no reference there
			h.know(n.cells[j-n.base], k)
		}
	}
	d, dv := h.sums.d, h.sums.dv
	copy(h.k[sinks*d:], n.k[sinks*d:])
	copy(h.v[sinks*dv:], n.v[sinks*dv:])
	copy(h.valid[sinks:], n.valid[sinks:])
	copy(h.cells, n.cells)
	h.base = h.tokens + n.base
	h.tokens += n.tokens
	h.exist += n.exist
}

// addCell adds the sums of cell c of n to those of h.
func (h *workingHead) addCell(n *workingHead, c int) {
	l := &h.sums.momentLayout
	to := func(x []float) { h.t.AddCarry(h.sums.cell(h.sums.hi, c), h.sums.cell(h.sums.lo, c), x) }
	hi, lo := n.sums.cell(n.sums.hi, c), n.sums.cell(n.sums.lo, c)
	if h.known != nil && n.known[c] && h.known[c] && n.sums.counts[c] > 0 {
		for a := range h.delta {
			h.delta[a] = float64(n.sums.reference(c)[a]) - float64(h.sums.reference(c)[a])
		}
		shiftSums(l, h.hi, h.lo, hi, lo, n.sums.massOf(c), h.delta)
		hi, lo = h.hi, h.lo
	}
	if h.known != nil && n.known[c] {
		h.know(int32(c), n.sums.reference(c))
	}
	if n.sums.counts[c] > 0 {
		to(hi)
		to(lo)
	}
	h.sums.counts[c] += n.sums.counts[c]
}

// shiftSums converts the sums hi + lo of n keys to another reference and sets toHi + toLo to them.
// delta [D] is the old reference minus the new one.
func shiftSums(l *momentLayout, toHi, toLo, hi, lo []float, n float64, delta []float64) {
	sum := func(i int) float64 { return float64(hi[i]) + float64(lo[i]) }
	set := func(i int, x float64) {
		toHi[i] = float(x)
		toLo[i] = float(x - float64(toHi[i]))
	}
	copy(toHi, hi)
	copy(toLo, lo)
	for a, by := range delta {
		set(a, sum(a)+n*by)
		for e := 0; e < l.dv && l.order > 0; e++ {
			i := l.dipole + a*l.dv + e
			set(i, sum(i)+by*sum(l.d+e))
		}
	}
	f := 0
	for a := range delta {
		for b := a; b < l.d && l.order > 1; b++ {
			x, y := delta[a], delta[b]
			set(l.quad+f, sum(l.quad+f)+x*sum(b)+y*sum(a)+n*x*y)
			for e := range l.dv {
				i := l.square + f*l.dv + e
				set(i, sum(i)+x*sum(l.dipole+b*l.dv+e)+y*sum(l.dipole+a*l.dv+e)+x*y*sum(l.d+e))
			}
			f++
		}
	}
}

func (s *multipoleState) Clone() attention.State { return states.Copy(s.x.newState(s.shape), s) }

func (s *multipoleState) Reset() {
	s.tokens = 0
	for i := 0; i < len(s.tilts) && s.x.tilt != nil; i++ { // which training may have changed
		s.x.setTilts(s.tilts[i], i, s.shape.Hkv, nil)
	}
	for i := range s.heads {
		s.heads[i].reset()
	}
}

// reset forgets all tokens.
func (h *multipoleHead) reset() {
	h.tokens, h.exist, h.base, h.end = 0, 0, 0, -1
	clear(h.valid)
	clear(h.known)
	clear(h.sums.counts)
	for _, x := range [][]float{h.k, h.v, h.sums.references, h.sums.hi, h.sums.lo} {
		clear(x)
	}
}

func (s *multipoleState) Tokens() int64 { return int64(s.tokens) }

func (s *multipoleState) Bytes() int64 { return int64(s.x.StateBytes(s.shape)) }

func (s *multipoleState) HasDecay() bool { return false }

func (s *multipoleState) Owner() states.Owner { return s.x }

func (s *multipoleState) AppendBinary(b []byte) ([]byte, error) { return states.AppendBinary(b, s) }

// Visit lists for each key head the flags, keys and values of the sinks and of the last keep tokens,
// padded with zeros in a snapshot; the numbers of keys of all cells; with an order above 0 or tilt,
// flags of the cells that have a reference, and the references; and the sums, first all hi, then all
// lo.
func (s *multipoleState) Visit(p *states.Pass) {
	if p.SetsState() {
		s.tokens = int(p.Tokens)
	}
	for i := range s.heads {
		s.heads[i].visit(p, s.x)
		if p.SetsState() && !p.InMemory() && !p.HasFailed() {
			s.findCells(i)
		}
	}
}

// visit does the work of Visit for a head.
func (h *multipoleHead) visit(p *states.Pass, x *multipoleAttention) {
	if p.SetsState() {
		h.tokens, h.base, h.end = int(p.Tokens), max(int(p.Tokens)-x.keep(), 0), -1
	}
	d, dv := h.sums.d, h.sums.dv
	sinks, last := min(h.tokens, x.sinks), min(h.tokens, x.keep())
	first := h.tokens - last - h.base
	for _, part := range [][3]int{{0, sinks, x.sinks - sinks}, {x.sinks + first, last, x.keep() - last}} {
		row, n, missing := part[0], part[1], part[2]
		p.Flags(h.valid, row, n, missing)
		p.Buffers(row, n, missing, states.Buffer{Data: h.k, Count: d, Stride: d}, states.Buffer{Data: h.v, Count: dv, Stride: dv})
	}
	states.Counts(p, h.sums.counts)
	if p.SetsState() {
		h.countKeys(p, x)
	}
	if h.known != nil {
		p.Flags(h.known, 0, len(h.known), 0)
		p.Elements(h.sums.references)
	}
	p.Elements(h.sums.hi)
	p.Elements(h.sums.lo)
	states.Derived(p, h.cells, first, last)
}

// countKeys counts the unmasked tokens of the head. It fails p if cells have too many keys.
func (h *multipoleHead) countKeys(p *states.Pass, x *multipoleAttention) {
	h.exist = 0
	for c, n := range h.sums.counts {
		if n > uint64(h.tokens) {
			p.Fail("cell %d has %d keys, of %d tokens", c, int64(n), h.tokens)
		}
		h.exist += int(n)
	}
	if h.exist > max(h.tokens-x.keep()-x.sinks, 0) {
		p.Fail("cells have %d keys, of %d tokens", h.exist, h.tokens)
	}
	for j := range min(h.tokens, x.sinks) {
		if h.valid[j] {
			h.exist++
		}
	}
	for j := max(h.base, x.sinks); j < h.tokens; j++ {
		if h.valid[x.sinks+j-h.base] {
			h.exist++
		}
	}
}

// findCells computes the cells of the last tokens of head i.
func (s *multipoleState) findCells(i int) {
	ar := arena.Acquire()
	defer ar.Release()
	h := s.working(ar, i)
	for j := h.base; j < h.tokens; j++ {
		row := h.x.sinks + j - h.base
		h.cells[j-h.base] = -1
		if h.valid[row] {
			k, _ := h.key(row)
			h.cells[j-h.base] = h.cellOf(k)
		}
	}
}

// sameNumbers returns an error if the codebook or tilts of from are not those of x. The error begins
// with what.
func (x *multipoleAttention) sameNumbers(what string, from *multipoleAttention) error {
	if x == from {
		return nil
	}
	if got, want := from.ParameterSum(), x.ParameterSum(); got != want {
		return fmt.Errorf("%s: codebook has checksum %08x, needs %08x", what, got, want)
	}
	return nil
}

// ParameterSum returns the checksum of the codebook and the tilts.
func (x *multipoleAttention) ParameterSum() snapshot.ParameterSum {
	sum := snapshot.AddParameters(0, x.codebook.Data)
	if x.tilt != nil {
		sum = snapshot.AddParameters(sum, x.tilt.Data)
	}
	return sum
}

// RestoreState returns the state of the snapshot data. It returns an error if data is
// damaged or is a state of another mechanism, setting or codebook.
func (x *multipoleAttention) RestoreState(data []byte) (attention.State, error) {
	return states.Restore(data, x, func(s attention.Shape, _ int64, r *snapshot.Reader) (states.Visited, error) {
		if err := x.checkHeads(s.H, s.Hkv, s.D); err != nil {
			return nil, err
		}
		l := x.layout(s.D, s.Dv)
		if err := r.Need(float64(s.B) * float64(s.Hkv) * (x.tokenBytes(&l, float64(x.keep())) + x.sumBytes(&l))); err != nil {
			return nil, err
		}
		return x.newState(s), nil
	})
}
