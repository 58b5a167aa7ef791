package model

import (
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// packedModel is what a session steps through: with a few rows, or if it has more
// sequences with any number.
type packedModel[T tensor.Float] struct {
	blocks []nn.Stepper[T]        // of each block
	first  *nn.FirstLayerCache[T] // in place of the mixer of the first block; nil: none
	head   *nn.PackedLinear[T]
	any    bool
}

// stepWays are the ways by which the rows of a session go through the layers, where they
// are not those of a pass.
type stepWays[T tensor.Float] struct {
	blocks []nn.Stepper[T]        // nil: as in a pass
	first  *nn.FirstLayerCache[T] // nil: as the others
	places *nn.PositionCache[T]
}

// fitsRows reports whether steps of so many rows may go through t.
func (t *packedModel[T]) fitsRows(rows int) bool { return t.any || rows <= nn.GEMVRows }

// packModel arranges the layers for steps of so many rows.
func (m *Model[T]) packModel(rows int) *packedModel[T] {
	t := &packedModel[T]{head: m.head.Freeze(rows), any: rows > nn.GEMVRows}
	for i := range m.main.blocks {
		t.blocks = append(t.blocks, m.main.blocks[i].branch.Freeze(rows))
	}
	t.first = m.main.firstLayerCache()
	return t
}

// firstLayerCache returns the mixer of the first block as one of tokens; nil where it is none.
func (s *stack[T]) firstLayerCache() *nn.FirstLayerCache[T] {
	b, embeds := &s.blocks[0], s.entry.numbers.W == nil && s.entry.front == nil
	a, attends := b.mixer.(*nn.Attention[T])
	if !embeds || !attends || b.conv != nil {
		return nil
	}
	norm := b.norm
	if s.post {
		norm = nil
	}
	return nn.NewFirstLayerCache(a, norm, &s.entry.embed, s.position)
}
