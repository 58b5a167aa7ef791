package model

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/nn"
)

// AttentionNames is Model.AttentionNames.
func (m *modelOf[T]) AttentionNames() []string {
	names := make([]string, len(m.layers))
	for i, l := range m.layers {
		names[i] = l.name
	}
	return names
}

// ShareWatched is Model.Share with a look at each call of attention, as in Watch. m itself is not
// watched, so that it may compute at the same time. Attention in a convolutional net is not
// watched.
//
//go:noinline
func ShareWatched(m *Model, look Look) *Model {
	return &Model{float32Model{inner(m).ShareWatched(look)}}
}

// ShareWatched is the function ShareWatched.
func (m *modelOf[T]) ShareWatched(look func(name string, of attention.Mechanism[T], call *attention.Call[T]) error) *modelOf[T] {
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
