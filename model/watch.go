package model

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/nn"
)

// AttentionNames returns the names of the layers of attention, such as layers.0.attn, in
// the order of a pass.
func (m *Model) AttentionNames() []string {
	names := make([]string, len(m.layers))
	for i, l := range m.layers {
		names[i] = l.name
	}
	return names
}

// ShareWatched returns a model as Model.Share does, whose layers call look with each call of
// attention, as in Watch. The layers of m itself do not, so that m may compute at the same time.
// Attention in a convolutional net does not call look.
func ShareWatched(m *Model, look Look) *Model {
	c := m.Share()
	params := *m.params // WrapMechanisms of c leaves those of m
	c.params, c.layers = &params, make([]layer, len(m.layers))
	watchers := make(map[*nn.Attention]*nn.Attention, len(m.layers))
	for i, l := range m.layers {
		own := *l.attn
		of := own.Mechanism
		own.Mechanism = &watched{of, func(call *attention.Call) error { return look(l.name, of, call) }}
		own.Undivided = true
		c.layers[i], watchers[l.attn] = layer{l.name, l.number, &own, l.built}, &own
	}
	for _, s := range []*stack{c.main, c.encoder} {
		if s == nil {
			continue
		}
		blocks := make([]block, len(s.blocks))
		copy(blocks, s.blocks)
		for i := range blocks {
			switch a := blocks[i].branch.(type) {
			case *nn.Attention:
				blocks[i].branch = watchers[a]
				if blocks[i].mixer != nil {
					blocks[i].mixer = watchers[a]
				}
			case nn.CrossAttention:
				blocks[i].branch = nn.CrossAttention{Layer: watchers[a.Layer]}
			}
		}
		s.blocks = blocks
	}
	return c
}
