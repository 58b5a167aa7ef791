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

// Model is a transformer with its weights and the memory of its passes, which is kept for the
// largest batch. A pass checks its context between blocks and returns the error of the context.
// Methods must not run at the same time. Sessions of one model may, while its weights do not
// change.
//
// New, NewUndrawn and Load return models.
type Model struct {
	config Config
	params *param.Set
	// constants are drawn by mechanisms and not learned. Files contain them.
	constants *param.Set
	seeds     map[string]uint64 // of layers whose mechanism draws as it computes, by their names
	layers    []layer           // of attention, in the order in which they are built
	built     []*param.Param    // weights, without mechanisms that WrapMechanisms set

	precision  nn.Precision              // of the weights
	compressed map[string]*nn.Compressed // weights in fewer bits, by the names of their parameters

	encoder *stack // of an encoder-decoder; nil otherwise
	main    *stack // nil: net
	net     *convNet
	pool    pool
	head    head

	train, eval        passes
	targets            targets // of the last Forward
	losses             []float64
	canBackward        bool // Backward may follow
	canBackwardOutputs bool // BackwardOutputs may follow
	scratch            scratch
}

// passes holds the traces of the encoder and of the stack or net below the head.
type passes struct {
	encoder, main trace
	net           convTrace
	pool          poolTrace
	reading       batchCopy
	in            input      // input of the stack or net below the head
	body, read    tensor.Mat // [b·n,width], and the input of the head
}

// New returns a model with initial weights drawn by key. Weights are N(0, 0.02²).
// Projections that add to the residual stream are divided by √(2·layers). Biases are 0
// and gains 1. Convolutions are 1 for the token itself plus N(0, 0.3²). Gate biases of
// a learned decay are nn.RetentionGate.
//
// New returns an error if c is invalid.
func New(c Config, key rng.Key) (*Model, error) {
	return buildModel(c, &builder{key: &key, seeds: map[string]uint64{}})
}

// NewUndrawn returns a model as New does, but with matrices of zeros, for callers that set every
// weight. Mechanisms draw their random numbers from fixed seeds. It returns an error if c is
// invalid.
func NewUndrawn(c Config) (*Model, error) {
	return newUndrawn(c, map[string]uint64{})
}

// Load reads the model that Save wrote to a folder. Weights in float64 are rounded. It returns an
// error for another version, and for weights that are missing, unknown, misshapen or not finite.
func Load(dir string) (*Model, error) { return LoadWith(dir, nil) }

// LoadWith reads a model as Load does, in which mechanisms of your own are built by factories, by
// their names in the configuration. farfield.WithFactories does the same for a run.
func LoadWith(dir string, factories map[string]Factory) (*Model, error) {
	m, err := LoadIn(dir, nn.Float32, factories)
	return m, err
}

// newUndrawn returns a model as NewUndrawn does, in which a layer whose name is in seeds has that
// seed.
func newUndrawn(c Config, seeds map[string]uint64) (*Model, error) {
	key := rng.New(0)
	return buildModel(c, &builder{key: &key, undrawn: true, seeds: seeds})
}

// buildModel returns a model of configuration c, built by a new builder b. If b has a key, seeds of
// layers that b.seeds lacks are drawn and added to it.
func buildModel(c Config, b *builder) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.Clone()
	c.Positions = c.positions()
	b.c = c
	m := &Model{config: c, params: &b.set, constants: &b.constants, seeds: b.seeds}
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
	m.pool = pool{kind: c.Pool, pairs: c.Parts == 2}
	read := c.pooledWidth()
	if c.HeadHidden > 0 {
		l := b.newLinear("head_hidden", 1, c.HeadHidden, read, c.biases().HeadHidden)
		m.pool.hidden, m.pool.act, read = &l, headActivations[c.HeadActivation], c.HeadHidden
		if c.HeadNorm {
			m.pool.norm = b.newNorm("head_norm", c.HeadHidden)
		}
	}
	m.head.Linear, m.head.limit = new(nn.Linear), c.LogitCap
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

// Share returns a model with the weights and gradients of m and its own memory for
// passes. Both may compute at the same time while no weight changes. A Backward of one
// excludes any other use of both.
func (m *Model) Share() *Model {
	c := &Model{config: m.config, params: m.params, constants: m.constants, seeds: m.seeds, layers: m.layers, built: m.built, precision: m.precision, compressed: m.compressed, net: m.net, pool: m.pool}
	c.head.Linear, c.head.limit = m.head.Linear, m.head.limit
	for _, s := range [...]struct{ to, from **stack }{{&c.main, &m.main}, {&c.encoder, &m.encoder}} {
		if *s.from != nil {
			own := **s.from // with rotations of its own
			*s.to = &own
		}
	}
	c.train.encoder.keep, c.train.main.keep = true, true
	return c
}

// Config returns a copy of the configuration.
func (m *Model) Config() Config { return m.config.Clone() }

// Params returns the weights and, in the Grad of each, their gradients, to which each Backward adds
// until ZeroGrad of the set. The learned parameters of mechanisms are among them (WrapMechanisms).
func (m *Model) Params() *param.Set { return m.params }

// Constants returns the numbers that mechanisms draw and do not learn, such as random
// features.
func (m *Model) Constants() *param.Set { return m.constants }

// Aux returns the auxiliary loss of the last Forward, averaged over its sequences. It is 0 for
// most mechanisms. Backward includes its gradient.
func (m *Model) Aux() float64 {
	aux := m.train.main.auxLoss() + m.train.encoder.auxLoss()
	if m.net != nil && m.train.in.b > 0 {
		aux += m.train.net.attn.Aux() / float64(m.train.in.b)
	}
	return aux
}

// Forward returns the mean loss of the counted outputs, in nats or squared differences,
// and saves intermediate results for Backward. b must not change before Backward.
// Forward returns an error if b does not fit the model, no target is counted, or a
// mechanism refuses its call, and attention.ErrNonFinite if the loss is not finite. Backward
// uses the same ctx.
func (m *Model) Forward(ctx context.Context, b *Batch) (loss float64, err error) {
	m.canBackward, m.canBackwardOutputs = false, false
	if err := m.train.run(ctx, m, b); err != nil {
		return 0, err
	}
	if err := m.targets.setTargets(&m.config, b); err != nil {
		return 0, err
	}
	if m.targets.counted == 0 {
		return 0, errNotCounted
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

// Backward adds scale times the gradient of the last Forward's loss to the gradients of
// the weights. It returns an error if no Forward precedes it, or if a mechanism has no
// gradient. After an error the gradients are incomplete.
func (m *Model) Backward(scale tensor.Float) error {
	if !m.canBackward {
		return errors.New("backward: no forward pass precedes it")
	}
	m.canBackward = false
	tr, sc := &m.train, &m.scratch
	dx := resizeMatrix(&sc.dy, tr.read.Rows, tr.read.Cols)
	m.head.backward(dx, tr.read, &m.targets, scale/float(m.targets.counted))
	return tr.backward(m, m.pool.backward(dx, tr.body, &tr.in, &tr.pool, sc), scale)
}

// ForwardLogits sets dst [Config.Rows(B, N), outputs] to the outputs of the head, and saves
// intermediate results for BackwardLogits. Use it for a loss other than the model's: compute
// the gradient of the loss with respect to the logits, and pass it to BackwardLogits. b needs
// no targets, and must not change before BackwardLogits. Dropout applies as in Forward.
//
// ForwardLogits returns an error if dst or b do not fit the model, a mechanism refuses its
// call, or ctx ends, and attention.ErrNonFinite if an output is not finite.
func (m *Model) ForwardLogits(ctx context.Context, b *Batch, dst []tensor.Float) error {
	m.canBackward, m.canBackwardOutputs = false, false
	err := m.setLogits(&m.train, b, dst, func() error { return m.train.run(ctx, m, b) })
	m.canBackwardOutputs = err == nil
	return err
}

// Outputs returns the rows [B·N,width] before pooling and head, and saves intermediate
// results for BackwardOutputs, for losses of these rows. With PoolCLS each sequence begins
// with the class row. A convolutional net returns windows of rows. The result is valid until
// the next pass; b must not change before BackwardOutputs.
//
// Outputs returns an error if b does not fit the model or a mechanism refuses its call.
func (m *Model) Outputs(ctx context.Context, b *Batch) (tensor.Mat, error) {
	m.canBackward = false
	err := m.train.run(ctx, m, b)
	m.canBackwardOutputs = err == nil
	return m.train.body, err
}

// BackwardOutputs adds the gradient of a loss to the gradients of the weights, given its gradient
// dy with respect to the rows that Outputs returned. It also adds scale times the gradient of the
// auxiliary loss (Aux). It returns an error if no Outputs precedes it or dy has another shape.
func (m *Model) BackwardOutputs(dy tensor.Mat, scale tensor.Float) error {
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

// Losses sets dst [Config.Rows(B, N)] to the loss of each output, 0 where the target is
// not counted. It may be called between a Forward and its Backward.
//
// Losses returns an error if dst or b do not fit the model, and attention.ErrNonFinite
// if a loss is not finite.
func (m *Model) Losses(ctx context.Context, b *Batch, dst []float64) error {
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

// Logits sets dst [Config.Rows(B, N), outputs] to the outputs of the head. outputs is
// Config.Outputs or, if it is 0, Vocab. It may be called between a Forward and its Backward.
//
// Logits returns an error if dst or b do not fit the model, and attention.ErrNonFinite
// if an output is not finite.
func (m *Model) Logits(ctx context.Context, b *Batch, dst []tensor.Float) error {
	return m.setLogits(&m.eval, b, dst, func() error { return m.eval.run(ctx, m, b) })
}

// setLogits calls run, which runs a pass in p, and sets dst to the outputs of the head.
func (m *Model) setLogits(p *passes, b *Batch, dst []float, run func() error) error {
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

// Vectors appends one vector for each sequence or pair of b to dst, and returns dst
// [rows·width] and the width. A vector is the pooled input of the head. Without pooling
// it is the mean of the outputs at valid positions. It may be called between a Forward and its
// Backward.
//
// Vectors returns an error if b does not fit the model, and attention.ErrNonFinite if a
// number is not finite.
func (m *Model) Vectors(ctx context.Context, dst []tensor.Float, b *Batch) (out []tensor.Float, width int, err error) {
	if err := m.eval.run(ctx, m, b); err != nil {
		return dst, 0, err
	}
	read := m.pool
	if read.kind == "" {
		read = pool{kind: PoolMean}
	}
	x := read.forward(m.eval.body, &m.eval.in, &m.eval.pool)
	at := len(dst)
	for i := range x.Rows {
		dst = append(dst, x.Row(i)...)
	}
	return dst, x.Cols, checkFinite("vectors", dst[at:], x.Cols)
}

// run computes the rows before pooling and head.
func (p *passes) run(ctx context.Context, m *Model, b *Batch) (err error) {
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
		source, err := m.encoder.forward(input{b: b.B, n: b.SourceN, tokens: b.Source, lens: b.SourceLens, key: b.Key.Fold(1), ctx: ctx}, &p.encoder)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		p.in.source, p.in.sourceLens = source, b.SourceLens
	}
	p.body, err = m.main.forward(p.in, &p.main)
	return err
}

// readOutputs returns the input of the head: the pooled outputs of the pass.
func (p *passes) readOutputs(by *pool) tensor.Mat {
	p.read = by.forward(p.body, &p.in, &p.pool)
	return p.read
}

// backward adds the gradients through the rows before pooling and head, given their gradient dy,
// which it overwrites.
func (p *passes) backward(m *Model, dy tensor.Mat, scale float) error {
	sc := &m.scratch
	sc.branch.Aux = scale / float(p.in.b)
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
		return m.encoder.backward(dsource, tensor.Mat{}, &p.encoder, sc)
	}
	return nil
}
