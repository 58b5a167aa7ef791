package model

import (
	"fmt"

	"github.com/farfield-ml/farfield/nn"
)

// NewSourceSession is Model.NewSourceSession.
func (m *modelOf[T]) NewSourceSession(source []int32, lens []int64, batch int) (*sessionOf[T], error) {
	return sessionMaker[T]{model: m}.startSource(source, lens, batch)
}

// NewSourceSession is SessionGroup.NewSourceSession.
func (g *groupOf[T]) NewSourceSession(source []int32, lens []int64, batch int) (*sessionOf[T], error) {
	return g.startSource(source, lens, batch)
}

// startSource returns a session of batch empty targets.
func (f sessionMaker[T]) startSource(source []int32, lens []int64, batch int) (*sessionOf[T], error) {
	m := f.model
	if err := m.config.checkSessions(EncoderDecoder); err != nil {
		return nil, err
	}
	for i := range m.main.blocks {
		cross, is := m.main.blocks[i].branch.(nn.CrossAttention[T])
		if is && cross.Layer.Mechanism.Traits().PlacedQueries {
			return nil, fmt.Errorf("session: cross-attention by %s depends on the places of all queries, of which a session knows the new ones alone; set mechanism to another one such as softmax", m.config.Mechanism)
		}
	}
	s, err := f.create(batch)
	if err != nil {
		return nil, err
	}
	n := len(source) / batch
	if n == 0 {
		return nil, fmt.Errorf("source: has %d tokens for %d sequences", len(source), batch)
	}
	if err := checkTokens("source", source, batch, n, m.config.sourceVocab(), 0); err != nil {
		return nil, err
	}
	if err := checkLens("source lens", lens, batch, n); err != nil {
		return nil, err
	}
	var tr trace[T]
	rows, err := m.encoder.forward(input[T]{b: batch, n: n, tokens: source, lens: lens}, &tr)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	return s, s.addStates(func(layer nn.CrossAttention[T]) nn.State[T] { return layer.SourceState(rows, batch, lens) })
}
