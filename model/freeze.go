package model

import "github.com/farfield-ml/farfield/nn"

// Freeze packs the weights of projections, MLPs and the head for passes. Passes of few rows
// gain most. Results are bitwise the same. The packed copy is as large as the weights. Until
// Thaw no weight may change.
func (m *Model) Freeze() {
	m.FreezeBody()
	m.head.PackWeights()
}

// FreezeBody packs the weights that Freeze packs, except those of the head.
func (m *Model) FreezeBody() { m.eachPacker(nn.WeightPacker.PackWeights) }

// Thaw drops the copy of Freeze.
func (m *Model) Thaw() {
	m.eachPacker(nn.WeightPacker.DropPacked)
	m.head.DropPacked()
}

// eachPacker calls f for each layer below the head that can pack its weights.
func (m *Model) eachPacker(f func(nn.WeightPacker)) {
	for _, s := range [...]*stack{m.encoder, m.main} {
		for i := 0; s != nil && i < len(s.blocks); i++ {
			if p, can := s.blocks[i].branch.(nn.WeightPacker); can {
				f(p)
			}
		}
	}
}
