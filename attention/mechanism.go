package attention

import (
	"errors"

	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Traits describes what a mechanism supports and what its outputs depend on.
type Traits struct {
	Name      string
	Positive  bool // weights are never negative
	Causal    bool // causal calls and states are supported: an output does not depend on later tokens
	Streaming bool // a State of fixed size exists
	Linear    bool // the linear form exists
	Products  bool // dropout may leave out products of channels (ProductDrop)
	Decay     bool // causal calls and states take a decay (Call.LogG)

	// Segments is set if there is no linear form, but causal calls can continue from states of
	// fixed size (Call.Init and Final), with gradients through those states.
	Segments bool

	// BuiltinDecay is set if keys decay in every call and state, even without Call.LogG.
	BuiltinDecay bool

	Dropout  bool   // calls may have dropout
	NoCausal string // reason, as a sentence, if Causal is not set
	// CausalOnly is set if calls must be causal, because queries need a position among the
	// keys.
	CausalOnly bool
	// Banded is set if a weight depends on the distance between query and key. A call that is
	// not causal then needs the positions of its keys, which a state does not keep, so it
	// cannot use a state. Causal calls and their states are supported. PlacedQueries is set as
	// well.
	Banded bool
	// PlacedQueries is set if an output of an unmasked call depends on the position of its
	// query. Calling with one of the queries alone then gives another output.
	PlacedQueries bool
	// MixedQueries is set if an output of an unmasked call depends on queries other than its
	// own.
	MixedQueries bool
	// PlacedHeads is set if, even without parameters, an output depends on the index of its
	// head or on the other heads. A call with some of the heads then gives other outputs.
	PlacedHeads bool
}

// Mechanism is one attention function. Its methods may be called concurrently,
// except that Backward adds to Params.
//
// An output or a gradient must have memory of its own: it may overlap neither the tensors
// of the call, dout, out or Saved, nor another gradient or itself. A method refuses such a
// call with an error that names both, before anything is written. Views that interleave,
// such as the gradients of one projection, do not overlap.
//
// The tokens of a causal sequence can be divided among ranks only if Traits().Segments is set, or
// if package factorised has made the mechanism and it has a linear form.
type Mechanism interface {
	Traits() Traits
	// Setting distinguishes mechanisms of one name that compute different things from the same
	// parameters.
	Setting() string
	// Params returns the learned parameters, or nil if there are none.
	Params() *param.Set
	// Constants returns numbers that were drawn once and are not learned, such as random
	// features, or nil if there are none. Models save them beside the parameters. To replace
	// them, write to their Data.
	Constants() *param.Set

	// Forward sets out [B,H,N,Dv]. keep receives what Backward needs and is nil at inference.
	// Rows of out that are not finite are counted in keep; if keep is nil, Forward returns a
	// *NonFiniteError after all rows are written.
	Forward(out tensor.Heads, c *Call, keep *Saved) error
	// Backward sets g from dout and from the out and keep of Forward for the same call.
	Backward(g *Grads, dout, out tensor.Heads, c *Call, keep *Saved) error

	// NewState returns an empty state. Its size is constant if Traits().Streaming is set;
	// otherwise it grows with the tokens.
	NewState(s Shape) (State, error)
	// RestoreState returns the state in a snapshot of State.AppendBinary. The error for data
	// that is no whole snapshot is a farfield.ErrDamaged. The error for a snapshot of another
	// mechanism, setting, parameters, element type or version is a farfield.ErrMismatch; it
	// names the field and both values.
	RestoreState(data []byte) (State, error)

	// Plan returns what Forward and Backward will do for a shape, and what it costs. All sizes
	// of s must be at least 1.
	Plan(s Shape) Plan
	// Weights sets dst [i1-i0, M] to rows i0 ≤ i < i1 of the attention matrix of
	// batch row b and query head h.
	Weights(dst tensor.Mat, c *Call, b, h, i0, i1 int) error
	// Diagnose describes the weights of each query head of each batch row: element b·H+h is for
	// head h of batch row b. It takes O(N·M) time, and memory for a block of the attention
	// matrix.
	Diagnose(c *Call) ([]Diagnosis, error)
}

// Plan describes what Forward and Backward do for a shape, and their cost.
type Plan struct {
	Form       Form    // form of Forward
	Chunk      int     // tokens of a chunk, in the step form of the state's chunk; 0 in the direct form
	F          int     // packed features of a row; 0 without a linear form
	WidthError error   // not nil: too many features for the linear form and states
	FLOPs      float64 // floating-point operations of Forward, all heads
	Bytes      float64 // scratch memory that one worker takes for a key head
	Reason     string  // why this form was chosen

	// Window is the number of elements that a state keeps for the window of a key head.
	// WindowFLOPs is the number of operations on the window for one token of a query head.
	Window, WindowFLOPs float64

	// State is the size in bytes of an empty state of the shape, with the shape's Chunk and
	// Carry, whatever the form. It is 0 if the state grows with the tokens or the size is
	// unknown.
	State float64

	// Renews is set if a state of the shape with chunks of one token (Chunk 1) answers the
	// query and absorbs the key of a token in one pass over its sums. Kernels of degree 1 step
	// this way, and their states are then half as large.
	Renews bool

	Back    Form // form of Backward
	BackWhy string

	// Cost and BackCost are the expected costs of Forward and Backward, all heads, in
	// operations at the multiply-add peak of one core: divided by that peak they are seconds.
	// They are 0 if the speeds of the mechanism have not been measured.
	Cost, BackCost float64

	// Bound is a rigorous bound of the rounding error. If no number overflows or underflows, an
	// output o_i of Forward differs from the exact output by at most
	//
	//	Bound · κ_i · (max|v| + max|o_i|),  κ_i = (Σ_j f̄(|a_i|·|b_j|) + eps) / |g_i|
	//
	// as long as Bound·κ_i ≤ 1/6. Here |a_i| and |b_j| are the 2-norms of prepared rows, f̄ is
	// the kernel with the absolute values of its coefficients, j runs over the keys that query
	// i sees, and g_i is the denominator. With normalised rows |a_i|·|b_j| may be replaced by
	// max|s|. For the exponential κ_i is 1 + max_j |a_i|·|b_j|; docs/numerics.md has the κ_i of
	// windows.
	//
	// Bound is 0 if none has been derived: for normalisations over all tokens, feature maps
	// without a BoundedRounding, outputs with a factor of their own, and a Similarity. It does
	// not hold for calls with decay or dropout, nor for gradients.
	Bound float64
}

// ErrNoMatrix is the error of Weights and Diagnose if a mechanism has no attention matrix.
var ErrNoMatrix = errors.New("no attention matrix")
