package model

import "github.com/farfield-ml/farfield/nn"

// Freeze is Model.Freeze.
func (m *modelOf[T]) Freeze() {
	m.FreezeBody()
	m.head.PackWeights()
}

// FreezeBody is Model.FreezeBody.
func (m *modelOf[T]) FreezeBody() { m.eachPacker(nn.WeightPacker.PackWeights) }

// Thaw is Model.Thaw.
func (m *modelOf[T]) Thaw() {
	m.eachPacker(nn.WeightPacker.DropPacked)
	m.head.DropPacked()
}

// eachPacker calls f for each layer below the head that can pack its weights.
func (m *modelOf[T]) eachPacker(f func(nn.WeightPacker)) {
	for _, s := range [...]*stack[T]{m.encoder, m.main} {
		for i := 0; s != nil && i < len(s.blocks); i++ {
			if p, can := s.blocks[i].branch.(nn.WeightPacker); can {
				f(p)
			}
		}
	}
}
