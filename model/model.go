package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Model is a transformer with its weights and the memory of its passes. The memory is
// kept for the largest batch. Methods must not run at the same time. Sessions of one
// model may, while its weights do not change.
type Model[T tensor.Float] struct {
	config Config
	params *param.Set[T]
	// constants are drawn by mechanisms and not learned. Files contain them.
	constants *param.Set[T]
	layers    []layer[T] // of attention, in the order in which they are built

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

// Batch is B sequences of N positions. Lens gives the number of valid positions of each
// sequence. Later positions are masked, not pooled and not counted.
type Batch struct {
	B, N   int
	Tokens []int32   // [B·N]
	Values []float32 // [B·N·Inputs] in place of Tokens
	Lens   []int64   // [B]; nil: all are valid

	// KeyMask [B·N] says which positions exist, beside Lens; nil: all. Others are masked,
	// not pooled and not counted. It needs attention as the mixer.
	KeyMask []bool
	// Positions [B·N] are rows of the learned table; nil: 0, 1, … of each sequence, after
	// Config.PositionOffset.
	Positions []int32
	Types     []int32 // [B·N] rows of the table of token types; nil: all 0

	// Targets [Config.Rows(B, N)] are classes. Squared and Logistics have numbers
	// [Config.Rows(B, N), Config.Numbers()] instead, which are levels for Logistics.
	Targets []int32   // a target of -1 is not counted
	Numbers []float32 // a number that is NaN is not counted

	// The source of an encoder-decoder.
	Source     []int32 // [B·SourceN]
	SourceN    int
	SourceLens []int64 // [B]; nil: all are valid

	// Key is the random key of dropout. Every update needs another key.
	Key rng.Key

	// Ctx ends Forward and Backward with its error between two blocks. The gradients
	// are then incomplete. nil: no end.
	Ctx context.Context
}

// New returns a model with initial weights drawn by key. Weights are N(0, 0.02²).
// Projections that add to the residual stream are divided by √(2·layers). Biases are 0
// and gains 1. Convolutions are 1 for the token itself plus N(0, 0.3²). Gate biases of
// a learned decay are nn.RetentionGate.
//
// New returns an error if c is invalid.
func New[T tensor.Float](c Config, key rng.Key) (*Model[T], error) {
	return buildModel[T](c, &key)
}

// NewUndrawn returns New without its draws: matrices are 0. It serves callers that set
// every weight. It returns an error if c is invalid.
func NewUndrawn[T tensor.Float](c Config) (*Model[T], error) { return buildModel[T](c, nil) }

func buildModel[T tensor.Float](c Config, key *rng.Key) (*Model[T], error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Set, c.LayerWindows = maps.Clone(c.Set), slices.Clone(c.LayerWindows)
	b := &builder[T]{c: c, key: key}
	m := &Model[T]{config: c, params: &b.set, constants: &b.constants}
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
	switch {
	case c.Tied:
		m.head.W = m.main.entry.embed.W
		if c.biases().Head {
			m.head.B = b.addConstant("head.bias", 0, c.Vocab)
		}
	case c.Kind == Convolutional && c.HeadHidden == 0:
		m.head.Linear = b.uniformLinear("head", c.outputSize(), read, c.Bias)
	default:
		m.head.Linear = b.newLinear("head", 1, c.outputSize(), read, c.biases().Head)
	}
	m.layers = b.layers
	m.train.encoder.keep, m.train.main.keep = true, true
	return m, b.err
}

// Share returns a model with the weights and gradients of m and its own memory for
// passes. Both may compute at the same time while no weight changes. A Backward of one
// excludes any other use of both.
func (m *Model[T]) Share() *Model[T] {
	c := &Model[T]{config: m.config, params: m.params, constants: m.constants, layers: m.layers, net: m.net, pool: m.pool}
	c.head.Linear = m.head.Linear
	for _, s := range [...]struct{ to, from **stack[T] }{{&c.main, &m.main}, {&c.encoder, &m.encoder}} {
		if *s.from != nil {
			own := **s.from // with rotations of its own
			*s.to = &own
		}
	}
	c.train.encoder.keep, c.train.main.keep = true, true
	return c
}

// Config returns the configuration.
func (m *Model[T]) Config() Config { return m.config }

// Params returns the weights.
func (m *Model[T]) Params() *param.Set[T] { return m.params }

// Constants returns the numbers that mechanisms draw and do not learn, such as random
// features.
func (m *Model[T]) Constants() *param.Set[T] { return m.constants }

// Aux returns the auxiliary loss of the last Forward, in the mean of its sequences. It
// is 0 for most mechanisms. Backward includes its gradient.
func (m *Model[T]) Aux() float64 {
	aux := m.train.main.auxLoss() + m.train.encoder.auxLoss()
	if m.net != nil && m.train.in.b > 0 {
		aux += m.train.net.attn.Aux() / float64(m.train.in.b)
	}
	return aux
}

// Forward returns the mean loss of the counted outputs, in nats or squared differences,
// and saves intermediate results for Backward. b must not change before Backward.
// Forward returns an error if b does not fit the model, no target is counted, or a
// mechanism refuses its call.
func (m *Model[T]) Forward(b *Batch) (loss float64, err error) {
	m.canBackward, m.canBackwardOutputs = false, false
	if err := m.runBody(b, &m.train); err != nil {
		return 0, err
	}
	if err := m.targets.setTargets(&m.config, b); err != nil {
		return 0, err
	}
	if m.targets.counted == 0 {
		return 0, errors.New("targets: none of them is counted")
	}
	x := m.readOutputs(&m.train)
	m.losses = slices.Grow(m.losses[:0], x.Rows)[:x.Rows]
	m.head.setLosses(m.losses, x, &m.targets)
	for _, l := range m.losses {
		loss += l
	}
	m.canBackward = true
	return loss / float64(m.targets.counted), nil
}

// Backward adds scale times the gradient of the last Forward's loss to the gradients of
// the weights. It returns an error if no Forward precedes it, or if a mechanism has no
// gradient.
func (m *Model[T]) Backward(scale T) error {
	if !m.canBackward {
		return errors.New("backward: no forward pass precedes it")
	}
	m.canBackward = false
	tr, sc := &m.train, &m.scratch
	dx := resizeMatrix(&sc.dy, tr.read.Rows, tr.read.Cols)
	m.head.backward(dx, tr.read, &m.targets, scale/T(m.targets.counted))
	return m.fromOutputs(m.pool.backward(dx, tr.body, &tr.in, &tr.pool, sc), scale)
}

// Outputs returns the rows [B·N,width] before pooling and head, and saves intermediate
// results for BackwardOutputs. It serves losses other than the model's. With PoolCLS
// each sequence begins with the class row. A convolutional net returns windows of rows.
// The result is valid until the next pass; b must not change before BackwardOutputs.
//
// Outputs returns an error if b does not fit the model or a mechanism refuses its call.
func (m *Model[T]) Outputs(b *Batch) (tensor.Mat[T], error) {
	m.canBackward = false
	err := m.runBody(b, &m.train)
	m.canBackwardOutputs = err == nil
	return m.train.body, err
}

// BackwardOutputs adds to the gradients of the weights, from the gradient dy of the
// rows that Outputs returned, of their shape. It adds scale times the gradient of the
// auxiliary loss. It returns an error if no Outputs precedes it or dy has another
// shape.
func (m *Model[T]) BackwardOutputs(dy tensor.Mat[T], scale T) error {
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
	return m.fromOutputs(kept, scale)
}

// fromOutputs is Backward before pooling and head. It overwrites dy.
func (m *Model[T]) fromOutputs(dy tensor.Mat[T], scale T) error {
	tr, sc := &m.train, &m.scratch
	sc.branch.Aux = scale / T(tr.in.b)
	if m.net != nil {
		return m.net.backward(dy, &tr.in, &tr.net, sc)
	}
	source := tr.in.source
	dsource := resizeMatrix(&sc.dsource, source.Rows, source.Cols)
	clear(dsource.Data)
	if err := m.main.backward(dy, dsource, &tr.main, sc); err != nil {
		return err
	}
	if m.encoder != nil {
		return m.encoder.backward(dsource, tensor.Mat[T]{}, &tr.encoder, sc)
	}
	return nil
}

// Losses sets dst [Config.Rows(B, N)] to the loss of each output, 0 where the target is
// not counted. A Backward that is due stays possible.
//
// Losses returns an error if dst or b do not fit the model, and attention.ErrNonFinite
// if a loss is not finite.
func (m *Model[T]) Losses(b *Batch, dst []float64) error {
	if b == nil {
		return errNoBatch
	}
	if rows := m.config.Rows(b.B, b.N); len(dst) != rows {
		return fmt.Errorf("losses: destination has %d elements, a batch of %d·%d has %d outputs", len(dst), b.B, b.N, rows)
	}
	if err := m.runBody(b, &m.eval); err != nil {
		return err
	}
	var t targets
	if err := t.setTargets(&m.config, b); err != nil {
		return err
	}
	m.head.setLosses(dst, m.readOutputs(&m.eval), &t)
	return checkFinite("losses", dst, 1)
}

// Logits sets dst [Config.Rows(B, N), outputs] to the outputs of the head. outputs is
// Config.Outputs or, if it is 0, Vocab. A Backward that is due stays possible.
//
// Logits returns an error if dst or b do not fit the model, and attention.ErrNonFinite
// if an output is not finite.
func (m *Model[T]) Logits(b *Batch, dst []T) error {
	return m.setLogits(b, dst, func() error { return m.runBody(b, &m.eval) })
}

// setLogits is Logits with the given pass before the head.
func (m *Model[T]) setLogits(b *Batch, dst []T, run func() error) error {
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
	x := m.readOutputs(&m.eval)
	m.head.Forward(resizeMatrix(&dst, x.Rows, outputs), x, false)
	return checkFinite("logits", dst, outputs)
}

// Vectors appends one vector for each sequence or pair of b to dst, and returns dst
// [rows·width] and the width. A vector is the pooled input of the head. Without pooling
// it is the mean of the outputs at valid positions. A Backward that is due stays
// possible.
//
// Vectors returns an error if b does not fit the model, and attention.ErrNonFinite if a
// number is not finite.
func (m *Model[T]) Vectors(dst []T, b *Batch) (out []T, width int, err error) {
	if err := m.runBody(b, &m.eval); err != nil {
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

// runBody runs a pass before pooling and head.
func (m *Model[T]) runBody(b *Batch, p *passes[T]) (err error) {
	if err := m.checkBatch(b); err != nil {
		return err
	}
	p.in = p.reading.readBatch(b, m.config.Inputs, m.config.frontPositions())
	if m.net != nil {
		p.body, err = m.net.forward(&p.in, &p.net, p.main.keep)
		return err
	}
	if m.encoder != nil {
		source, err := m.encoder.forward(input[T]{b: b.B, n: b.SourceN, tokens: b.Source, lens: b.SourceLens, key: b.Key.Fold(1), ctx: b.Ctx}, &p.encoder)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		p.in.source, p.in.sourceLens = source, b.SourceLens
	}
	p.body, err = m.main.forward(p.in, &p.main)
	return err
}

// readOutputs returns the input of the head: the pooled outputs of a pass.
func (m *Model[T]) readOutputs(p *passes[T]) tensor.Mat[T] {
	p.read = m.pool.forward(p.body, &p.in, &p.pool)
	return p.read
}

var errNoBatch = errors.New("batch: it is nil")

// checkBatch returns an error for the first field of b that does not fit, except
// targets.
func (m *Model[T]) checkBatch(b *Batch) error {
	if b == nil {
		return errNoBatch
	}
	if b.B <= 0 || b.N <= 0 {
		return fmt.Errorf("batch: %d sequences of %d tokens", b.B, b.N)
	}
	if tensor.Size(b.B, b.N, max(m.config.Inputs, 1)) == math.MaxInt {
		return fmt.Errorf("batch: %d sequences of %d tokens are beyond any memory", b.B, b.N)
	}
	if m.config.Parts == 2 && b.B%2 != 0 {
		return fmt.Errorf("batch: %d sequences, pairs need an even number", b.B)
	}
	if err := m.checkInputs(b); err != nil {
		return err
	}
	if err := checkLens("lens", b.Lens, b.B, b.N); err != nil {
		return err
	}
	if err := m.checkPlaces(b); err != nil {
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
	if tensor.Size(b.B, b.SourceN) == math.MaxInt {
		return fmt.Errorf("source: %d sequences of %d tokens are beyond any memory", b.B, b.SourceN)
	}
	if err := checkTokens("source", b.Source, b.B, b.SourceN, m.config.sourceVocab(), 0); err != nil {
		return err
	}
	return checkLens("source lens", b.SourceLens, b.B, b.SourceN)
}

// checkPlaces returns an error if key mask, positions or types of b do not fit.
func (m *Model[T]) checkPlaces(b *Batch) error {
	c := &m.config
	if b.KeyMask != nil {
		if _, owns := nn.LookupMixer(c.Mechanism); owns || c.Kind == Convolutional || c.Conv != 0 {
			return fmt.Errorf("key_mask: has %d elements, but kind %s with mechanism %s and conv %d takes lengths alone", len(b.KeyMask), c.Kind, c.Mechanism, c.Conv)
		}
		if len(b.KeyMask) != b.B*b.N {
			return fmt.Errorf("key_mask: has %d elements, B·N is %d·%d", len(b.KeyMask), b.B, b.N)
		}
	}
	if b.Types != nil {
		if c.TokenTypes == 0 {
			return fmt.Errorf("types: there are %d, but the model has no token types", len(b.Types))
		}
		if err := checkTokens("types", b.Types, b.B, b.N, c.TokenTypes, 0); err != nil {
			return err
		}
	}
	if b.Positions == nil {
		return nil
	}
	if c.Positions != Learned || c.frontPositions() > 0 {
		return fmt.Errorf("positions: there are %d, but positions are %s with pool %q; needs %s and another pool than %s", len(b.Positions), c.Positions, c.Pool, Learned, PoolCLS)
	}
	if len(b.Positions) != b.B*b.N {
		return fmt.Errorf("positions: has %d elements, B·N is %d·%d", len(b.Positions), b.B, b.N)
	}
	for i, p := range b.Positions {
		if p < 0 || int(p) >= c.positionRows() {
			return fmt.Errorf("positions: row %d, position %d is %d, the learned table has %d", i/b.N, i%b.N, p, c.positionRows())
		}
	}
	return nil
}

// checkInputs returns an error if tokens or numbers of b do not fit.
func (m *Model[T]) checkInputs(b *Batch) error {
	inputs := m.config.Inputs
	switch {
	case inputs == 0 && b.Values != nil:
		return fmt.Errorf("values: there are %d, but the model reads tokens", len(b.Values))
	case inputs == 0:
		return checkTokens("tokens", b.Tokens, b.B, b.N, m.config.Vocab, 0)
	case b.Tokens != nil:
		return fmt.Errorf("tokens: there are %d, but the model reads numbers", len(b.Tokens))
	case len(b.Values) != b.B*b.N*inputs:
		return fmt.Errorf("values: has %d elements, B·N·inputs is %d·%d·%d", len(b.Values), b.B, b.N, inputs)
	}
	for i, x := range b.Values {
		if x-x != 0 {
			return fmt.Errorf("values: row %d, position %d has %v", i/inputs/b.N, i/inputs%b.N, x)
		}
	}
	return nil
}

// checkTokens returns an error for an id outside least ≤ id < vocab.
func checkTokens(name string, ids []int32, b, n, vocab int, least int32) error {
	if len(ids) != tensor.Size(b, n) {
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
