package model

import (
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// frozenModel is what a session steps through: with a few rows, or if it has more
// sequences with any number.
type frozenModel[T tensor.Float] struct {
	blocks []nn.Stepper[T] // of each block
	first  *nn.Lookup[T]   // in place of the mixer of the first block; nil: none
	head   *nn.Frozen[T]
	any    bool
}

// steps are the ways by which the rows of a session go through the layers, where they
// are not those of a pass.
type steps[T tensor.Float] struct {
	blocks []nn.Stepper[T] // nil: as in a pass
	first  *nn.Lookup[T]   // nil: as the others
	places *nn.Places[T]
}

// takes reports whether steps of so many rows may go through t.
func (t *frozenModel[T]) takes(rows int) bool { return t.any || rows <= nn.ThinRows }

// freeze arranges the layers for steps of so many rows.
func (m *Model[T]) freeze(rows int) *frozenModel[T] {
	t := &frozenModel[T]{head: m.head.Freeze(rows), any: rows > nn.ThinRows}
	for i := range m.main.blocks {
		t.blocks = append(t.blocks, m.main.blocks[i].branch.Freeze(rows))
	}
	t.first = m.main.lookup()
	return t
}

// lookup returns the mixer of the first block as one of tokens; nil where it is none.
func (s *stack[T]) lookup() *nn.Lookup[T] {
	b, embeds := &s.blocks[0], s.entry.numbers.W == nil && s.entry.front == nil
	a, attends := b.mixer.(*nn.Attention[T])
	if !embeds || !attends || b.conv != nil {
		return nil
	}
	norm := b.norm
	if s.post {
		norm = nil
	}
	return nn.NewLookup(a, norm, &s.entry.embed, s.position)
}
