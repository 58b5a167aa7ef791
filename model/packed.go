package model

import (
	"sync/atomic"

	"github.com/farfield-ml/farfield/internal/losses"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// packedModel holds the layers of a session with packed weights: for at most nn.GEMVRows rows, or
// for any number of rows if the session has more sequences.
type packedModel struct {
	blocks []nn.Stepper        // of each block
	first  *nn.FirstLayerCache // in place of the mixer of the first block; nil: none
	head   *nn.PackedLinear
	limit  float64 // limit of logits
	any    bool    // blocks serve any number of rows

	hasFixedStates bool                         // no state grows with the tokens
	snapshot       atomic.Pointer[snapshotSize] // size of snapshots, with fixed states; nil: not known yet
}

// stepWays holds the packed layers that a step of a session uses.
type stepWays struct {
	blocks []nn.Stepper        // nil: the layers of a pass
	first  *nn.FirstLayerCache // replaces the first mixer; nil: none
}

// stepWays returns the packed layers for a step of the given number of rows.
func (t *packedModel) stepWays(rows int) stepWays {
	by := stepWays{first: t.first}
	if t.any || rows <= nn.GEMVRows {
		by.blocks = t.blocks
	}
	return by
}

// logits sets y [rows,outputs] to the logits of the head's input x [rows,width].
func (t *packedModel) logits(y, x tensor.Mat) {
	t.head.Forward(y, x, false)
	losses.Cap(y, t.limit)
}

// newPackedModel packs the layers of a model for steps of the given number of rows.
func newPackedModel(m *Model, rows int) *packedModel {
	t := &packedModel{head: m.head.Freeze(rows), limit: m.head.limit, any: rows > nn.GEMVRows, hasFixedStates: true}
	for i := range m.main.blocks {
		b := &m.main.blocks[i]
		t.blocks = append(t.blocks, b.branch.Freeze(rows))
		t.hasFixedStates = t.hasFixedStates && (!b.hasState() || b.mixer != nil && b.mixer.Traits().Streaming)
	}
	t.first = m.main.firstLayerCache()
	return t
}

// firstLayerCache returns a cache of the first mixer's projections by token; nil if the
// model cannot have one.
func (s *stack) firstLayerCache() *nn.FirstLayerCache {
	b, e := &s.blocks[0], &s.entry
	embeds := e.numbers.W == nil && e.front == nil && e.norm == nil && e.types == nil && e.scale == 1
	a, attends := b.mixer.(*nn.Attention)
	if !embeds || !attends || b.conv != nil || a.QNorm != nil || a.Q.Compressed() != nil {
		return nil
	}
	norm := b.norm
	if _, same := norm.(identity); same || s.post {
		norm = nil
	}
	return nn.NewFirstLayerCache(a, norm, &e.embed, e.position)
}
