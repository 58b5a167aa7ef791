package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/engine"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/attention/internal/hybrid"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/tensor"
)

// Package engine computes calls and states. These are its names for callers.

// RowDiagnosis accumulates statistics of a row's weights, one after another. Weights of the
// exponential are divided by e^top, the largest so far.
type RowDiagnosis = engine.RowDiagnosis

var ErrStepKeeps = engine.ErrStepKeeps

// ForwardByStep sets out [B,H,N,Dv] like Forward, token by token through a State of m.
// If padded is set, keys beyond the key length of a row are masked tokens with queries of
// their own. It returns the errors of m.NewState and of the State.
func ForwardByStep[T tensor.Float](m Mechanism[T], out tensor.Heads[T], c *Call[T], padded bool) error {
	return engine.ForwardByStep[T](m, out, c, padded)
}

// BatchRow returns the view of batch row b of x [B,H,N,D].
func BatchRow[T tensor.Float](x tensor.Heads[T], b int) tensor.Heads[T] {
	return engine.BatchRow[T](x, b)
}

// Locality describes where the weights of one query head lie: means over the queries
// that see a key, of p_j = |w_j| / Σ|w|, as in Diagnosis. Query i among M keys has the
// position i + (M-N).
type Locality = engine.Locality

// Locate returns the locality of rows of the attention matrix a [rows,M], as
// Mechanism.Weights returns them. place is the position of the first query.
func Locate[T tensor.Float](a tensor.Mat[T], place int) Locality {
	return engine.Locate[T](a, place)
}

// ErrNotMergeable says that a state cannot be followed by another of its kind.
var ErrNotMergeable = engine.ErrNotMergeable

// Mergeable returns next as a state of kind S that can follow a state of shape s and
// identity id. parts returns the identity and the shape of a state. It returns an error
// if kind, identity or shape differ.
func Mergeable[S interface {
	comparable
	State[T]
}, T tensor.Float](id Identity, s *Shape, next State[T], parts func(S) (Identity, *Shape)) (S, error) {
	return engine.Mergeable[S, T](id, s, next, parts)
}

// Prepared returns the rows of a call as the feature map of m gets them: normalised,
// rotated and, for queries, scaled; q [B,H,N,D] and k [B,Hkv,M,D]. Masked keys are
// zeros. Constants of a map are fitted to these rows. It returns an error if c does not
// fit, and for mechanisms of whole heads and with a window.
func Prepared[T tensor.Float](m Mechanism[T], c *Call[T]) (q, k tensor.Heads[T], err error) {
	return engine.Prepared[T](m, c)
}

// Identity is whose states a snapshot may be.
type Identity = engine.Identity

// NewSnapshot returns a writer of a snapshot and appends its header to b, for a state
// of shape s. id and sum identify the mechanism and its parameters.
func NewSnapshot[T tensor.Float](b []byte, id Identity, sum snapshot.ParameterSum, s *Shape, tokens int64, decay bool) *snapshot.Writer {
	return engine.NewSnapshot[T](b, id, sum, s, tokens, decay)
}

// ReadSnapshot reads the header of a snapshot of id and of the parameters with checksum
// sum. The content is left in r. It returns an error if data is damaged, or of another
// mechanism, setting, parameter or element type.
func ReadSnapshot[T tensor.Float](data []byte, id Identity, sum snapshot.ParameterSum) (s Shape, tokens int64, r *snapshot.Reader, err error) {
	return engine.ReadSnapshot[T](data, id, sum)
}

// Softmax is attention with the weights exp(scale·q·k + bias) over their sum, in blocks
// that are not saved: a building block of headwise mechanisms. It may be used
// concurrently.
type Softmax[T tensor.Float] = engine.Softmax[T]

// NewSoftmax returns a dense softmax kernel. scale multiplies q·k; 0 means 1/√D.
func NewSoftmax[T tensor.Float](scale float64) *Softmax[T] {
	return engine.NewSoftmax[T](scale)
}

// Rows are the queries, keys and values of a Softmax, with any strides.
type Rows[T tensor.Float] = engine.Rows[T]

// RowsGrad are the gradients of Rows.
type RowsGrad[T tensor.Float] = engine.RowsGrad[T]

// StateCore is a State without the checks of its calls. CheckedAbsorb, CheckedRead and
// CheckedStep make the methods of a State from it.
type StateCore[T tensor.Float] = engine.StateCore[T]

// CheckedAbsorb absorbs the keys and values of c into s. It returns an error if they do
// not fit the state.
func CheckedAbsorb[T tensor.Float](c *Call[T], s StateCore[T]) error {
	return engine.CheckedAbsorb[T](c, s)
}

// CheckedRead sets out [B,H,N,Dv] for the queries of c. It returns an error if they do not
// fit the state, and a *NonFiniteError if rows of out are not finite.
func CheckedRead[T tensor.Float](out tensor.Heads[T], c *Call[T], s StateCore[T]) error {
	return engine.CheckedRead[T](out, c, s)
}

// CheckedStep absorbs the tokens of c one by one and sets out [B,H,N,Dv] for their queries.
// It returns an error if they do not fit the state, and a *NonFiniteError if rows of out are
// not finite.
func CheckedStep[T tensor.Float](out tensor.Heads[T], c *Call[T], s StateCore[T]) error {
	return engine.CheckedStep[T](out, c, s)
}

// Total is the content of a state of sums in a form that adds up. If a sequence is
// divided into parts, the sum of the totals of earlier parts is the total of the state
// before a part. Its size does not depend on the number of tokens. The zero value is
// ready for use; memory is reused.
type Total[T tensor.Float] = engine.Total[T]

// Span is the effect of a part's tokens on the sums before them.
type Span = engine.Span

// TotalOf sets t to the total of st. The chunk of st ends: the next chunk begins with
// the next token. It returns an error if st is no state of sums over features.
func TotalOf[T tensor.Float](t *Total[T], st State[T]) error {
	return engine.TotalOf[T](t, st)
}

// SetTotal makes st a state with the total t. It returns an error if st is no state of
// sums over features, or t has other heads or sums than st.
func SetTotal[T tensor.Float](st State[T], t *Total[T]) error {
	return engine.SetTotal[T](st, t)
}

// AgesOf appends to the slice to [n], for each key head, the part of StateGrad.Ages that
// comes from the keys of a state. sums [s] and gradient [s] have the order of
// Total.Sums of a state like st. It returns an error if their lengths do not fit st.
func AgesOf[T tensor.Float](to []float64, st State[T], sums, gradient []T) ([]float64, error) {
	return engine.AgesOf[T](to, st, sums, gradient)
}

// HeadProjector makes the queries, keys and values of a token head by head.
type HeadProjector[T tensor.Float] = engine.HeadProjector[T]

// StepMemory returns the memory that each step of s reads from one end to the other, where a
// state takes a head at a time; nil where it does not.
func StepMemory[T tensor.Float](s State[T]) []T {
	return engine.StepMemory[T](s)
}

// StepPerHead is s.Step(out, c) for one token of each batch row, out [B,H,1,Dv]. from
// makes the rows of a head, with work floating-point operations for all heads. A state
// that processes head by head (Plan.Renews) computes each head as soon as its rows are
// made, while rows and state are in the caches. It returns an error if out or c do not
// fit the state, or if q has more than one token.
func StepPerHead[T tensor.Float](s State[T], out tensor.Heads[T], c *Call[T], from HeadProjector[T], work float64) error {
	return engine.StepPerHead[T](s, out, c, from, work)
}

// New returns the mechanism that s describes. It returns an error if its fields do not fit
// together.
func New[T tensor.Float](s Spec[T]) (Mechanism[T], error) {
	if s.Window != nil {
		return hybrid.New(s)
	}
	e, err := engine.New(headtask.Spec[T]{Spec: s})
	if err != nil {
		return nil, err
	}
	return e, nil
}
