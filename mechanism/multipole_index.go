package mechanism

import (
	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/internal/arena"
)

// multipoleIndex holds the clusters of a state with centres=input: the blocks of all spans before
// the open span, which contains the last token. A step reads the far field, the clusters that it
// chooses, and the keys of the open span. When a span ends, its keys are clustered, together with
// those of earlier spans if they become one block, and the far field is laid out anew.
type multipoleIndex struct {
	pass   inputPass
	head   headwise.Head
	span   int // number of the open span; -1: none
	mark   int // end of the blocks in memory
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
