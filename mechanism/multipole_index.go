package mechanism

import (
	"slices"

	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// multipoleIndex is the index of a state with centres=input: the clusters of all spans that
// are far from the last token. Between the ends of spans a step reads the means of clusters,
// the clusters that it chooses, and the keys of the open span. At the end of a span its keys
// are clustered, and means and sorted keys are laid out anew.
type multipoleIndex[T tensor.Float] struct {
	x     *multipoleAttention[T]
	cells []T // clusters of the keys of closed spans
	count int // clusters
	block int // of the pass; -1: none

	pass   multipolePass[T]
	head   headwise.Head[T] // of the pass; its rows are those of the current step
	memory arena.Arena      // of the pass
}

// NewKeyIndex returns an index without keys.
func (m *inputMultipole[T]) NewKeyIndex() headwise.KeyIndex[T] {
	return &multipoleIndex[T]{x: m.x, block: -1}
}

func (s *multipoleIndex[T]) Bytes() int64 {
	return int64(float64(s.memory.Mark())*8 + float64(cap(s.cells))*elementBytes[T]())
}

func (s *multipoleIndex[T]) Forward(h *headwise.Head[T]) {
	x, block := s.x, floorDiv(h.Shift, s.x.span)
	s.head = *h
	if block != s.block {
		s.rebuild(h, block)
	}
	p := &s.pass
	p.first, p.last = x.innerKeys(h)
	p.lo, p.hi = p.nearRange(block)
	p.attend(p.scores(0, h.Q.Rows), nil)
	p.flush(arena.Take[T](h.Scratch, h.Q.Rows))
	s.head = headwise.Head[T]{}
}

// rebuild clusters the spans that have been closed since and lays out the pass for a block.
func (s *multipoleIndex[T]) rebuild(h *headwise.Head[T], block int) {
	x := s.x
	first, last := x.innerKeys(h)
	for j := len(s.cells); j < block*x.span; j += x.span {
		end := min(j+x.span, last)
		s.cells = append(s.cells, slices.Repeat([]T{-1}, end-j)...)
		s.count = x.clusterKeys(h, s.cells, max(j, first), end, s.count)
	}
	s.memory.Reset(0)
	s.head.Scratch = &s.memory
	rows := arena.Take[T](&s.memory, h.K.Rows)
	for j := copy(rows, s.cells); j < len(rows); j++ {
		rows[j] = -1
	}
	s.pass, s.block = x.open(&s.head, rows, block), block
	s.pass.sameBlock = true
	s.pass.refresh()
	s.head.Scratch = h.Scratch
}
