package model

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// layer is a layer of attention by the name that its weights begin with.
type layer[T tensor.Float] struct {
	name string
	attn *nn.Attention[T]
}

// WrapMechanisms puts what wrap returns, for each layer of attention by its name,
// such as layers.0.attn, in the place of its mechanism: to look at the calls that
// a pass makes of it. What wrap returns has the mechanism's weights and constants.
// The function that it returns puts the mechanisms back.
func (m *Model[T]) WrapMechanisms(wrap func(name string, of attention.Mechanism[T]) attention.Mechanism[T]) (restore func()) {
	var before []attention.Mechanism[T]
	for _, l := range m.layers {
		before = append(before, l.attn.Mechanism)
		l.attn.Mechanism = wrap(l.name, l.attn.Mechanism)
	}
	return func() {
		for i, l := range m.layers {
			l.attn.Mechanism = before[i]
		}
	}
}
