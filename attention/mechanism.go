package attention

import (
	"errors"

	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Traits says what a mechanism can honestly do.
type Traits struct {
	Name      string
	Positive  bool // weights are never negative
	Causal    bool // causal calls and states are supported: an output does not depend on later tokens
	Streaming bool // a State of fixed size exists
	Linear    bool // the linear form exists
	Products  bool // dropout may leave out products of channels (ProductDrop)
	Decay     bool // causal calls and states take a decay (Call.LogG)

	// Segments: there is no linear form, but causal calls may go on from states of fixed size
	// (Call.Init and Final), and gradients go through them.
	Segments bool

	// BuiltinDecay: keys decay in every call, and so do those of states.
	BuiltinDecay bool

	Dropout  bool   // calls may have dropout
	NoCausal string // a sentence that says why, where Causal is not set
	// CausalOnly: calls must be causal, since queries need a place among the keys.
	CausalOnly bool
	// Banded: a weight depends on the distance between query and key. A call that is not causal
	// then needs the positions of its keys, which a state does not have, so it cannot use a
	// state. Causal calls and their states are possible. PlacedQueries is set as well.
	Banded bool
	// PlacedQueries: an output of an unmasked call depends on the place of its query. One
	// query alone then has another output.
	PlacedQueries bool
	// MixedQueries: an output of an unmasked call depends on other queries than its own.
	MixedQueries bool
	// PlacedHeads: without any parameters, an output depends on which head it is of, or on
	// the other heads. A call of some of the heads then has other outputs.
	PlacedHeads bool
}

// Mechanism is one attention function. Its methods may be called concurrently,
// except that Backward adds to Params.
//
// An output or a gradient must have memory of its own: it may overlap neither the tensors
// of the call, dout, out or Saved, nor another gradient or itself. A method refuses such a
// call with an error that names both, before anything is written. Views that interleave,
// such as the gradients of one projection, do not overlap.
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

// Plan describes what Forward and Backward do for a shape, and their cost.
type Plan struct {
	Form       Form    // of Forward
	Chunk      int     // tokens of a chunk, of a state's in the step form; 0 in the direct form
	F          int     // packed features of a row; 0 where there is no linear form
	WidthError error   // features are more than the linear form and states may have; nil: they are not
	FLOPs      float64 // of Forward, all heads
	Bytes      float64 // of scratch that one worker's key head takes
	Reason     string  // of this form

	// Window is the number of elements that a state keeps of a key head's window,
	// and WindowFLOPs what a token of a query head takes with it.
	Window, WindowFLOPs float64

	// State is what a state of the shape holds without tokens, in bytes, with the
	// shape's Chunk and Carry, whatever the form; 0 if it grows with the tokens
	// or is unknown.
	State float64

	// Renews reports that a state of the shape whose chunks have one token (Chunk 1)
	// answers a token and takes it in while it reads its sums once: the way to step
	// of kernels of degree 1, whose states are half as large then.
	Renews bool

	Back    Form // of Backward
	BackWhy string

	// Cost is what Forward is expected to take, and BackCost Backward, all
	// heads: in operations at the peak of multiply-adds of one core, so that
	// over that peak it is seconds. 0 where the table has no such mechanism.
	Cost, BackCost float64

	// Bound is rigorous. Where no number overflows or underflows, an output o_i of
	// Forward differs from the exact output by no more than
	//
	//	Bound · κ_i · (max|v| + max|o_i|),  κ_i = (Σ_j f̄(|a_i|·|b_j|) + eps) / |g_i|
	//
	// as long as Bound·κ_i ≤ 1/6, with the 2-norms of prepared rows, f̄ the kernel
	// with absolute coefficients, j over the keys that i sees and the denominator
	// g_i. Where rows are normalised |a_i|·|b_j| may be max|s|. For the exponential
	// κ_i is 1 + max_j |a_i|·|b_j|; the one for windows is in docs/numerics.md. It is 0
	// where nothing is derived: for normalisations over all tokens, feature maps without
	// a BoundedRounding, outputs with a factor of their own and a Similarity. It does
	// not hold for calls with decay or dropout, and gradients have none.
	Bound float64
}

// ErrNoMatrix says that a mechanism has no attention matrix.
var ErrNoMatrix = errors.New("no attention matrix")

// ErrStepKeeps says that Forward was asked for the form Step with a Saved: steps save
// nothing for Backward.
var ErrStepKeeps = errors.New("form: step keeps nothing for the gradient; use another form for it")
