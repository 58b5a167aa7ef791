package mechanism

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
)

// multipoleIndex holds the clusters of a state with centres=input: the blocks of all spans before
// the open span, which contains the last token. A step reads the far field, the clusters that it
// chooses, and the keys of the open span and those that are near to all queries. The first step after a
// span clusters its keys and lays out the far field anew. The keys of blocks that become one at the next
// end are clustered together within the span, by each index at a token of its own, so that layers and
// heads take turns. An index that begins later in a span does so in its first step.
type multipoleIndex struct {
	pass inputPass
	head headwise.Head
	span int         // number of the open span; -1: none
	far  arena.Arena // memory of the far field
}

// NewKeyIndex returns an index without keys.
func (m *inputMultipole) NewKeyIndex() headwise.KeyIndex { return newMultipoleIndex(m.x) }

func newMultipoleIndex(x *multipoleAttention) *multipoleIndex {
	s := &multipoleIndex{span: -1}
	s.pass.multipoleAttention, s.pass.memory, s.pass.owned = x, &s.far, true
	return s
}

// Clone returns an index with copies of the blocks. Its next step lays out the far field anew.
func (s *multipoleIndex) Clone() headwise.KeyIndex {
	c := newMultipoleIndex(s.pass.multipoleAttention)
	for i := range s.pass.blocks {
		c.pass.blocks = append(c.pass.blocks, s.pass.blocks[i].clone())
	}
	if s.pass.ahead.memory != nil {
		c.pass.ahead = s.pass.ahead.clone()
	}
	return c
}

func (s *multipoleIndex) Bytes() int64 {
	words := s.far.Size()
	for i := range s.pass.blocks {
		words += s.pass.blocks[i].memory.Size()
	}
	if s.pass.ahead.memory != nil {
		words += s.pass.ahead.memory.Size()
	}
	return int64(words) * 8
}

func (s *multipoleIndex) Forward(h *headwise.Head) {
	p := &s.pass
	s.head = *h
	p.h, p.scale = &s.head, p.factor(h.Q.Cols)
	p.first, p.last = p.innerKeys(h)
	b := floorDiv(h.Shift, p.multipoleAttention.span)
	if b != s.span {
		s.far.Reset(0)
		p.cover(b)
		if j0, j1 := p.nextJoin(b); !p.ahead.holds(j0, j1) { // what a clone has may be of this span
			p.ahead = keyBlock{}
		}
		s.span = b
		p.setFar()
	}
	if h.Shift-b*p.multipoleAttention.span >= s.turn(h) {
		p.lookAhead(b)
	}
	p.setOpen(s.span)
	n := h.Q.Rows
	p.tops, p.sums = arena.Take[float](h.Scratch, n), arena.Take[float](h.Scratch, n)
	p.attendSpan(0, n)
	p.eachChosen(p.attendCluster)
	p.divide(arena.Take[float](h.Scratch, n))
	p.h, s.head = nil, headwise.Head{}
}

// turn returns the token of a span at which the index joins blocks. It depends on the first key, so
// that layers and heads have different ones.
func (s *multipoleIndex) turn(h *headwise.Head) int {
	var bits uint64
	for _, x := range h.K.Row(0) {
		bits = (bits ^ math.Float64bits(float64(x))) * 0x9e3779b97f4a7c15
		bits ^= bits >> 32
	}
	return int(bits >> 1 % uint64(s.pass.multipoleAttention.span))
}

// nextJoin returns the keys j0 ≤ j < j1 of the joined block that the span behind b needs, none if it
// needs none.
func (p *inputPass) nextJoin(b int) (j0, j1 int) {
	at, length := 0, 0
	for ; at < b; at += length {
		length = spansFrom(at, b)
	}
	if length < 2 {
		return 0, 0
	}
	return p.keysOf(at-length, at)
}

// lookAhead makes the joined block that the span behind b needs, if it is not there.
func (p *inputPass) lookAhead(b int) {
	if j0, j1 := p.nextJoin(b); j0 < j1 && !p.ahead.holds(j0, j1) {
		p.ahead = p.newBlock(j0, j1)
	}
}
