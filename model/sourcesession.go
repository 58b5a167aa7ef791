package model

import (
	"fmt"

	"github.com/farfield-ml/farfield/nn"
)

// NewSourceSession returns a session of batch empty targets of an encoder-decoder, for the
// sources [batch·M]. lens [batch] holds the number of tokens of each source; nil: M. The
// encoder reads the sources once. The session keeps their keys and values, which Reset and
// Clone do not change. It has no snapshot.
//
// NewSourceSession returns an error if the model is not an encoder-decoder, batch is out of
// range, the sources do not fit the model, a mixer has no state, or cross-attention depends
// on the positions of its queries.
func (m *Model) NewSourceSession(source []int32, lens []int64, batch int) (*Session, error) {
	return sessionMaker{model: m}.startSource(source, lens, batch)
}

// NewSourceSession returns a session as Model.NewSourceSession does, which uses the packed
// weights of the group.
func (g *SessionGroup) NewSourceSession(source []int32, lens []int64, batch int) (*Session, error) {
	return g.startSource(source, lens, batch)
}

// startSource returns a session of batch empty targets.
func (f sessionMaker) startSource(source []int32, lens []int64, batch int) (*Session, error) {
	m := f.model
	if err := m.config.checkSessions(EncoderDecoder); err != nil {
		return nil, err
	}
	for i := range m.main.blocks {
		cross, is := m.main.blocks[i].branch.(nn.CrossAttention)
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
	var tr trace
	rows, err := m.encoder.forward(input{b: batch, n: n, tokens: source, lens: lens}, &tr)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	return s, s.addStates(func(layer nn.CrossAttention) nn.State { return layer.SourceState(rows, batch, lens) })
}
