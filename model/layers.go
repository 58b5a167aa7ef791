package model

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// layer is a layer of attention with the prefix of its weights' names.
type layer[T tensor.Float] struct {
	name string
	attn *nn.Attention[T]
}

// WrapMechanisms replaces the mechanism of each attention layer by the result of wrap,
// so that the calls of a pass can be observed. wrap gets the name of a layer, such as
// layers.0.attn, and its mechanism. Its result must have the weights and constants of
// that mechanism. restore puts the mechanisms back.
func (m *Model[T]) WrapMechanisms(wrap func(name string, of attention.Mechanism[T]) attention.Mechanism[T]) (restore func()) {
	var before []attention.Mechanism[T]
	var undivided []bool
	for _, l := range m.layers {
		before, undivided = append(before, l.attn.Mechanism), append(undivided, l.attn.Undivided)
		l.attn.Mechanism, l.attn.Undivided = wrap(l.name, l.attn.Mechanism), true
	}
	return func() {
		for i, l := range m.layers {
			l.attn.Mechanism, l.attn.Undivided = before[i], undivided[i]
		}
	}
}

// Watch calls look with each call of a layer's mechanism before the mechanism computes
// it. An error of look ends the pass. restore ends the watching.
func (m *Model[T]) Watch(look func(name string, of attention.Mechanism[T], call *attention.Call[T]) error) (restore func()) {
	return m.WrapMechanisms(func(name string, of attention.Mechanism[T]) attention.Mechanism[T] {
		return &watched[T]{of, func(call *attention.Call[T]) error { return look(name, of, call) }}
	})
}

// watched passes each call to look before computing it.
type watched[T tensor.Float] struct {
	attention.Mechanism[T]
	look func(*attention.Call[T]) error
}

func (w *watched[T]) Forward(out tensor.Heads[T], c *attention.Call[T], keep *attention.Saved[T]) error {
	if err := w.look(c); err != nil {
		return err
	}
	return w.Mechanism.Forward(out, c, keep)
}

// Redraw draws the constants of the mechanisms anew if their setting redraw divides
// updates. The numbers depend only on key and updates, so a run that continues from a
// checkpoint draws the same. Redraw returns an error if a mechanism refuses its
// options.
func (m *Model[T]) Redraw(key rng.Key, updates int) error {
	if len(m.layers) == 0 || updates == 0 {
		return nil
	}
	o := m.config.mechanismOptions()
	every, err := mechanism.RedrawInterval(m.config.Mechanism, o)
	if err != nil || every == 0 || updates%every != 0 {
		return err
	}
	key = key.Fold(uint64(updates))
	for i, l := range m.layers {
		if m.config.layerWindow(i) > 0 {
			continue
		}
		o.Seed = key.Uint64(uint64(i))
		drawn, err := mechanism.New[T](m.config.Mechanism, o)
		if err != nil {
			return err
		}
		from := drawn.Constants().All()
		for j, p := range l.attn.Mechanism.Constants().All() {
			copy(p.Data, from[j].Data)
		}
	}
	return nil
}
