package model

import (
	"errors"
	"fmt"

	"github.com/farfield-ml/farfield/nn"
)

// Compress replaces the weights of projections, MLPs, token embeddings and the head by copies in
// fewer bits. Norms, biases, positions, mixers with projections of their own, mechanisms and states
// stay as they are. The model can then neither learn nor be saved. Compress returns an error if the
// model is compressed already, or if a layer is too wide; the model must not be used after that.
func (m *Model) Compress(p nn.Precision) error {
	return m.hold(p, func(l *nn.Linear) error { return l.Compress(p) })
}

// Reserve drops the weights that Compress replaces and holds zeros in fewer bits instead, for a model
// whose weights are still to be set through Compressed. It returns an error as Compress does.
func (m *Model) Reserve(p nn.Precision) error {
	return m.hold(p, func(l *nn.Linear) error { return l.Reserve(p) })
}

// Compressed returns the compressed weights of the parameter named name, nil if it is not compressed.
func (m *Model) Compressed(name string) *nn.Compressed { return m.compressed[name] }

// Precision returns how the weights are held.
func (m *Model) Precision() nn.Precision { return m.precision }

// hold calls compress for each layer whose weights can be compressed, and sets the precision.
func (m *Model) hold(p nn.Precision, compress func(l *nn.Linear) error) error {
	if m.precision != nn.Float32 {
		return fmt.Errorf("the weights are held as %v, not as f32", m.precision)
	}
	if p == nn.Float32 {
		return nil
	}
	m.Thaw()
	m.precision, m.compressed = p, map[string]*nn.Compressed{}
	add := func(l *nn.Linear) error {
		if l.W == nil {
			return nil
		}
		err := compress(l)
		m.compressed[l.W.Name] = l.Compressed()
		return err
	}
	for _, s := range [...]*stack{m.encoder, m.main} {
		if s == nil {
			continue
		}
		for i := range s.blocks {
			c, can := s.blocks[i].branch.(nn.Compressor)
			if !can {
				continue
			}
			for _, l := range c.Compressible() {
				if err := add(l); err != nil {
					return err
				}
			}
		}
	}
	table := func(e *nn.Embedding, l *nn.Linear) error {
		err := add(l)
		e.ReadFrom(l)
		return err
	}
	if m.main != nil {
		l := m.head.Linear
		if !m.config.Tied {
			l = &nn.Linear{W: m.main.entry.embed.W}
		}
		if err := table(&m.main.entry.embed, l); err != nil {
			return err
		}
	}
	switch {
	case m.encoder == nil:
	case m.config.SharedEmbedding:
		m.encoder.entry.embed = m.main.entry.embed
	default:
		if err := table(&m.encoder.entry.embed, &nn.Linear{W: m.encoder.entry.embed.W}); err != nil {
			return err
		}
	}
	if m.config.Tied {
		return nil
	}
	return add(m.head.Linear)
}

// checkPrecision returns an ErrCompressed that begins with what if the weights are compressed.
func (m *Model) checkPrecision(what string) error {
	if m.precision == nn.Float32 {
		return nil
	}
	return fmt.Errorf("%s: %w, its weights are held as %v", what, ErrCompressed, m.precision)
}

// ErrCompressed is in the errors of a model with compressed weights that is to learn or to be saved.
var ErrCompressed = errors.New("the model can neither learn nor be saved")

// WeightBytes returns the memory of the weights, without packed copies.
func (m *Model) WeightBytes() int64 {
	bytes := int64(0)
	for _, p := range m.Params().All() {
		n := int64(1)
		for _, s := range p.Shape {
			n *= int64(s)
		}
		switch {
		case p.Data != nil || m.Precision() == nn.Float32:
			bytes += 4 * n
		case m.Precision() == nn.BFloat16:
			bytes += 2 * n
		default: // and a scale for each output
			bytes += n + 4*int64(p.Shape[0])
		}
	}
	return bytes
}
