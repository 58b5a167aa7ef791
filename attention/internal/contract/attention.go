package contract

import (
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Form is a way to compute a mechanism: direct, linear or step by step.
type Form int

const (
	Auto   Form = iota // Plan chooses by the sequence's own shape
	Direct             // every weight is computed: O(N·M)
	Linear             // sums of features: O(N+M)
	Step               // token by token through a State
)

// String returns the name of the form.
func (f Form) String() string {
	switch f {
	case Direct:
		return "direct"
	case Linear:
		return "linear"
	case Step:
		return "step"
	}
	return "auto"
}

// Call is everything that varies from call to call. Nothing in it is written but
// Final.
type Call[T tensor.Float] struct {
	Q tensor.Heads[T] // [B,H,N,D]
	K tensor.Heads[T] // [B,Hkv,M,D]; Hkv divides H
	V tensor.Heads[T] // [B,Hkv,M,Dv]

	Causal   bool    // query i sees keys j ≤ i + (M-N)
	KeyLens  []int64 // [B] valid keys of each batch row; nil: all
	KeyMask  []bool  // [B·M] keys that exist; nil: all
	AttnKeep []bool  // [N·M] pairs that see each other; nil: all; direct form only

	// CuQ and CuK pack sequences of different lengths into one batch row:
	// sequence s is tokens CuQ[s] ≤ n < CuQ[s+1] of Q, likewise K. B is 1.
	CuQ, CuK []int64

	// Init holds keys that come before the call's own: every query sees them.
	// Final becomes the state after the call, whatever it held. Either may be nil;
	// their B is the number of sequences, and each sequence has a row of its own
	// in them. States of sums go by their own chunk and carry, and their calls are
	// the linear form. Causal sequences have no more queries than keys.
	Init, Final State[T]

	Rope *spec.Rope[T] // rotation of rows between normalisation and features; nil: none
	Drop *spec.Drop    // dropout, for training; nil: none

	// LogG [B,Hkv,M,1] holds the natural logarithm of each token's factor of
	// decay, finite and 0 or less: the weight of key j for query i, which stands
	// at the place of key i + (M-N), is f(s_ij)·exp(Σ_{j<t≤i} LogG_t). Empty:
	// none. Only causal calls and states have it; a state that has met it goes on
	// with it, and tokens without have the factor 1. A key that does not exist
	// weighs nothing, but the time of its token passes.
	LogG tensor.Heads[T]

	Form  Form
	Chunk int // tokens per chunk of the linear form; 0: as planned
}

// Grads receives gradients, except DFinal, which is given. They are
// overwritten; gradients of the mechanism's parameters are added to its Params.
type Grads[T tensor.Float] struct {
	DQ, DK, DV tensor.Heads[T] // shaped as Q, K, V
	DLogG      tensor.Heads[T] // as LogG; empty: not wanted

	// DAux is the gradient of Saved.Aux, given: 0 where that is in no loss.
	DAux T

	// DFinal is the gradient of Call.Final; nil: no call follows. DInit receives the
	// gradient of Call.Init, the DFinal of the call before; nil: not wanted. Init must
	// be unchanged since Forward; the content of Final is not used.
	DFinal, DInit *StateGrad[T]
}

// Saved holds intermediate results of Forward for Backward, and counts of exceptional
// rows.
type Saved[T tensor.Float] struct {
	// Den [B,H,N] holds each query's denominator, for softmax its logarithm, for an
	// unnormalised Spec 1. Headwise mechanisms leave it empty. With packed sequences N
	// is the total. With decay weights, eps and that 1 are relative to the last key
	// that the query sees.
	Den []T

	// Moments holds the sums of all keys, for each key head of each sequence in the
	// linear form without causal masking: for every feature the padded sums of its
	// products with the values, after them the sums of the features.
	Moments [][]T

	// Heads holds for each query head of each sequence what a headwise mechanism
	// keeps.
	Heads [][]T

	parts SavedParts[T]

	// Aux is a loss of the mechanism's own, summed over the heads; most have none.
	Aux float64

	// Residual is how far iterations of the mechanism's own were from their end,
	// at the head of the call where they were farthest: of nystrom the largest
	// element of AZA - A, where Z has become the pseudo-inverse of A when it is 0.
	Residual float64

	UnseenCount int64 // queries that see no key: their output and gradients are 0
	// WeakCount counts ill-conditioned rows, queries whose denominator nearly cancels. Only
	// kernels with negative weights have them: den < 2⁻¹⁰ × (visible keys) × f̄(max|s|).
	// f̄ has the absolute coefficients of f. max|s| is the bound of the normalisation,
	// otherwise the product of the query's length and the longest key's. Such a row may
	// lose ten of the 24 bits of a float32, or its negative weights outweigh the others.
	// Keys of a state before the call count, with decay by their remaining weight. Sums
	// do not record the lengths of keys in closed chunks, and for single powers not their
	// number. For kernels that are never negative, WeakCount counts queries with output 0
	// whose weights are all 0, or whose reciprocal denominator overflows.
	WeakCount int64
	WeakAt    [3]int // batch row, head and query of the first weak row

	// NonFinite counts rows of the output that hold NaN or infinities: scores,
	// weights or sums of the call left the range of the element type, or a denominator
	// that may cancel is 0.
	NonFinite   int64
	NonFiniteAt [3]int // batch row, head and query of the first
}

// SavedParts are intermediate results that engines alone use.
type SavedParts[T tensor.Float] struct {
	Window any                   // of a mechanism with a window
	Sums   *headtask.BandSums[T] // of a band, where they are wanted
}

// SavedPartsOf returns the parts of s, to read and to set.
func SavedPartsOf[T tensor.Float](s *Saved[T]) *SavedParts[T] { return &s.parts }

// Traits says what a mechanism can honestly do.
type Traits struct {
	Name      string
	Positive  bool // weights are never negative
	Causal    bool // an output may be kept from later tokens: causal calls, and states
	Streaming bool // a State of fixed size exists
	Linear    bool // the linear form exists
	Products  bool // dropout may leave out products of channels (ProductDrop)
	Decay     bool // causal calls and states take a decay (Call.LogG)

	Dropout  bool   // calls may have dropout
	NoCausal string // a sentence that says why, where Causal is not set
	// CausalOnly: calls must be causal, since queries need a place among the keys.
	CausalOnly bool
	// Banded: keys near a query weigh otherwise than those far from it. An unmasked
	// call is a function of the places of its keys, and no state has it.
	Banded bool
}

// Mechanism is one attention function. Its methods may be called concurrently,
// except that Backward adds to Params.
type Mechanism[T tensor.Float] interface {
	Traits() Traits
	// Setting tells apart mechanisms of a name that compute different things from
	// the same parameters.
	Setting() string
	// Params returns the learned parameters, nil if there are none.
	Params() *param.Set[T]
	// Constants returns numbers that were drawn once and are not learned, such as random
	// features; nil: none. They are saved beside the parameters; to replace them, write
	// Data.
	Constants() *param.Set[T]

	// What is set overlaps nothing else: neither out nor a gradient may lie where the
	// call, dout or one another do.

	// Forward sets out [B,H,N,Dv]. keep is nil at inference. Rows that are not finite
	// are counted in keep; without it they are a *NonFiniteError, after all is written.
	Forward(out tensor.Heads[T], c *Call[T], keep *Saved[T]) error
	// Backward sets g from dout and what Forward returned for the same call.
	Backward(g *Grads[T], dout, out tensor.Heads[T], c *Call[T], keep *Saved[T]) error

	// NewState returns an empty state. Its size is constant where
	// Traits().Streaming is set and grows with the tokens otherwise.
	NewState(s Shape) (State[T], error)
	// RestoreState reads what State.AppendBinary wrote. A snapshot of another
	// mechanism, setting, shape or element type is refused with the field named.
	RestoreState(data []byte) (State[T], error)

	// Plan tells what Forward will do for a shape, whose sizes are 1 or more, and
	// what it costs.
	Plan(s Shape) Plan
	// Weights sets dst [i1-i0, M] to rows i0 ≤ i < i1 of the attention matrix of
	// batch row b and query head h.
	Weights(dst tensor.Mat[T], c *Call[T], b, h, i0, i1 int) error
	// Diagnose tells how the weights of each query head of each batch row lie:
	// head h of row b is element b·H+h. It takes O(N·M) time, and memory for a
	// block of the matrix.
	Diagnose(c *Call[T]) ([]Diagnosis, error)
}

// State holds the keys and values that a mechanism has absorbed. Its calls must have
// the B, H, Hkv, D and Dv for which it was made. Results do not depend on how tokens
// are divided into calls.
type State[T tensor.Float] interface {
	// Absorb adds the keys and values of c; its queries are not used.
	Absorb(c *Call[T]) error
	// Read sets out for the queries of c; every query sees all absorbed keys. Rows that
	// are not finite are a *NonFiniteError, after all rows are written.
	Read(out tensor.Heads[T], c *Call[T]) error
	// Step absorbs the tokens of c one after another and reads each query after
	// its own key: the causal form, continued. N is M. It returns the errors of Read.
	Step(out tensor.Heads[T], c *Call[T]) error
	// Merge makes it the state of its own tokens followed by the tokens of next, which
	// does not change. Both need the same mechanism, setting, shape, chunk and carry. A
	// mechanism that rotates rows must have fed next with the following positions.
	// Results agree with one stream within the bound of the linear form, not in every
	// bit, since chunks end at other tokens. A state without tokens changes nothing.
	Merge(next State[T]) error
	Clone() State[T]
	Reset()
	Tokens() int64 // absorbed so far, excluded ones too
	Bytes() int64  // memory held
	AppendBinary(b []byte) ([]byte, error)
}
