package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Model is a transformer with its weights and the memory of its passes, which
// is kept for the largest batch met. Its methods must not run at the same time;
// sessions of one model may, as long as its weights do not change.
type Model[T tensor.Float] struct {
	config Config
	params *param.Set[T]
	// constants are drawn by mechanisms and not learned; files have them.
	constants *param.Set[T]
	layers    []layer[T] // of attention, in the order in which they are built

	encoder *stack[T] // of an encoder-decoder; nil otherwise
	main    *stack[T]
	head    head[T]

	train, eval passes[T]
	targets     []int32 // of the last Forward, -1 where not counted
	losses      []float64
	counted     int
	ready       bool // Backward may follow
	open        bool // BackwardOutputs may follow
	scratch     scratch[T]
}

// passes are the traces of the encoder and of what has the head.
type passes[T tensor.Float] struct{ encoder, main trace[T] }

// Batch is B sequences of N tokens. Lens gives the number of valid tokens of
// each row; those that follow are seen by none and not counted.
type Batch struct {
	B, N            int
	Tokens, Targets []int32 // [B·N]; a target of -1 is not counted
	Lens            []int64 // [B]; nil: all are valid

	// The source of an encoder-decoder.
	Source     []int32 // [B·SourceN]
	SourceN    int
	SourceLens []int64 // [B]; nil: all are valid

	// Key draws what Forward leaves out, if the model has dropout: another for
	// every update.
	Key rng.Key
}

// New returns a model with first weights drawn by key: N(0, 0.02²), projections
// that add to the residual stream divided by √(2·layers), biases 0, gains 1,
// convolutions 1 for the token itself plus N(0, 0.3²), biases of the gates of a
// learned decay nn.RetentionGate.
func New[T tensor.Float](c Config, key rng.Key) (*Model[T], error) {
	return build[T](c, &key)
}

func build[T tensor.Float](c Config, key *rng.Key) (*Model[T], error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Set = maps.Clone(c.Set)
	b := &builder[T]{c: c, key: key}
	m := &Model[T]{config: c, params: &b.set, constants: &b.constants}
	if c.Kind == EncoderDecoder {
		m.encoder = b.stack("encoder.", c.sourceVocab(), false, false)
	}
	m.main = b.stack("", c.Vocab, c.Kind != Encoder, c.Kind == EncoderDecoder)
	if c.Tied {
		m.head.W = m.main.embed.W
		if c.Bias {
			m.head.B = b.constant("head.bias", 0, c.Vocab)
		}
	} else {
		m.head.Linear = b.linear("head", deviation, c.Vocab, c.Width)
	}
	m.layers = b.layers
	m.train.encoder.keep, m.train.main.keep = true, true
	return m, b.err
}

// Config returns what New was given.
func (m *Model[T]) Config() Config { return m.config }

// Params returns the weights.
func (m *Model[T]) Params() *param.Set[T] { return m.params }

// Constants returns what mechanisms have drawn and do not learn, such as random
// features.
func (m *Model[T]) Constants() *param.Set[T] { return m.constants }

// Aux returns what mechanisms have to lose of their own, in the mean of the
// sequences of the last Forward: 0 for most. Backward follows its gradient too.
func (m *Model[T]) Aux() float64 { return m.train.main.aux() + m.train.encoder.aux() }

// Forward returns the mean loss of the counted targets, in nats, and keeps what
// Backward needs. b stays as it is until then.
func (m *Model[T]) Forward(b *Batch) (loss float64, err error) {
	m.ready, m.open = false, false
	y, err := m.outputs(b, &m.train)
	if err != nil {
		return 0, err
	}
	if err := m.setTargets(b); err != nil {
		return 0, err
	}
	if m.counted == 0 {
		return 0, errors.New("targets: none of them is counted")
	}
	m.losses = slices.Grow(m.losses[:0], y.Rows)[:y.Rows]
	m.head.losses(m.losses, y, m.targets)
	for _, l := range m.losses {
		loss += l
	}
	m.ready = true
	return loss / float64(m.counted), nil
}

// Backward adds scale times the gradient of the loss that Forward returned to
// those of the weights. It follows one Forward.
func (m *Model[T]) Backward(scale T) error {
	if !m.ready {
		return errors.New("backward: no forward pass precedes it")
	}
	m.ready = false
	tr, sc := &m.train, &m.scratch
	rows := len(m.targets)
	y := tensor.Mat[T]{Data: tr.main.y, Rows: rows, Cols: m.config.Width, Stride: m.config.Width}
	dy := mat(&sc.dy, rows, m.config.Width)
	m.head.backward(dy, y, m.targets, scale/T(m.counted))
	return m.fromOutputs(dy, scale)
}

// Outputs returns what the head reads of b, [B·N,width], for another loss than
// that of targets, and keeps what BackwardOutputs needs. It is valid until the
// next pass; b stays as it is until then.
func (m *Model[T]) Outputs(b *Batch) (tensor.Mat[T], error) {
	m.ready = false
	y, err := m.outputs(b, &m.train)
	m.open = err == nil
	return y, err
}

// BackwardOutputs adds to the gradients of the weights, from dy [B·N,width] of
// what Outputs returned; of what mechanisms lose of their own it follows scale
// times the gradient. It follows one Outputs.
func (m *Model[T]) BackwardOutputs(dy tensor.Mat[T], scale T) error {
	in := &m.train.main.in
	if !m.open {
		return errors.New("backward: no outputs precede it")
	}
	if dy.Rows != in.b*in.n || dy.Cols != m.config.Width {
		return fmt.Errorf("backward: dy is [%d,%d], outputs are [%d,%d]", dy.Rows, dy.Cols, in.b*in.n, m.config.Width)
	}
	m.open = false
	kept := mat(&m.scratch.dy, dy.Rows, dy.Cols)
	for i := range dy.Rows {
		copy(kept.Row(i), dy.Row(i))
	}
	return m.fromOutputs(kept, scale)
}

// fromOutputs is Backward before the head. It uses up dy.
func (m *Model[T]) fromOutputs(dy tensor.Mat[T], scale T) error {
	tr, sc := &m.train, &m.scratch
	sc.mix.Aux = scale / T(tr.main.in.b)
	source := tr.main.in.source
	dsource := mat(&sc.dsource, source.Rows, source.Cols)
	clear(dsource.Data)
	if err := m.main.backward(dy, dsource, &tr.main, sc); err != nil {
		return err
	}
	if m.encoder != nil {
		return m.encoder.backward(dsource, tensor.Mat[T]{}, &tr.encoder, sc)
	}
	return nil
}

// Losses sets dst [B·N] to the nats of each target, 0 where it is not counted.
// Nothing is kept; a Backward that is due stays possible.
func (m *Model[T]) Losses(b *Batch, dst []float64) error {
	if len(dst) != b.B*b.N {
		return fmt.Errorf("losses: destination has %d elements, B·N is %d·%d", len(dst), b.B, b.N)
	}
	y, err := m.outputs(b, &m.eval)
	if err != nil {
		return err
	}
	targets, _, err := m.countTargets(nil, b)
	if err != nil {
		return err
	}
	m.head.losses(dst, y, targets)
	return nil
}

// Logits sets dst [B·N,vocab]. Nothing is kept; a Backward that is due stays
// possible.
func (m *Model[T]) Logits(b *Batch, dst []T) error {
	if len(dst) != b.B*b.N*m.config.Vocab {
		return fmt.Errorf("logits: destination has %d elements, B·N·vocab is %d·%d·%d", len(dst), b.B, b.N, m.config.Vocab)
	}
	y, err := m.outputs(b, &m.eval)
	if err != nil {
		return err
	}
	m.head.Forward(mat(&dst, y.Rows, m.config.Vocab), y, false)
	return nil
}

// outputs runs everything before the head.
func (m *Model[T]) outputs(b *Batch, p *passes[T]) (tensor.Mat[T], error) {
	if err := m.check(b); err != nil {
		return tensor.Mat[T]{}, err
	}
	in := input[T]{b: b.B, n: b.N, tokens: b.Tokens, lens: b.Lens, key: b.Key.Fold(0)}
	if m.encoder != nil {
		source, err := m.encoder.forward(input[T]{b: b.B, n: b.SourceN, tokens: b.Source, lens: b.SourceLens, key: b.Key.Fold(1)}, &p.encoder)
		if err != nil {
			return source, fmt.Errorf("source: %w", err)
		}
		in.source, in.sourceLens = source, b.SourceLens
	}
	return m.main.forward(in, &p.main)
}

// check reports the first thing in b that does not fit, targets aside.
func (m *Model[T]) check(b *Batch) error {
	if b.B <= 0 || b.N <= 0 {
		return fmt.Errorf("batch: %d sequences of %d tokens", b.B, b.N)
	}
	if err := checkTokens("tokens", b.Tokens, b.B, b.N, m.config.Vocab, 0); err != nil {
		return err
	}
	if err := checkLens("lens", b.Lens, b.B, b.N); err != nil {
		return err
	}
	if m.encoder == nil {
		if b.Source != nil || b.SourceN != 0 || b.SourceLens != nil {
			return fmt.Errorf("source: %d tokens, but kind %s has no source", len(b.Source), m.config.Kind)
		}
		return nil
	}
	if b.SourceN <= 0 {
		return fmt.Errorf("source: %d sequences of %d tokens", b.B, b.SourceN)
	}
	if err := checkTokens("source", b.Source, b.B, b.SourceN, m.config.sourceVocab(), 0); err != nil {
		return err
	}
	return checkLens("source lens", b.SourceLens, b.B, b.SourceN)
}

// checkTokens reports ids outside least ≤ id < vocab.
func checkTokens(name string, ids []int32, b, n, vocab int, least int32) error {
	if len(ids) != b*n {
		return fmt.Errorf("%s: has %d elements, B·N is %d·%d", name, len(ids), b, n)
	}
	for i, id := range ids {
		if id < least || int(id) >= vocab {
			return fmt.Errorf("%s: row %d, position %d is %d, the vocabulary has %d", name, i/n, i%n, id, vocab)
		}
	}
	return nil
}

func checkLens(name string, lens []int64, b, n int) error {
	if lens != nil && len(lens) != b {
		return fmt.Errorf("%s: has %d elements, B is %d", name, len(lens), b)
	}
	for i, l := range lens {
		if l < 0 || l > int64(n) {
			return fmt.Errorf("%s: row %d is %d, N is %d", name, i, l, n)
		}
	}
	return nil
}

// setTargets keeps the targets of b, -1 where they are not counted.
func (m *Model[T]) setTargets(b *Batch) (err error) {
	m.targets, m.counted, err = m.countTargets(m.targets, b)
	return err
}

func (m *Model[T]) countTargets(dst []int32, b *Batch) (targets []int32, counted int, err error) {
	if err := checkTokens("targets", b.Targets, b.B, b.N, m.config.Vocab, -1); err != nil {
		return dst, 0, err
	}
	targets = append(dst[:0], b.Targets...)
	for i, t := range targets {
		if b.Lens != nil && int64(i%b.N) >= b.Lens[i/b.N] {
			targets[i] = -1
		} else if t >= 0 {
			counted++
		}
	}
	return targets, counted, nil
}
