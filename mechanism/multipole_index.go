package mechanism

import (
	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/internal/arena"
)

// multipoleIndex is the index of a state with centres=input: the blocks of all spans before that
// of the last token. Between the ends of spans a step reads the far field, the clusters that it
// chooses, and the keys of the open span. At the end of a span its keys are clustered, with those
// of earlier spans if they become one block, and the far field is laid out anew.
type multipoleIndex struct {
	pass   inputPass
	head   headwise.Head
	span   int // number of the open span; -1: none
	mark   int // of memory behind the blocks
	memory arena.Arena
}

// NewKeyIndex returns an index without keys.
func (m *inputMultipole) NewKeyIndex() headwise.KeyIndex {
	s := &multipoleIndex{span: -1}
	s.pass.multipoleAttention, s.pass.memory = m.x, &s.memory
	return s
}

// Clone returns an index with copies of the blocks. Its next step lays out the far field anew.
func (s *multipoleIndex) Clone() headwise.KeyIndex {
	c := &multipoleIndex{span: -1}
	c.pass.multipoleAttention, c.pass.memory = s.pass.multipoleAttention, &c.memory
	for i := range s.pass.blocks {
		c.pass.blocks = append(c.pass.blocks, s.pass.blocks[i].clone(&c.memory))
	}
	c.mark = c.memory.Mark()
	return c
}

func (s *multipoleIndex) Bytes() int64 { return int64(s.memory.Mark()) * 8 }

func (s *multipoleIndex) Forward(h *headwise.Head) {
	p := &s.pass
	s.head = *h
	p.h, p.scale = &s.head, p.factor(h.Q.Cols)
	p.first, p.last = p.innerKeys(h)
	if b := floorDiv(h.Shift, p.multipoleAttention.span); b != s.span {
		s.memory.Reset(s.mark)
		p.cover(b)
		s.span, s.mark = b, s.memory.Mark()
		p.setFar()
	}
	p.setOpen(s.span)
	n := h.Q.Rows
	p.tops, p.sums = arena.Take[float](h.Scratch, n), arena.Take[float](h.Scratch, n)
	p.attendSpan(0, n)
	p.divide(arena.Take[float](h.Scratch, n))
	p.h, s.head = nil, headwise.Head{}
}
