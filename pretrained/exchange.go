package pretrained

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

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

// ExchangeOptions holds the choices of WriteExchanged. A zero field is chosen by WriteExchanged.
type ExchangeOptions struct {
	Cosine float64 // least mean cosine between the vectors of an encoder before and after; 0: 0.99
	Nats   float64 // nats a token that a decoder may lose; 0: 0.02
	// Cells, Order, Block and Window are taken as given; nil: chosen. If one is given, and neither
	// Cosine nor Nats, the others have their defaults and any loss is allowed.
	Cells, Order, Block, Window *int
	Length                      int // tokens of a sequence for which cost is counted; 0: the context, at most 4096
	// Positions is "" or Interpolate. Interpolate stretches learned positions for texts of Length
	// tokens, and the folder out is then opened with them.
	Positions string
	Tokens    int // tokens of texts whose keys make the codebooks; 0: 16384
	// Fit is how many of these tokens are used to fit cells of order 0 to the trained model's
	// attention; nil: 8192 at most, and none if a higher Order is given, which has no fit.
	Fit *int
	// Updates is how often the queries of fitted cells are then trained towards the outputs of the
	// trained model; 0: never. It needs a Fit above 0, weights in f32 and two windows of text. The
	// result is kept if it loses less on windows set aside, and does not lose a wish that was met.
	Updates int
	Seed    uint64
	// Progress is called with each step and the share of the work that is done. It may be nil.
	Progress func(step string, share float64)
}

// WriteExchanged puts multipole attention, whose cost is linear in the tokens, in place of the
// softmax of the published model in dir, and writes the new model to the folder out, which Open
// reads. It makes codebooks of the keys of texts, and chooses the cheapest cells and near field
// that keep the wished quality on the last fifth of the texts. If none does, it leaves some layers
// as they are. page says in Markdown what the model loses, and whether its near field alone would
// do as well. WriteExchanged returns an error if out exists, if the model cannot have the
// mechanism, if the texts are too short, if the wish can only be met with every layer unchanged, if
// ctx ends, or if a file cannot be written.
func WriteExchanged(ctx context.Context, out, dir string, texts []string, o ExchangeOptions) (page []byte, err error) {
	m, err := OpenWith(dir, Options{Positions: o.Positions})
	if err != nil {
		return nil, err
	}
	subject, err := m.ExchangeSubject()
	if err != nil {
		return nil, err
	}
	n := subject.WindowTokens(o.Length)
	var windows [][]int32
	for _, text := range texts {
		list, err := m.Windows(text, n)
		if err != nil {
			return nil, err
		}
		windows = append(windows, list...)
	}
	x := exchange.Options{Cells: o.Cells, Order: o.Order, Block: o.Block, Window: o.Window, Length: cmp.Or(o.Length, n), Updates: o.Updates, Seed: o.Seed, Say: o.Progress}
	if o.Cosine != 0 || o.Nats != 0 {
		x.Wish = &exchange.Wish{Cosine: o.Cosine, Nats: o.Nats}
	}
	var in exchange.Texts
	tokens := exchange.BoundTokens(m.Config(), cmp.Or(o.Tokens, exchange.DefaultTokens))
	if x.Fit, err = exchange.FitTokens(o.Fit, o.Order, tokens); err != nil {
		return nil, err
	}
	if in.Calibration, in.HeldOut, err = exchange.CutWindows(windows, tokens); err != nil {
		return nil, err
	}
	r, err := exchange.Run(ctx, subject, in, x)
	if err != nil {
		return nil, err
	}
	page = r.Page(filepath.Base(dir))
	if len(r.Exchanged) == 0 {
		return page, fmt.Errorf("%s: the wish is met only with every layer exact", dir)
	}
	return page, exchanged.Write(out, dir, r.Manifest(), r.Numbers(), map[string][]byte{exchanged.PageFile: page})
}
