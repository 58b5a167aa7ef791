package model

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// modelOf is Model with elements of type T. The tests of gradients use float64.
type modelOf[T tensor.Float] struct {
	config Config
	params *param.Set[T]
	// constants are drawn by mechanisms and not learned. Files contain them.
	constants *param.Set[T]
	seeds     map[string]uint64 // of layers whose mechanism draws as it computes, by their names
	layers    []layer[T]        // of attention, in the order in which they are built
	built     []*param.Param[T] // weights, without mechanisms that WrapMechanisms set

	precision  nn.Precision              // of the weights
	compressed map[string]*nn.Compressed // weights in fewer bits, by the names of their parameters

	encoder *stack[T] // of an encoder-decoder; nil otherwise
	main    *stack[T] // nil: net
	net     *convNet[T]
	pool    pool[T]
	head    head[T]

	train, eval        passes[T]
	targets            targets // of the last Forward
	losses             []float64
	canBackward        bool // Backward may follow
	canBackwardOutputs bool // BackwardOutputs may follow
	scratch            scratch[T]
}

// passes holds the traces of the encoder and of the stack or net below the head.
type passes[T tensor.Float] struct {
	encoder, main trace[T]
	net           convTrace[T]
	pool          poolTrace[T]
	reading       batchCopy[T]
	in            input[T]      // input of the stack or net below the head
	body, read    tensor.Mat[T] // [b·n,width], and the input of the head
}

// newModel is New for elements of type T.
func newModel[T tensor.Float](c Config, key rng.Key) (*modelOf[T], error) {
	return buildModel(c, &builder[T]{key: &key, seeds: map[string]uint64{}})
}

// newUndrawn is NewUndrawn, in which layers that have a seed in seeds keep it.
func newUndrawn[T tensor.Float](c Config, seeds map[string]uint64) (*modelOf[T], error) {
	key := rng.New(0)
	return buildModel(c, &builder[T]{key: &key, undrawn: true, seeds: seeds})
}

// buildModel returns a model of c by a new builder. The seeds of the builder receive those of
// layers, or without a key hold them.
func buildModel[T tensor.Float](c Config, b *builder[T]) (*modelOf[T], error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.Clone()
	b.c = c
	m := &modelOf[T]{config: c, params: &b.set, constants: &b.constants, seeds: b.seeds}
	if c.Kind == EncoderDecoder {
		m.encoder = b.newStack("encoder.", c.sourceLayers(), c.sourceVocab(), false, false)
	}
	if c.Kind == Convolutional {
		m.net = b.newConvNet()
	} else {
		m.main = b.newStack("", c.Layers, c.Vocab, c.IsCausal(), c.Kind == EncoderDecoder)
	}
	if c.SharedEmbedding {
		m.encoder.entry.embed = m.main.entry.embed
	}
	m.pool = pool[T]{kind: c.Pool, pairs: c.Parts == 2}
	read := c.pooledWidth()
	if c.HeadHidden > 0 {
		l := b.newLinear("head_hidden", 1, c.HeadHidden, read, c.biases().HeadHidden)
		m.pool.hidden, m.pool.act, read = &l, headActivations[c.HeadActivation], c.HeadHidden
		if c.HeadNorm {
			m.pool.norm = b.newNorm("head_norm", c.HeadHidden)
		}
	}
	m.head.Linear, m.head.limit = new(nn.Linear[T]), c.LogitCap
	switch {
	case c.Tied:
		m.head.W = m.main.entry.embed.W
		if c.biases().Head {
			m.head.B = b.addConstant("head.bias", 0, c.Vocab)
		}
	case c.Kind == Convolutional && c.HeadHidden == 0:
		*m.head.Linear = b.uniformLinear("head", c.outputSize(), read, c.Bias)
	default:
		*m.head.Linear = b.newLinear("head", 1, c.outputSize(), read, c.biases().Head)
	}
	m.layers, m.built = b.layers, slices.Clone(b.set.All())
	m.train.encoder.keep, m.train.main.keep = true, true
	return m, b.err
}

// Share is Model.Share.
func (m *modelOf[T]) Share() *modelOf[T] {
	c := &modelOf[T]{config: m.config, params: m.params, constants: m.constants, seeds: m.seeds, layers: m.layers, built: m.built, precision: m.precision, compressed: m.compressed, net: m.net, pool: m.pool}
	c.head.Linear, c.head.limit = m.head.Linear, m.head.limit
	for _, s := range [...]struct{ to, from **stack[T] }{{&c.main, &m.main}, {&c.encoder, &m.encoder}} {
		if *s.from != nil {
			own := **s.from // with rotations of its own
			*s.to = &own
		}
	}
	c.train.encoder.keep, c.train.main.keep = true, true
	return c
}

// Config is Model.Config.
func (m *modelOf[T]) Config() Config { return m.config.Clone() }

// Params is Model.Params.
func (m *modelOf[T]) Params() *param.Set[T] { return m.params }

// Constants is Model.Constants.
func (m *modelOf[T]) Constants() *param.Set[T] { return m.constants }

// Aux is Model.Aux.
func (m *modelOf[T]) Aux() float64 {
	aux := m.train.main.auxLoss() + m.train.encoder.auxLoss()
	if m.net != nil && m.train.in.b > 0 {
		aux += m.train.net.attn.Aux() / float64(m.train.in.b)
	}
	return aux
}

// Forward is Model.Forward.
func (m *modelOf[T]) Forward(ctx context.Context, b *Batch) (loss float64, err error) {
	m.canBackward, m.canBackwardOutputs = false, false
	if err := m.train.run(ctx, m, b); err != nil {
		return 0, err
	}
	if err := m.targets.setTargets(&m.config, b); err != nil {
		return 0, err
	}
	if m.targets.counted == 0 {
		return 0, errors.New("targets: none of them is counted")
	}
	x := m.train.readOutputs(&m.pool)
	m.losses = slices.Grow(m.losses[:0], x.Rows)[:x.Rows]
	m.head.setLosses(m.losses, x, &m.targets)
	for _, l := range m.losses {
		loss += l
	}
	if err := checkFinite("losses", m.losses, 1); err != nil {
		return 0, err
	}
	m.canBackward = true
	return loss / float64(m.targets.counted), nil
}

// Backward is Model.Backward.
func (m *modelOf[T]) Backward(scale T) error {
	if !m.canBackward {
		return errors.New("backward: no forward pass precedes it")
	}
	m.canBackward = false
	tr, sc := &m.train, &m.scratch
	dx := resizeMatrix(&sc.dy, tr.read.Rows, tr.read.Cols)
	m.head.backward(dx, tr.read, &m.targets, scale/T(m.targets.counted))
	return tr.backward(m, m.pool.backward(dx, tr.body, &tr.in, &tr.pool, sc), scale)
}

// ForwardLogits is Model.ForwardLogits.
func (m *modelOf[T]) ForwardLogits(ctx context.Context, b *Batch, dst []T) error {
	m.canBackward, m.canBackwardOutputs = false, false
	err := m.setLogits(&m.train, b, dst, func() error { return m.train.run(ctx, m, b) })
	m.canBackwardOutputs = err == nil
	return err
}

// Outputs is Model.Outputs.
func (m *modelOf[T]) Outputs(ctx context.Context, b *Batch) (tensor.Mat[T], error) {
	m.canBackward = false
	err := m.train.run(ctx, m, b)
	m.canBackwardOutputs = err == nil
	return m.train.body, err
}

// BackwardOutputs is Model.BackwardOutputs.
func (m *modelOf[T]) BackwardOutputs(dy tensor.Mat[T], scale T) error {
	y := m.train.body
	if !m.canBackwardOutputs {
		return errors.New("backward: no outputs precede it")
	}
	if dy.Rows != y.Rows || dy.Cols != y.Cols {
		return fmt.Errorf("backward: dy is [%d,%d], outputs are [%d,%d]", dy.Rows, dy.Cols, y.Rows, y.Cols)
	}
	m.canBackwardOutputs = false
	kept := resizeMatrix(&m.scratch.dy, dy.Rows, dy.Cols)
	for i := range dy.Rows {
		copy(kept.Row(i), dy.Row(i))
	}
	return m.train.backward(m, kept, scale)
}

// Losses is Model.Losses.
func (m *modelOf[T]) Losses(ctx context.Context, b *Batch, dst []float64) error {
	if b == nil {
		return errNoBatch
	}
	if rows := m.config.Rows(b.B, b.N); len(dst) != rows {
		return fmt.Errorf("losses: destination has %d elements, a batch of %d·%d has %d outputs", len(dst), b.B, b.N, rows)
	}
	if err := m.eval.run(ctx, m, b); err != nil {
		return err
	}
	var t targets
	if err := t.setTargets(&m.config, b); err != nil {
		return err
	}
	m.head.setLosses(dst, m.eval.readOutputs(&m.pool), &t)
	return checkFinite("losses", dst, 1)
}

// Logits is Model.Logits.
func (m *modelOf[T]) Logits(ctx context.Context, b *Batch, dst []T) error {
	return m.setLogits(&m.eval, b, dst, func() error { return m.eval.run(ctx, m, b) })
}

// setLogits sets dst to the outputs of the head after the pass that run runs in p.
func (m *modelOf[T]) setLogits(p *passes[T], b *Batch, dst []T, run func() error) error {
	if b == nil {
		return errNoBatch
	}
	rows, outputs := m.config.Rows(b.B, b.N), m.config.outputSize()
	if len(dst) != rows*outputs {
		return fmt.Errorf("logits: destination has %d elements, a batch of %d·%d has %d outputs of %d", len(dst), b.B, b.N, rows, outputs)
	}
	if err := run(); err != nil {
		return err
	}
	x := p.readOutputs(&m.pool)
	m.head.forward(resizeMatrix(&dst, x.Rows, outputs), x)
	return checkFinite("logits", dst, outputs)
}

// Vectors is Model.Vectors.
func (m *modelOf[T]) Vectors(ctx context.Context, dst []T, b *Batch) (out []T, width int, err error) {
	if err := m.eval.run(ctx, m, b); err != nil {
		return dst, 0, err
	}
	read := m.pool
	if read.kind == "" {
		read = pool[T]{kind: PoolMean}
	}
	x := read.forward(m.eval.body, &m.eval.in, &m.eval.pool)
	at := len(dst)
	for i := range x.Rows {
		dst = append(dst, x.Row(i)...)
	}
	return dst, x.Cols, checkFinite("vectors", dst[at:], x.Cols)
}

// run runs a pass of a model before pooling and head.
func (p *passes[T]) run(ctx context.Context, m *modelOf[T], b *Batch) (err error) {
	if err := b.check(&m.config); err != nil {
		return err
	}
	if p.main.keep {
		if err := m.checkPrecision("forward"); err != nil {
			return err
		}
	}
	p.in = p.reading.readBatch(b, m.config.Inputs, m.config.frontPositions())
	p.in.ctx = ctx
	if m.net != nil {
		p.body, err = m.net.forward(&p.in, &p.net, p.main.keep)
		return err
	}
	if m.encoder != nil {
		source, err := m.encoder.forward(input[T]{b: b.B, n: b.SourceN, tokens: b.Source, lens: b.SourceLens, key: b.Key.Fold(1), ctx: ctx}, &p.encoder)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		p.in.source, p.in.sourceLens = source, b.SourceLens
	}
	p.body, err = m.main.forward(p.in, &p.main)
	return err
}

// readOutputs returns the input of the head: the pooled outputs of the pass.
func (p *passes[T]) readOutputs(by *pool[T]) tensor.Mat[T] {
	p.read = by.forward(p.body, &p.in, &p.pool)
	return p.read
}

// backward is Backward of a model before pooling and head. It overwrites dy.
func (p *passes[T]) backward(m *modelOf[T], dy tensor.Mat[T], scale T) error {
	sc := &m.scratch
	sc.branch.Aux = scale / T(p.in.b)
	if m.net != nil {
		return m.net.backward(dy, &p.in, &p.net, sc)
	}
	source := p.in.source
	dsource := resizeMatrix(&sc.dsource, source.Rows, source.Cols)
	clear(dsource.Data)
	if err := m.main.backward(dy, dsource, &p.main, sc); err != nil {
		return err
	}
	if m.encoder != nil {
		return m.encoder.backward(dsource, tensor.Mat[T]{}, &p.encoder, sc)
	}
	return nil
}
