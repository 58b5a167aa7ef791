package model

import (
	"context"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Model is a transformer with its weights and the memory of its passes. The memory is
// kept for the largest batch. A pass whose context ends returns the error of the context
// between two blocks. Methods must not run at the same time. Sessions of one
// model may, while its weights do not change.
//
// New, NewUndrawn and Load return models.
type Model struct{ of modelMethods }

// modelMethods are the methods of modelOf[float32]. A package compiles every generic type that
// it can reach through the fields of the types it uses, with all its methods, and so the fields
// of Model, Session and SessionGroup are interfaces. For the same reason the compiler must not
// inline a function of this package that names modelOf and can be called from others.
type modelMethods interface {
	Config() Config
	Params() *param.Set[float32]
	Constants() *param.Set[float32]
	Forward(ctx context.Context, b *Batch) (loss float64, err error)
	Backward(scale float32) error
	Aux() float64
	ForwardLogits(ctx context.Context, b *Batch, dst []float32) error
	Outputs(ctx context.Context, b *Batch) (tensor.Mat[float32], error)
	BackwardOutputs(dy tensor.Mat[float32], scale float32) error
	BackwardLogits(dlogits []float32, scale float32) error
	Losses(ctx context.Context, b *Batch, dst []float64) error
	Logits(ctx context.Context, b *Batch, dst []float32) error
	Vectors(ctx context.Context, dst []float32, b *Batch) (out []float32, width int, err error)
	VisitLayers(ctx context.Context, b *Batch, visit func(source bool, layer int, rows tensor.Mat[float32]) error) error
	VisitLogits(ctx context.Context, b *Batch, dst []float32, visit func(source bool, layer int, rows tensor.Mat[float32]) error) error
	TrainSegments(ctx context.Context, b *Batch, size int, scale float32, done func(done, all int) error) (loss float64, err error)
	CanSegment(size int) error
	SegmentLosses(ctx context.Context, b *Batch, size int, dst []float64, done func(done, all int) error) error
	TrainDivided(ctx context.Context, c *comm.Comm, b *Batch, scale float32) (loss float64, err error)
	CanDivide() error
	newSession(batch int) (*Session, error)
	newSourceSession(source []int32, lens []int64, batch int) (*Session, error)
	restoreSession(data []byte) (*Session, error)
	newSessionGroup() (*SessionGroup, error)
	share() *Model
	Freeze()
	FreezeBody()
	Thaw()
	exchanged(x Exchange) (*Model, error)
	SetNumbers(numbers map[string][]float32) error
	AttentionNames() []string
	CheckMechanisms() error
	Redraw(key rng.Key, updates int) error
	Save(dir string) error
	WeightSum() string
	Compress(p nn.Precision) error
	Reserve(p nn.Precision) error
	Compressed(name string) *nn.Compressed
	Precision() nn.Precision
}

// float32Model has the methods of modelOf[float32] with results that are not generic.
type float32Model struct{ *modelOf[float32] }

// newFace returns the Model of m, unless there is an error.
func newFace(m *modelOf[float32], err error) (*Model, error) {
	if err != nil {
		return nil, err
	}
	return &Model{float32Model{m}}, nil
}

// inner returns the generic model of m.
func inner(m *Model) *modelOf[float32] { return m.of.(float32Model).modelOf }

func (m float32Model) share() *Model { return &Model{float32Model{m.Share()}} }

func (m float32Model) exchanged(x Exchange) (*Model, error) { return newFace(m.Exchanged(x)) }

func (m float32Model) newSession(batch int) (*Session, error) {
	return newSessionFace(m.NewSession(batch))
}

func (m float32Model) newSourceSession(source []int32, lens []int64, batch int) (*Session, error) {
	return newSessionFace(m.NewSourceSession(source, lens, batch))
}

func (m float32Model) restoreSession(data []byte) (*Session, error) {
	return newSessionFace(m.RestoreSession(data))
}

func (m float32Model) newSessionGroup() (*SessionGroup, error) {
	g, err := m.NewSessionGroup()
	if err != nil {
		return nil, err
	}
	return &SessionGroup{&float32Group{groupOf: g}}, nil
}

// New returns a model with initial weights drawn by key. Weights are N(0, 0.02²).
// Projections that add to the residual stream are divided by √(2·layers). Biases are 0
// and gains 1. Convolutions are 1 for the token itself plus N(0, 0.3²). Gate biases of
// a learned decay are nn.RetentionGate.
//
// New returns an error if c is invalid.
//
//go:noinline
func New(c Config, key rng.Key) (*Model, error) { return newFace(newModel[float32](c, key)) }

// NewUndrawn returns New without its draws of weights: matrices are 0. It serves callers that
// set every weight. What mechanisms draw is drawn, always the same. It returns an error if c is
// invalid.
//
//go:noinline
func NewUndrawn(c Config) (*Model, error) {
	return newFace(newUndrawn[float32](c, map[string]uint64{}))
}

// Load reads the model that Save wrote to a folder. Weights in float64 are rounded. It returns an
// error for another version, and for weights that are missing, unknown, misshapen or not finite.
//
//go:noinline
func Load(dir string) (*Model, error) { return newFace(loadModel[float32](dir, nil)) }

// LoadWith is Load of a model with mechanisms of your own, which factories build by their names
// in the configuration. train.LoadModelWith reads those of a run.
//
//go:noinline
func LoadWith(dir string, factories map[string]Factory) (*Model, error) {
	return newFace(loadModel[float32](dir, factories))
}

// LoadIn is LoadWith of a model that holds its weights in a precision, as Compress makes one. They are
// never all in memory in 32 bits. It also returns an error where Compress does.
//
//go:noinline
func LoadIn(dir string, p nn.Precision, factories map[string]Factory) (*Model, error) {
	return newFace(loadModelIn[float32](dir, p, factories))
}

// NewOf returns New with elements of type T. It serves tests that need the precision of float64:
// a package that calls it compiles the generic code of models and layers for T.
func NewOf[T tensor.Float](c Config, key rng.Key) (*modelOf[T], error) { return newModel[T](c, key) }

// Config returns a copy of the configuration.
func (m *Model) Config() Config { return m.of.Config() }

// Params returns the weights and, in the Grad of each, their gradients, to which each Backward adds
// until ZeroGrad of the set. The learned parameters of mechanisms are among them (WrapMechanisms).
func (m *Model) Params() *param.Set[float32] { return m.of.Params() }

// Constants returns the numbers that mechanisms draw and do not learn, such as random
// features.
func (m *Model) Constants() *param.Set[float32] { return m.of.Constants() }

// Forward returns the mean loss of the counted outputs, in nats or squared differences,
// and saves intermediate results for Backward. b must not change before Backward.
// Forward returns an error if b does not fit the model, no target is counted, or a
// mechanism refuses its call, and attention.ErrNonFinite if the loss is not finite. ctx
// is that of Backward, too.
func (m *Model) Forward(ctx context.Context, b *Batch) (loss float64, err error) {
	return m.of.Forward(ctx, b)
}

// Backward adds scale times the gradient of the last Forward's loss to the gradients of
// the weights. It returns an error if no Forward precedes it, or if a mechanism has no
// gradient. After an error the gradients are incomplete.
func (m *Model) Backward(scale float32) error { return m.of.Backward(scale) }

// Aux returns the auxiliary loss of the last Forward, in the mean of its sequences. It
// is 0 for most mechanisms. Backward includes its gradient.
func (m *Model) Aux() float64 { return m.of.Aux() }

// ForwardLogits sets dst [Config.Rows(B, N), outputs] to the outputs of the head, and saves
// intermediate results for BackwardLogits. It serves losses other than the model's: compute
// the gradient of the loss for the logits, and give it to BackwardLogits. b needs no targets,
// and must not change before BackwardLogits. Dropout drops what it drops in Forward.
//
// ForwardLogits returns an error if dst or b do not fit the model, a mechanism refuses its
// call, or ctx ends, and attention.ErrNonFinite if an output is not finite.
func (m *Model) ForwardLogits(ctx context.Context, b *Batch, dst []float32) error {
	return m.of.ForwardLogits(ctx, b, dst)
}

// Outputs returns the rows [B·N,width] before pooling and head, and saves intermediate
// results for BackwardOutputs. It serves losses of these rows. With PoolCLS
// each sequence begins with the class row. A convolutional net returns windows of rows.
// The result is valid until the next pass; b must not change before BackwardOutputs.
//
// Outputs returns an error if b does not fit the model or a mechanism refuses its call.
func (m *Model) Outputs(ctx context.Context, b *Batch) (tensor.Mat[float32], error) {
	return m.of.Outputs(ctx, b)
}

// BackwardOutputs adds the gradient of a loss to the gradients of the weights. dy is its gradient
// for the rows that Outputs returned, of their shape. BackwardOutputs also adds scale times the
// gradient of the auxiliary loss (Aux). It returns an error if no Outputs precedes it or dy has
// another shape.
func (m *Model) BackwardOutputs(dy tensor.Mat[float32], scale float32) error {
	return m.of.BackwardOutputs(dy, scale)
}

// BackwardLogits adds the gradient of a loss to the gradients of the weights. dlogits
// [Config.Rows(B, N), outputs] is its gradient for the logits of the last ForwardLogits.
// BackwardLogits also adds scale times the gradient of the auxiliary loss (Aux). It returns an error if no ForwardLogits precedes it or
// dlogits has another size.
func (m *Model) BackwardLogits(dlogits []float32, scale float32) error {
	return m.of.BackwardLogits(dlogits, scale)
}

// Losses sets dst [Config.Rows(B, N)] to the loss of each output, 0 where the target is
// not counted. It may be called between a Forward and its Backward.
//
// Losses returns an error if dst or b do not fit the model, and attention.ErrNonFinite
// if a loss is not finite.
func (m *Model) Losses(ctx context.Context, b *Batch, dst []float64) error {
	return m.of.Losses(ctx, b, dst)
}

// Logits sets dst [Config.Rows(B, N), outputs] to the outputs of the head. outputs is
// Config.Outputs or, if it is 0, Vocab. It may be called between a Forward and its Backward.
//
// Logits returns an error if dst or b do not fit the model, and attention.ErrNonFinite
// if an output is not finite.
func (m *Model) Logits(ctx context.Context, b *Batch, dst []float32) error {
	return m.of.Logits(ctx, b, dst)
}

// Vectors appends one vector for each sequence or pair of b to dst, and returns dst
// [rows·width] and the width. A vector is the pooled input of the head. Without pooling
// it is the mean of the outputs at valid positions. It may be called between a Forward and its
// Backward.
//
// Vectors returns an error if b does not fit the model, and attention.ErrNonFinite if a
// number is not finite.
func (m *Model) Vectors(ctx context.Context, dst []float32, b *Batch) (out []float32, width int, err error) {
	return m.of.Vectors(ctx, dst, b)
}

// VisitLayers runs a pass of b and calls visit with the rows between layers. With PoolCLS
// each sequence begins with the class row. It may be called between a Forward and its Backward.
//
// VisitLayers returns an error if the model is a convolutional net, b does not fit the
// model, a mechanism refuses its call, or visit returns one.
func (m *Model) VisitLayers(ctx context.Context, b *Batch, visit Visit) error {
	return m.of.VisitLayers(ctx, b, visit)
}

// VisitLogits is VisitLayers and Logits in one pass: it calls visit, and sets dst
// [Config.Rows(B, N), outputs] to the outputs of the head. It returns an error where one of
// them does.
func (m *Model) VisitLogits(ctx context.Context, b *Batch, dst []float32, visit Visit) error {
	return m.of.VisitLogits(ctx, b, dst, visit)
}

// TrainSegments is Forward and Backward of b in segments of size positions. The
// gradient is the gradient of the whole sequences. A first pass saves the states at the
// ends of segments. A second pass goes from the last segment to the first: it computes
// each segment once more and passes the gradients of its initial states on. Memory
// grows with size, and with each segment by its states.
//
// done may be nil. It gets the finished positions and all positions of both passes.
//
// TrainSegments returns an error if CanSegment does, b does not fit the model, no
// target is counted, or done returns one.
func (m *Model) TrainSegments(ctx context.Context, b *Batch, size int, scale float32, done func(done, all int) error) (loss float64, err error) {
	return m.of.TrainSegments(ctx, b, size, scale, done)
}

// CanSegment returns an error if the model cannot process sequences in parts of size
// positions. A decoder can if it has no units before the head, and if its mixers are
// attention with a state of fixed size that has gradients.
func (m *Model) CanSegment(size int) error { return m.of.CanSegment(size) }

// SegmentLosses sets dst [B·N] to the Losses of b, in segments of size positions.
// Memory grows with size alone. done may be nil. It gets the finished positions and all
// positions.
//
// SegmentLosses returns an error if CanSegment does, b or dst do not fit the model, a
// loss is not finite, or done returns one.
func (m *Model) SegmentLosses(ctx context.Context, b *Batch, size int, dst []float64, done func(done, all int) error) error {
	return m.of.SegmentLosses(ctx, b, size, dst, done)
}

// TrainDivided is Forward and Backward of b with sequences divided among ranks. Each
// rank has an equal number of tokens; the last rank has the remainder. Every rank gets
// all of b and has the same weights.
//
// All ranks go through the layers at the same time. Attention exchanges totals of
// states forward and their gradients backward (package comm/sequence). Convolutions
// exchange the rows at the ends. The memory of a rank grows with its own tokens.
//
// TrainDivided returns the loss of the rank's tokens and adds the gradient of that loss
// to the gradients of the weights. The sums over ranks are the loss and the gradient of
// b.
//
// It returns an error if CanDivide does, b does not fit the model, a rank would have no
// tokens, or the exchange fails, and attention.ErrNonFinite if the loss is not finite.
func (m *Model) TrainDivided(ctx context.Context, c *comm.Comm, b *Batch, scale float32) (loss float64, err error) {
	return m.of.TrainDivided(ctx, c, b, scale)
}

// CanDivide returns an error if the model cannot divide sequences among ranks. It can if it
// trains in segments (CanSegment) and the states of its attention are sums.
func (m *Model) CanDivide() error { return m.of.CanDivide() }

// NewSession returns a session of batch empty sequences. It returns an error if the
// configuration has no sessions, batch is out of range, or a mixer has no state.
func (m *Model) NewSession(batch int) (*Session, error) { return m.of.newSession(batch) }

// NewSourceSession returns a session of batch empty targets of an encoder-decoder, for the
// sources [batch·M]. lens [batch] are the tokens of each source; nil: M. The encoder reads
// the sources once. The session keeps their keys and values, which Reset and Clone leave as
// they are. It has no snapshot.
//
// NewSourceSession returns an error if the model is no encoder-decoder, batch is out of
// range, the sources do not fit the model, a mixer has no state, or cross-attention
// depends on the places of its queries.
func (m *Model) NewSourceSession(source []int32, lens []int64, batch int) (*Session, error) {
	return m.of.newSourceSession(source, lens, batch)
}

// RestoreSession returns the session of the snapshot data. It returns an error if data
// is damaged or of another version, or if the model has another configuration or
// element type.
func (m *Model) RestoreSession(data []byte) (*Session, error) { return m.of.restoreSession(data) }

// NewSessionGroup returns a group without sessions. It returns an error if the
// configuration has no sessions.
func (m *Model) NewSessionGroup() (*SessionGroup, error) { return m.of.newSessionGroup() }

// Share returns a model with the weights and gradients of m and its own memory for
// passes. Both may compute at the same time while no weight changes. A Backward of one
// excludes any other use of both.
func (m *Model) Share() *Model { return m.of.share() }

// Freeze packs the weights of projections, MLPs and head for passes. Passes of few rows
// gain most. Results keep their bits. The copy is as large as the weights. Until Thaw no
// weight may change.
func (m *Model) Freeze() { m.of.Freeze() }

// FreezeBody is Freeze without the head, for passes that do not read it.
func (m *Model) FreezeBody() { m.of.FreezeBody() }

// Thaw drops the copy of Freeze.
func (m *Model) Thaw() { m.of.Thaw() }

// Exchanged returns a model of the configuration that Config.Exchanged returns, with copies of the
// weights of m. What the mechanism draws is drawn, always the same. The learned numbers of a
// mechanism that stays with other settings stay with it. Save writes the model, and Load reads it
// back the same.
//
// Exchanged returns an error where Config.Exchanged and CheckMechanisms do, and if the learned
// numbers of a mechanism that stays have other shapes with the new settings.
func (m *Model) Exchanged(x Exchange) (*Model, error) { return m.of.exchanged(x) }

// SetNumbers sets numbers of the mechanisms of m by their names, such as layers.0.attn.codebook.
// Before it sets any it returns an error if m has no numbers of a name, or another count of them.
func (m *Model) SetNumbers(numbers map[string][]float32) error { return m.of.SetNumbers(numbers) }

// AttentionNames returns the names of the layers of attention, such as layers.0.attn, in
// the order of a pass.
func (m *Model) AttentionNames() []string { return m.of.AttentionNames() }

// CheckMechanisms returns an error that names the first layer whose mechanism is not the one
// of the configuration, because WrapMechanisms set it: no file describes such a model.
func (m *Model) CheckMechanisms() error { return m.of.CheckMechanisms() }

// Redraw draws the constants of the mechanisms anew if their setting redraw divides
// updates. The numbers depend only on key and updates, so a run that continues from a
// checkpoint draws the same. Redraw returns an error if a mechanism refuses its
// options.
func (m *Model) Redraw(key rng.Key, updates int) error { return m.of.Redraw(key, updates) }

// Save writes the configuration and the weights to a folder, and creates the folder if
// it does not exist. Each file is replaced as a whole. Both together are replaced as a
// whole only in an empty folder. Save returns an error if a file cannot be written, and
// before anything is written the error of CheckMechanisms.
func (m *Model) Save(dir string) error { return m.of.Save(dir) }

// WeightSum returns the SHA-256 of the names and bits of the weights, in hexadecimal
// digits.
func (m *Model) WeightSum() string { return m.of.WeightSum() }
