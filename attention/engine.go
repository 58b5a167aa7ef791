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
//
// Fields and methods:
//
//	type RowDiagnosis struct {
//		SeenKeys int64
//
//		Sum, Size float64 // Σw, Σ|w|
//		// contains filtered or unexported fields
//	}
//	func (r *RowDiagnosis) AddWeight(w, left float64)
//	func (r *RowDiagnosis) Entropy() float64
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
//
// Fields and methods:
//
//	type Locality struct {
//		Queries  int     `json:"queries"`   // that see a key
//		Entropy  float64 `json:"entropy"`   // -Σ p_j ln p_j, in nats
//		Distance float64 `json:"distance"`  // Σ p_j |j - place|, in tokens
//		Diagonal float64 `json:"diagonal"`  // p at the place itself
//		Column   float64 `json:"column"`    // p at the key that has most of the weight of all queries
//		ColumnAt int     `json:"column_at"` // which key that is
//	}
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
//
// Fields and methods:
//
//	type Identity struct{ Kind, Name, Setting string }
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
//
// Fields and methods:
//
//	type Softmax[T tensor.Float] struct {
//		// contains filtered or unexported fields
//	}
//	func (s *Softmax[T]) Backward(ar *arena.Arena, g *RowsGrad[T], out tensor.Mat[T], lse []T, x *Rows[T])
//	func (s *Softmax[T]) Forward(ar *arena.Arena, out tensor.Mat[T], lse []T, x *Rows[T])
type Softmax[T tensor.Float] = engine.Softmax[T]

// NewSoftmax returns a dense softmax kernel. scale multiplies q·k; 0 means 1/√D.
func NewSoftmax[T tensor.Float](scale float64) *Softmax[T] {
	return engine.NewSoftmax[T](scale)
}

// Rows are the queries, keys and values of a Softmax, with any strides.
//
// Fields and methods:
//
//	type Rows[T tensor.Float] struct {
//		Q, K, V tensor.Mat[T] // [n,D], [m,D], [m,Dv]; D and Dv are 1 or more
//		Causal  bool
//		Offset  int    // query i sees keys j ≤ i+Off, where Causal
//		Mask    []bool // [m] keys that exist; nil: all. What others hold reaches nothing
//		Bias    []T    // [m] finite, added to the scores of each key; nil: none
//		// Keys holds the indices in K, V and Bias of the keys that take part, in any order,
//		// all unmasked; nil: all unmasked keys. Causal then counts among them.
//		Keys []int32
//	}
type Rows[T tensor.Float] = engine.Rows[T]

// RowsGrad are the gradients of Rows.
//
// Fields and methods:
//
//	type RowsGrad[T tensor.Float] struct {
//		DOut       tensor.Mat[T] // given
//		DQ, DK, DV tensor.Mat[T] // overwritten; with Keys their rows of DK and DV are added to
//		DBias      []T           // added to; nil: not wanted
//	}
type RowsGrad[T tensor.Float] = engine.RowsGrad[T]

// StateCore is a State without the checks of its calls. CheckedAbsorb, CheckedRead and
// CheckedStep make the methods of a State from it.
//
// Fields and methods:
//
//	type StateCore[T tensor.Float] interface {
//		StateShape() *Shape
//		// Refuse returns an error if states of the mechanism do not support c.
//		Refuse(c *Call[T]) error
//		// Run absorbs m keys and sets out for n queries in every head. If n and m are
//		// equal and above 0, query i sees the keys up to its own.
//		Run(out tensor.Heads[T], c *Call[T], n, m int)
//	}
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
//
// Fields and methods:
//
//	type Total[T tensor.Float] struct {
//		// Sums [B·Hkv, F, 1+Dv] are for every feature the sum of its products with the
//		// ones under the values, and with the values.
//		Sums   []T
//		Spans  []Span // [B·Hkv]
//		Tokens int64
//		Decay  bool // the tokens have met a decay
//	}
type Total[T tensor.Float] = engine.Total[T]

// Span is the effect of a part's tokens on the sums before them.
//
// Fields and methods:
//
//	type Span struct {
//		HasKeys         bool    // one of their keys is unmasked
//		LogDecay        float64 // Σ log_g up to the last unmasked key
//		PendingLogDecay float64 // Σ log_g after it, deferred to the next unmasked key
//	}
//	func (s Span) Join(next Span) Span
//	func (s Span) Leaves(before Span) float64
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
//
// Fields and methods:
//
//	type HeadProjector[T tensor.Float] interface {
//		// Head sets head h of Q, K and V in every batch row, and no other head. It may run
//		// for several heads at a time. ahead is the state memory of the head, which is read
//		// next: prefetch it during the projection.
//		Head(h int, ahead []T)
//	}
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
