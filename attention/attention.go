package attention

import (
	"io"

	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/tensor"
)

// Package contract holds the types of calls. These are their names for callers.

// Form is a way to compute a mechanism: direct, linear or step by step.
//
// Fields and methods:
//
//	func (f Form) String() string
type Form = contract.Form

const (
	Auto   = contract.Auto   // Plan chooses by the sequence's own shape
	Direct = contract.Direct // every weight is computed: O(N·M)
	Linear = contract.Linear // sums of features: O(N+M)
	Step   = contract.Step   // token by token through a State
)

// Call is everything that varies from call to call. Nothing in it is written but
// Final.
//
// Fields and methods:
//
//	type Call[T tensor.Float] struct {
//		Q tensor.Heads[T] // [B,H,N,D]
//		K tensor.Heads[T] // [B,Hkv,M,D]; Hkv divides H
//		V tensor.Heads[T] // [B,Hkv,M,Dv]
//
//		Causal   bool    // query i sees keys j ≤ i + (M-N)
//		KeyLens  []int64 // [B] valid keys of each batch row; nil: all
//		KeyMask  []bool  // [B·M] keys that exist; nil: all
//		AttnKeep []bool  // [N·M] pairs that see each other; nil: all; direct form only
//
//		// CuQ and CuK pack sequences of different lengths into one batch row:
//		// sequence s is tokens CuQ[s] ≤ n < CuQ[s+1] of Q, likewise K. B is 1.
//		CuQ, CuK []int64
//
//		// Init holds keys that come before the call's own: every query sees them.
//		// Final becomes the state after the call, whatever it held. Either may be nil;
//		// their B is the number of sequences, and each sequence has a row of its own
//		// in them. States of sums go by their own chunk and carry, and their calls are
//		// the linear form. Causal sequences have no more queries than keys.
//		Init, Final State[T]
//
//		Rope *Rope[T] // rotation of rows between normalisation and features; nil: none
//		Drop *Drop    // dropout, for training; nil: none
//
//		// LogG [B,Hkv,M,1] holds the natural logarithm of each token's factor of
//		// decay, finite and 0 or less: the weight of key j for query i, which stands
//		// at the place of key i + (M-N), is f(s_ij)·exp(Σ_{j<t≤i} LogG_t). Empty:
//		// none. Only causal calls and states have it; a state that has met it goes on
//		// with it, and tokens without have the factor 1. A key that does not exist
//		// weighs nothing, but the time of its token passes.
//		LogG tensor.Heads[T]
//
//		Form  Form
//		Chunk int // tokens per chunk of the linear form; 0: as planned
//	}
//	func (c *Call[T]) AppendSequences(list []Sequence) []Sequence
//	func (c *Call[T]) Check() error
//	func (c *Call[T]) CheckOutput(name string, o *tensor.Heads[T]) error
//	func (c *Call[T]) CheckRows(dst tensor.Mat[T], b, h, i0, i1 int) error
//	func (c *Call[T]) HasDecay() bool
//	func (c *Call[T]) HasState() bool
//	func (c *Call[T]) LongestKeys() int
//	func (c *Call[T]) Mask(s *Sequence) []bool
//	func (c *Call[T]) Sequences() []Sequence
//	func (c *Call[T]) Shape() Shape
type Call[T tensor.Float] = contract.Call[T]

// Grads receives gradients, except DFinal, which is given. They are
// overwritten; gradients of the mechanism's parameters are added to its Params.
//
// Fields and methods:
//
//	type Grads[T tensor.Float] struct {
//		DQ, DK, DV tensor.Heads[T] // shaped as Q, K, V
//		DLogG      tensor.Heads[T] // as LogG; empty: not wanted
//
//		// DAux is the gradient of Saved.Aux, given: 0 where that is in no loss.
//		DAux T
//
//		// DFinal is the gradient of Call.Final; nil: no call follows. DInit receives the
//		// gradient of Call.Init, the DFinal of the call before; nil: not wanted. Init must
//		// be unchanged since Forward; the content of Final is not used.
//		DFinal, DInit *StateGrad[T]
//	}
//	func (g *Grads[T]) CheckShapes(dout *tensor.Heads[T], c *Call[T]) error
type Grads[T tensor.Float] = contract.Grads[T]

// Saved holds intermediate results of Forward for Backward, and counts of exceptional
// rows.
//
// Fields and methods:
//
//	type Saved[T tensor.Float] struct {
//		// Den [B,H,N] holds each query's denominator, for softmax its logarithm, for an
//		// unnormalised Spec 1. Headwise mechanisms leave it empty. With packed sequences N
//		// is the total. With decay weights, eps and that 1 are relative to the last key
//		// that the query sees.
//		Den []T
//
//		// Moments holds the sums of all keys, for each key head of each sequence in the
//		// linear form without causal masking: for every feature the padded sums of its
//		// products with the values, after them the sums of the features.
//		Moments [][]T
//
//		// Heads holds for each query head of each sequence what a headwise mechanism
//		// keeps.
//		Heads [][]T
//
//		// Aux is a loss of the mechanism's own, summed over the heads; most have none.
//		Aux float64
//
//		// Residual is how far iterations of the mechanism's own were from their end,
//		// at the head of the call where they were farthest: of nystrom the largest
//		// element of AZA - A, where Z has become the pseudo-inverse of A when it is 0.
//		Residual float64
//
//		UnseenCount int64 // queries that see no key: their output and gradients are 0
//		// WeakCount counts ill-conditioned rows, queries whose denominator nearly cancels. Only
//		// kernels with negative weights have them: den < 2⁻¹⁰ × (visible keys) × f̄(max|s|).
//		// f̄ has the absolute coefficients of f. max|s| is the bound of the normalisation,
//		// otherwise the product of the query's length and the longest key's. Such a row may
//		// lose ten of the 24 bits of a float32, or its negative weights outweigh the others.
//		// Keys of a state before the call count, with decay by their remaining weight. Sums
//		// do not record the lengths of keys in closed chunks, and for single powers not their
//		// number. For kernels that are never negative, WeakCount counts queries with output 0
//		// whose weights are all 0, or whose reciprocal denominator overflows.
//		WeakCount int64
//		WeakAt    [3]int // batch row, head and query of the first weak row
//
//		// NonFinite counts rows of the output that hold NaN or infinities: scores,
//		// weights or sums of the call left the range of the element type, or a denominator
//		// that may cancel is 0.
//		NonFinite   int64
//		NonFiniteAt [3]int // batch row, head and query of the first
//		// contains filtered or unexported fields
//	}
type Saved[T tensor.Float] = contract.Saved[T]

// Traits says what a mechanism can honestly do.
//
// Fields and methods:
//
//	type Traits struct {
//		Name      string
//		Positive  bool // weights are never negative
//		Causal    bool // an output may be kept from later tokens: causal calls, and states
//		Streaming bool // a State of fixed size exists
//		Linear    bool // the linear form exists
//		Products  bool // dropout may leave out products of channels (ProductDrop)
//		Decay     bool // causal calls and states take a decay (Call.LogG)
//
//		Dropout  bool   // calls may have dropout
//		NoCausal string // a sentence that says why, where Causal is not set
//		// CausalOnly: calls must be causal, since queries need a place among the keys.
//		CausalOnly bool
//		// Banded: keys near a query weigh otherwise than those far from it. An unmasked
//		// call is a function of the places of its keys, and no state has it.
//		Banded bool
//	}
type Traits = contract.Traits

// Mechanism is one attention function. Its methods may be called concurrently,
// except that Backward adds to Params.
//
// Fields and methods:
//
//	type Mechanism[T tensor.Float] interface {
//		Traits() Traits
//		// Setting tells apart mechanisms of a name that compute different things from
//		// the same parameters.
//		Setting() string
//		// Params returns the learned parameters, nil if there are none.
//		Params() *param.Set[T]
//		// Constants returns numbers that were drawn once and are not learned, such as random
//		// features; nil: none. They are saved beside the parameters; to replace them, write
//		// Data.
//		Constants() *param.Set[T]
//
//		// Forward sets out [B,H,N,Dv]. keep is nil at inference. Rows that are not finite
//		// are counted in keep; without it they are a *NonFiniteError, after all is written.
//		Forward(out tensor.Heads[T], c *Call[T], keep *Saved[T]) error
//		// Backward sets g from dout and what Forward returned for the same call.
//		Backward(g *Grads[T], dout, out tensor.Heads[T], c *Call[T], keep *Saved[T]) error
//
//		// NewState returns an empty state. Its size is constant where
//		// Traits().Streaming is set and grows with the tokens otherwise.
//		NewState(s Shape) (State[T], error)
//		// RestoreState reads what State.AppendBinary wrote. A snapshot of another
//		// mechanism, setting, shape or element type is refused with the field named.
//		RestoreState(data []byte) (State[T], error)
//
//		// Plan tells what Forward will do for a shape, whose sizes are 1 or more, and
//		// what it costs.
//		Plan(s Shape) Plan
//		// Weights sets dst [i1-i0, M] to rows i0 ≤ i < i1 of the attention matrix of
//		// batch row b and query head h.
//		Weights(dst tensor.Mat[T], c *Call[T], b, h, i0, i1 int) error
//		// Diagnose tells how the weights of each query head of each batch row lie:
//		// head h of row b is element b·H+h. It takes O(N·M) time, and memory for a
//		// block of the matrix.
//		Diagnose(c *Call[T]) ([]Diagnosis, error)
//	}
type Mechanism[T tensor.Float] = contract.Mechanism[T]

// State holds the keys and values that a mechanism has absorbed. Its calls must have
// the B, H, Hkv, D and Dv for which it was made. Results do not depend on how tokens
// are divided into calls.
//
// Fields and methods:
//
//	type State[T tensor.Float] interface {
//		// Absorb adds the keys and values of c; its queries are not used.
//		Absorb(c *Call[T]) error
//		// Read sets out for the queries of c; every query sees all absorbed keys. Rows that
//		// are not finite are a *NonFiniteError, after all rows are written.
//		Read(out tensor.Heads[T], c *Call[T]) error
//		// Step absorbs the tokens of c one after another and reads each query after
//		// its own key: the causal form, continued. N is M. It returns the errors of Read.
//		Step(out tensor.Heads[T], c *Call[T]) error
//		// Merge makes it the state of its own tokens followed by the tokens of next, which
//		// does not change. Both need the same mechanism, setting, shape, chunk and carry. A
//		// mechanism that rotates rows must have fed next with the following positions.
//		// Results agree with one stream within the bound of the linear form, not in every
//		// bit, since chunks end at other tokens. A state without tokens changes nothing.
//		Merge(next State[T]) error
//		Clone() State[T]
//		Reset()
//		Tokens() int64 // absorbed so far, excluded ones too
//		Bytes() int64  // memory held
//		AppendBinary(b []byte) ([]byte, error)
//	}
type State[T tensor.Float] = contract.State[T]

// CheckShape returns an error, with the name, if the shape of x is not [b,h,n,d].
func CheckShape[T tensor.Float](name string, x *tensor.Heads[T], b, h, n, d int) error {
	return contract.CheckShape[T](name, x, b, h, n, d)
}

// Sequence is one independent stretch of tokens: a batch row, or a packed
// segment of it.
//
// Fields and methods:
//
//	type Sequence struct {
//		Index  int // among the call's sequences
//		Batch  int // batch row
//		Q0, N  int // queries
//		Keys   int // keys it holds
//		K0, M  int // keys that count: those within the row's key length
//		Offset int // query i sees keys j ≤ i + off, where causal
//	}
type Sequence = contract.Sequence

// ErrNoMatrix says that a mechanism has no attention matrix.
var ErrNoMatrix = contract.ErrNoMatrix

// Carry is the way in which a state adds the sums of a chunk to the sums of earlier
// chunks. In both ways the sums of a chunk begin at zero in the element type.
//
// Fields and methods:
//
//	func (c Carry) String() string
type Carry = contract.Carry

const (
	// Rounded adds in the element type. Each chunk rounds the whole sum. The roundings
	// of a repeated token all go in one direction.
	Rounded = contract.Rounded
	// Compensated keeps beside each sum what its roundings left out, twice the
	// memory, so that a stream of any length has the error of a chunk. What is
	// read is the rounding of the whole: reading costs no more.
	Compensated = contract.Compensated
)

// Diagnosis describes the weights of one query head of one batch row. Rows are queries.
// Queries that see no key are counted and otherwise ignored.
//
// The weights w_j of a row are taken before any division. They are computed in the
// direct form and summed in float64.
//
// Fields and methods:
//
//	type Diagnosis struct {
//		Rows        int64 // queries that see a key
//		UnseenCount int64 // queries that see none
//		WeakCount   int64 // rows with a doubtful denominator, as in Saved.WeakCount
//
//		// Entropy is the mean over rows of -Σ p_j ln p_j with p_j = |w_j| / Σ|w|, in
//		// nats: e to this power is the number of keys that a row spreads over. Where
//		// weights are negative, p is how much each of them moves the output.
//		Entropy      float64
//		MinEntropy   float64 // of the row that is most concentrated
//		MinEntropyAt int     // query
//
//		// Condition is the mean over rows of Σ|w| / |Σw + eps|, 1 where no weight is
//		// negative and no eps is added: how much larger the output may be than any
//		// value, and by how much a relative error of weights grows. It is +Inf where
//		// a denominator is 0.
//		Condition      float64
//		MaxCondition   float64
//		MaxConditionAt int // query
//
//		// MinDen is the denominator of least absolute value, of the exponential the
//		// least logarithm of one, as in Saved.Den.
//		MinDen   float64
//		MinDenAt int // query
//	}
//	func (d *Diagnosis) Merge(x *Diagnosis, at int, logarithms bool)
type Diagnosis = contract.Diagnosis

// ErrNonFinite is in every error about numbers that are NaN or infinite.
var ErrNonFinite = contract.ErrNonFinite

// NonFiniteError says that rows of an output hold NaN or infinities: products or sums
// of the call left the range of the element type, or a denominator was 0. Every row is
// written all the same, and a state has absorbed its tokens. Forward returns it where
// there is no Saved to count the rows in.
//
// Fields and methods:
//
//	type NonFiniteError struct {
//		Rows, AllRows int64  // rows that are not finite, and all rows
//		First         [3]int // batch row, head and query of the first
//	}
//	func (e *NonFiniteError) Error() string
//	func (e *NonFiniteError) Is(target error) bool
type NonFiniteError = contract.NonFiniteError

// IsNonFinite reports whether err is about rows that are not finite.
func IsNonFinite(err error) bool {
	return contract.IsNonFinite(err)
}

// NonFinite counts the rows of x [B,H,N,D] that hold NaN or infinities and returns
// batch row, head and place of the first, by batch row, then place, then head.
func NonFinite[T tensor.Float](x tensor.Heads[T]) (rows int64, first [3]int) {
	return contract.NonFinite[T](x)
}

// HasNonFiniteSum reports whether the sum of x is not finite. This holds if an element
// of x is not finite.
func HasNonFiniteSum[T tensor.Float](x tensor.Mat[T]) bool {
	return contract.HasNonFiniteSum[T](x)
}

// ReportNonFinite counts the rows of out that are not finite in keep; without, it returns them
// as an error. Where none is suspected, none is looked for.
func ReportNonFinite[T tensor.Float](out tensor.Heads[T], keep *Saved[T], suspected bool) error {
	return contract.ReportNonFinite[T](out, keep, suspected)
}

// Plan describes what Forward and Backward do for a shape, and their cost.
//
// Fields and methods:
//
//	type Plan struct {
//		Form       Form    // of Forward
//		Chunk      int     // tokens of a chunk, of a state's in the step form; 0 in the direct form
//		F          int     // packed features of a row; 0 where there is no linear form
//		WidthError error   // features are more than the linear form and states may have; nil: they are not
//		FLOPs      float64 // of Forward, all heads
//		Bytes      float64 // of scratch that one worker's key head takes
//		Reason     string  // of this form
//
//		// Window is the number of elements that a state keeps of a key head's window,
//		// and WindowFLOPs what a token of a query head takes with it.
//		Window, WindowFLOPs float64
//
//		// State is what a state of the shape holds without tokens, in bytes, with the
//		// shape's Chunk and Carry, whatever the form; 0 if it grows with the tokens
//		// or is unknown.
//		State float64
//
//		// Renews reports that a state of the shape whose chunks have one token (Chunk 1)
//		// answers a token and takes it in while it reads its sums once: the way to step
//		// of kernels of degree 1, whose states are half as large then.
//		Renews bool
//
//		Back    Form // of Backward
//		BackWhy string
//
//		// Cost is what Forward is expected to take, and BackCost Backward, all
//		// heads: in operations at the peak of multiply-adds of one core, so that
//		// over that peak it is seconds. 0 where the table has no such mechanism.
//		Cost, BackCost float64
//
//		// Bound is rigorous. Where no number overflows or underflows, an output o_i of
//		// Forward differs from the exact output by no more than
//		//
//		//	Bound · κ_i · (max|v| + max|o_i|),  κ_i = (Σ_j f̄(|a_i|·|b_j|) + eps) / |g_i|
//		//
//		// as long as Bound·κ_i ≤ 1/6, with the 2-norms of prepared rows, f̄ the kernel
//		// with absolute coefficients, j over the keys that i sees and the denominator
//		// g_i. Where rows are normalised |a_i|·|b_j| may be max|s|. For the exponential
//		// κ_i is 1 + max_j |a_i|·|b_j|; the one for windows is in docs/numerics.md. It is 0
//		// where nothing is derived: for normalisations over all tokens, feature maps without
//		// a BoundedRounding, outputs with a factor of their own and a Similarity. It does
//		// not hold for calls with decay or dropout, and gradients have none.
//		Bound float64
//	}
type Plan = contract.Plan

// Shape is the shape of a call, for planning and for states (which ignore N
// and M).
//
// Fields and methods:
//
//	type Shape struct {
//		B, H, Hkv, N, M, D, Dv int
//		Causal                 bool
//		Form                   Form
//		Chunk                  int
//		Carry                  Carry // of a state's sums
//	}
//	func (s *Shape) CheckState() error
//	func (s *Shape) CheckStateSize(bytes float64) error
type Shape = contract.Shape

// MaxHeads is the most heads, B·H, of a state.
const MaxHeads = contract.MaxHeads

// SnapshotHeader describes the state in a snapshot.
//
// Fields and methods:
//
//	type SnapshotHeader struct {
//		Version    int    `json:"version"`
//		Kind       string `json:"kind"` // of state
//		Mechanism  string `json:"mechanism"`
//		Setting    string `json:"setting,omitempty"`
//		Element    int    `json:"element_bytes"` // 4 or 8
//		B          int    `json:"batch"`
//		H          int    `json:"heads"`
//		Hkv        int    `json:"kv_heads"`
//		D          int    `json:"d"`
//		Dv         int    `json:"dv"`
//		Chunk      int    `json:"chunk"`
//		Tokens     int64  `json:"tokens"` // absorbed
//		Bytes      int64  `json:"bytes"`  // of the whole snapshot
//		Parameters string `json:"parameters_crc32c"`
//	}
type SnapshotHeader = contract.SnapshotHeader

// ReadSnapshotHeader reads the header of the snapshot in the size bytes of r, and
// verifies the checksum of all bytes. It needs no mechanism, and no memory for the
// content. It returns an error if the snapshot is damaged or of another version.
func ReadSnapshotHeader(r io.ReaderAt, size int64) (h SnapshotHeader, err error) {
	return contract.ReadSnapshotHeader(r, size)
}

// StateGrad is the gradient of a State. Backward computes it for the initial state and
// reads it for the final state. The zero value is ready for use; memory is reused.
//
// It has the layout of the state. The open chunk of sums, and a whole cache, have
// gradients of prepared keys and of values. Sums have gradients of their moments, over
// the weights that features have when they are read. With decay, ages are the gradients
// of the log-decay before the state: see ageAfter.
//
// Fields and methods:
//
//	type StateGrad[T tensor.Float] struct {
//		// contains filtered or unexported fields
//	}
//	func (g *StateGrad[T]) Ages(to []float64) []float64
//	func (g *StateGrad[T]) AppendSums(to []T) ([]T, error)
//	func (g *StateGrad[T]) SetSums(st State[T], sums []T, ages []float64) error
type StateGrad[T tensor.Float] = contract.StateGrad[T]
