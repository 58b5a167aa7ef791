package published

import (
	"context"
	"fmt"

	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tokenizer"
)

// ExchangeSubject returns the model in the form in which package exchange replaces its attention.
// It returns an error if the model reads no texts.
func (m *Model) ExchangeSubject() (*exchange.Subject, error) {
	switch c := m.plan.config; {
	case c.Inputs > 0:
		return nil, fmt.Errorf("%s: the %s reads no texts, whose keys make codebooks", m.dir, m.family)
	case c.Kind == model.EncoderDecoder:
		return nil, fmt.Errorf("%s: the %s is an encoder-decoder; only encoders and decoders have mechanisms by layers", m.dir, m.family)
	case c.RelativeBuckets > 0:
		return nil, fmt.Errorf("%s: the %s has a bias by distance, which softmax alone has", m.dir, m.family)
	case m.texts.words == nil:
		return nil, m.texts.err
	}
	pooling, err := m.sentence()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.dir, err)
	}
	x := &exchange.Subject{
		Model: m.Model(),
		Batch: func(ctx context.Context, ids []int32) (*model.Batch, error) {
			return m.batch(&Input{B: 1, N: len(ids), IDs: ids})
		},
		Pool: func(rows []float32, n, width int) ([]float32, error) { return pooling.apply(rows, n, 0, width), nil },
	}
	if m.stretched.rows > 0 {
		x.Positions, x.Learned = Interpolate, m.stretched.length
	}
	return x, nil
}

// Windows returns the tokens of a text in windows of n tokens. Each window of an encoder has the
// special tokens of a text; the windows of a decoder follow each other. A last window with fewer
// tokens is left out unless it is the only one. Windows returns an error if there is no tokenizer
// or special tokens leave no room.
func (m *Model) Windows(text string, n int) ([][]int32, error) {
	if m.texts.words == nil {
		return nil, m.texts.err
	}
	e := m.texts.words.Encode(text)
	first, last := 0, len(e.IDs)
	if !m.plan.config.IsCausal() {
		first, last = m.texts.body(&e)
	}
	room := n - first - (len(e.IDs) - last)
	if room < 1 {
		return nil, fmt.Errorf("%d tokens leave no room beside %d special tokens", n, n-room)
	}
	var list [][]int32
	for at := first; at < last; at += room {
		end := min(at+room, last)
		if end-at < room && len(list) > 0 {
			break
		}
		w := append([]int32{}, e.IDs[:first]...)
		list = append(list, append(append(w, e.IDs[at:end]...), e.IDs[last:]...))
	}
	return list, nil
}

// body returns the tokens first ≤ i < last that are between special tokens of the template.
func (r *textReader) body(e *tokenizer.Encoding) (first, last int) {
	last = len(e.IDs)
	for last > 0 && r.isTemplate(e, last-1) {
		last--
	}
	for first < last && r.isTemplate(e, first) {
		first++
	}
	return first, last
}

// Calibration describes the texts and choices from which an exchanged model was made. It is nil for
// other models.
func (m *Model) Calibration() *exchanged.Calibration { return m.calibration }

// KeyDistance returns how far the keys of a text lie from the centres of their cells, as a multiple
// of the distance on the texts of the exchange. ids are the tokens of the text. Far above 1, the
// text is of another kind than those that made the codebooks, and the model loses more than its
// page says. Models without cells give 0. KeyDistance returns an error if ids do not fit the model
// or ctx ends.
func (m *Model) KeyDistance(ctx context.Context, ids []int32) (float64, error) {
	if m.calibration == nil || len(m.calibration.Distances) == 0 {
		return 0, nil
	}
	b, err := m.batch(&Input{B: 1, N: len(ids), IDs: ids})
	if err != nil {
		return 0, err
	}
	m.passes.use.RLock()
	defer m.passes.use.RUnlock()
	return exchange.KeyDistance(ctx, m.body, b, m.calibration.Distances)
}
