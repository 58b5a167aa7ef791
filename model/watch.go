package model

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/nn"
)

// AttentionNames returns the names of the layers of attention, such as layers.0.attn, in
// the order of a pass.
func (m *Model[T]) AttentionNames() []string {
	names := make([]string, len(m.layers))
	for i, l := range m.layers {
		names[i] = l.name
	}
	return names
}

// ShareWatched is Share with a look at each call of attention before its mechanism
// computes it, as in Watch. m itself is not watched, so that it may compute at the same
// time. An error of look ends the pass. Attention in a convolutional net is not watched.
func (m *Model[T]) ShareWatched(look func(name string, of attention.Mechanism[T], call *attention.Call[T]) error) *Model[T] {
	c := m.Share()
	params := *m.params // WrapMechanisms of c leaves those of m
	c.params, c.layers = &params, make([]layer[T], len(m.layers))
	watchers := make(map[*nn.Attention[T]]*nn.Attention[T], len(m.layers))
	for i, l := range m.layers {
		own := *l.attn
		of := own.Mechanism
		own.Mechanism = &watched[T]{of, func(call *attention.Call[T]) error { return look(l.name, of, call) }}
		own.Undivided = true
		c.layers[i], watchers[l.attn] = layer[T]{l.name, l.number, &own, l.built}, &own
	}
	for _, s := range []*stack[T]{c.main, c.encoder} {
		if s == nil {
			continue
		}
		blocks := make([]block[T], len(s.blocks))
		copy(blocks, s.blocks)
		for i := range blocks {
			switch a := blocks[i].branch.(type) {
			case *nn.Attention[T]:
				blocks[i].branch = watchers[a]
				if blocks[i].mixer != nil {
					blocks[i].mixer = watchers[a]
				}
			case nn.CrossAttention[T]:
				blocks[i].branch = nn.CrossAttention[T]{Layer: watchers[a.Layer]}
			}
		}
		s.blocks = blocks
	}
	return c
}
