package contract

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
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
// They overlap neither one another nor anything that Backward reads.
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

	Shape     Shape      // of the call, with a headwise mechanism
	Sequences []Sequence // of that call
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

// State holds the keys and values that a mechanism has absorbed. Its calls must have
// the B, H, Hkv, D and Dv for which it was made. Results do not depend on how tokens
// are divided into calls. Outputs may not overlap the tensors of their call, as for a
// Mechanism.
//
// A State is not safe for concurrent use: methods may run at the same time only if none of
// them is Absorb, Read, Step, Merge or Reset of that State. Different states of one
// mechanism may be used at the same time, and so may a clone beside its origin.
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

// LongestKeys returns the number of keys of the longest sequence, without padding.
func (c *Call[T]) LongestKeys() int {
	var room [8]Sequence
	most := 0
	for _, s := range c.AppendSequences(room[:0]) {
		most = max(most, s.M)
	}
	return most
}

var (
	ErrNoCall  = errors.New("call: it is nil")
	errNoGrads = errors.New("grads: they are nil")
)

// Check returns an error for the first field of c that does not fit; it names the field
// and both values.
func (c *Call[T]) Check() error {
	if err := CheckKeys(c); err != nil {
		return err
	}
	q, k := &c.Q, &c.K
	if err := q.Check("q"); err != nil {
		return err
	}
	switch {
	case c.HasDecay() && !c.Causal:
		return fmt.Errorf("log_g: decay needs a causal call, whose queries have a place among the keys")
	case q.B != k.B:
		return fmt.Errorf("k: B is %d, q has %d", k.B, q.B)
	case q.D != k.D:
		return fmt.Errorf("k: D is %d, q has %d", k.D, q.D)
	case k.H == 0 && q.H != 0, k.H != 0 && q.H%k.H != 0:
		return fmt.Errorf("k: %d heads do not divide the %d heads of q", k.H, q.H)
	case c.AttnKeep != nil && len(c.AttnKeep) != tensor.Size(q.N, k.N):
		return fmt.Errorf("attn_keep: has %d elements, N·M is %d·%d", len(c.AttnKeep), q.N, k.N)
	case c.AttnKeep != nil && c.CuQ != nil:
		return fmt.Errorf("attn_keep: not defined with packed sequences (cu_q)")
	case (c.CuQ == nil) != (c.CuK == nil):
		return fmt.Errorf("cu_q and cu_k: one is given without the other")
	}
	if c.CuQ != nil {
		if len(c.CuQ) != len(c.CuK) {
			return fmt.Errorf("cu_k: has %d offsets, cu_q has %d", len(c.CuK), len(c.CuQ))
		}
		if err := checkOffsets("cu_q", c.CuQ, q.B, q.N); err != nil {
			return err
		}
		if err := checkOffsets("cu_k", c.CuK, k.B, k.N); err != nil {
			return err
		}
	}
	shape := c.Shape()
	if err := CheckDropout(c, &shape); err != nil {
		return err
	}
	if c.Rope != nil {
		var room [8]Sequence
		for _, s := range c.AppendSequences(room[:0]) {
			off := 0
			if c.Causal {
				off = s.Offset
			}
			if off < 0 {
				return fmt.Errorf("rope: a sequence of %d queries has only %d keys", s.N, s.N+off)
			}
			if need := max(s.N+off, s.M); c.Rope.Rows() < need {
				return fmt.Errorf("rope: has %d rows, a sequence has %d positions", c.Rope.Rows(), need)
			}
		}
	}
	return nil
}

// CheckKeys returns an error for the first field of c about keys and values that does not fit.
func CheckKeys[T tensor.Float](c *Call[T]) error {
	if c == nil {
		return ErrNoCall
	}
	k, v := &c.K, &c.V
	if err := k.Check("k"); err != nil {
		return err
	}
	if err := v.Check("v"); err != nil {
		return err
	}
	switch {
	case k.D == 0:
		return fmt.Errorf("k: D is 0, needs 1 or more")
	case v.D == 0:
		return fmt.Errorf("v: Dv is 0, needs 1 or more")
	case k.B != v.B:
		return fmt.Errorf("v: B is %d, k has %d", v.B, k.B)
	case k.H != v.H:
		return fmt.Errorf("v: %d heads, k has %d", v.H, k.H)
	case k.N != v.N:
		return fmt.Errorf("v: M is %d, k has %d", v.N, k.N)
	case c.KeyLens != nil && len(c.KeyLens) != k.B:
		return fmt.Errorf("key_lengths: has %d elements, B is %d", len(c.KeyLens), k.B)
	case c.KeyLens != nil && c.CuQ != nil:
		return fmt.Errorf("key_lengths: not defined with packed sequences (cu_q)")
	case c.KeyMask != nil && len(c.KeyMask) != tensor.Size(k.B, k.N):
		return fmt.Errorf("keymask: has %d elements, B·M is %d·%d", len(c.KeyMask), k.B, k.N)
	case c.Chunk < 0:
		return fmt.Errorf("chunk: %d is negative", c.Chunk)
	}
	for b, n := range c.KeyLens {
		if n < 0 || n > int64(k.N) {
			return fmt.Errorf("key_lengths: row %d is %d, M is %d", b, n, k.N)
		}
	}
	if err := spec.CheckRope(c.Rope, k.D); err != nil {
		return err
	}
	return c.checkDecay()
}

func checkOffsets(name string, cu []int64, b, n int) error {
	if b != 1 {
		return fmt.Errorf("%s: packed sequences need B = 1, B is %d", name, b)
	}
	if len(cu) == 0 || cu[0] != 0 {
		return fmt.Errorf("%s: offsets do not start with 0", name)
	}
	for s := 1; s < len(cu); s++ {
		if cu[s] < cu[s-1] {
			return fmt.Errorf("%s: offset %d is %d, after %d", name, s, cu[s], cu[s-1])
		}
	}
	if last := cu[len(cu)-1]; last != int64(n) {
		return fmt.Errorf("%s: the last offset is %d, there are %d tokens", name, last, n)
	}
	return nil
}

// CheckOutput returns an error if the shape of o is not [B,H,N,Dv].
func (c *Call[T]) CheckOutput(name string, o *tensor.Heads[T]) error {
	return CheckShape(name, o, c.Q.B, c.Q.H, c.Q.N, c.V.D)
}

// CheckWritten returns an error if o, which a call is about to set, does not have the shape
// [B,H,N,Dv], or overlaps itself, a tensor of c or what keep holds. keep may be nil.
func (c *Call[T]) CheckWritten(name string, o *tensor.Heads[T], keep *Saved[T]) error {
	if err := c.CheckOutput(name, o); err != nil {
		return err
	}
	if err := c.CheckApart(name, o); err != nil {
		return err
	}
	return keep.checkApart(name, o)
}

// CheckApart returns an error if o, which is about to be set, overlaps itself or a tensor of
// c. The views fit their data.
func (c *Call[T]) CheckApart(name string, o *tensor.Heads[T]) error {
	if o.OverlapsItself() {
		return fmt.Errorf("%s: its elements overlap one another: strides are [%d,%d,%d] of shape [%d,%d,%d,%d]",
			name, o.SB, o.SH, o.SN, o.B, o.H, o.N, o.D)
	}
	switch {
	case o.Overlaps(c.Q):
		return overlapError(name, "q")
	case o.Overlaps(c.K):
		return overlapError(name, "k")
	case o.Overlaps(c.V):
		return overlapError(name, "v")
	case o.Overlaps(c.LogG):
		return overlapError(name, "log_g")
	case c.Rope != nil && (overlapsRow(o, c.Rope.Cos) || overlapsRow(o, c.Rope.Sin)):
		return overlapError(name, "rope")
	}
	return nil
}

// checkApart returns an error if o overlaps what s holds. s may be nil.
func (s *Saved[T]) checkApart(name string, o *tensor.Heads[T]) error {
	if s == nil {
		return nil
	}
	found := overlapsRow(o, s.Den)
	for _, x := range s.Moments {
		found = found || overlapsRow(o, x)
	}
	for _, x := range s.Heads {
		found = found || overlapsRow(o, x)
	}
	if found {
		return overlapError(name, "saved")
	}
	return nil
}

// overlapsRow reports whether o and the slice x have an element in common.
func overlapsRow[T tensor.Float](o *tensor.Heads[T], x []T) bool {
	return o.Overlaps(tensor.HeadsOf(x, 1, 1, 1, len(x)))
}

func overlapError(name, other string) error {
	return fmt.Errorf("%s: overlaps %s, needs memory of its own", name, other)
}

// CheckMemory returns an error if a gradient of g overlaps itself, another gradient, or what
// Backward reads: dout, out, tensors of c and keep. The views have their shapes.
func (g *Grads[T]) CheckMemory(dout, out *tensor.Heads[T], c *Call[T], keep *Saved[T]) error {
	written := [4]struct {
		name string
		x    *tensor.Heads[T]
	}{{"dq", &g.DQ}, {"dk", &g.DK}, {"dv", &g.DV}, {"d_log_g", &g.DLogG}}
	for i, w := range written {
		if err := c.CheckApart(w.name, w.x); err != nil {
			return err
		}
		if w.x.Overlaps(*dout) {
			return overlapError(w.name, "do")
		}
		if w.x.Overlaps(*out) {
			return overlapError(w.name, "o")
		}
		for _, other := range written[:i] {
			if w.x.Overlaps(*other.x) {
				return overlapError(w.name, other.name)
			}
		}
		if err := keep.checkApart(w.name, w.x); err != nil {
			return err
		}
	}
	if g.DInit != nil && g.DInit == g.DFinal {
		return overlapError("dinit", "dfinal")
	}
	return nil
}

// CheckShapes returns an error if dout is not [B,H,N,Dv], or DQ, DK and DV do not have
// the shapes of Q, K and V.
func (g *Grads[T]) CheckShapes(dout *tensor.Heads[T], c *Call[T]) error {
	if g == nil {
		return errNoGrads
	}
	if err := c.CheckOutput("do", dout); err != nil {
		return err
	}
	for _, x := range []struct {
		name  string
		d, of *tensor.Heads[T]
	}{{"dq", &g.DQ, &c.Q}, {"dk", &g.DK, &c.K}, {"dv", &g.DV, &c.V}} {
		if err := CheckShape(x.name, x.d, x.of.B, x.of.H, x.of.N, x.of.D); err != nil {
			return err
		}
	}
	return nil
}

// CheckShape returns an error, with the name, if the shape of x is not [b,h,n,d].
func CheckShape[T tensor.Float](name string, x *tensor.Heads[T], b, h, n, d int) error {
	if err := x.Check(name); err != nil {
		return err
	}
	if x.B != b || x.H != h || x.N != n || x.D != d {
		return fmt.Errorf("%s: shape is [%d,%d,%d,%d], needs [%d,%d,%d,%d]", name, x.B, x.H, x.N, x.D, b, h, n, d)
	}
	return nil
}

// Sequence is one independent stretch of tokens: a batch row, or a packed
// segment of it.
type Sequence struct {
	Index  int // among the call's sequences
	Batch  int // batch row
	Q0, N  int // queries
	Keys   int // keys it holds
	K0, M  int // keys that count: those within the row's key length
	Offset int // query i sees keys j ≤ i + off, where causal
}

// Sequences returns the sequences of the call: batch rows, or packed segments.
func (c *Call[T]) Sequences() []Sequence { return c.AppendSequences(nil) }

// AppendSequences appends the sequences of the call to list.
func (c *Call[T]) AppendSequences(list []Sequence) []Sequence {
	add := func(b, q0, n, k0, keys, m int) {
		list = append(list, Sequence{Index: len(list), Batch: b, Q0: q0, N: n, Keys: keys, K0: k0, M: m, Offset: keys - n})
	}
	if c.CuQ != nil {
		for s := range len(c.CuQ) - 1 {
			q0, q1, k0, k1 := int(c.CuQ[s]), int(c.CuQ[s+1]), int(c.CuK[s]), int(c.CuK[s+1])
			add(0, q0, q1-q0, k0, k1-k0, k1-k0)
		}
		return list
	}
	for b := range c.Q.B {
		m := c.K.N
		if c.KeyLens != nil {
			m = int(c.KeyLens[b])
		}
		add(b, 0, c.Q.N, 0, c.K.N, m)
	}
	return list
}

// CheckRows returns an error if rows i0 ≤ i < i1 of head h in batch row b do not exist,
// or dst does not have their shape [i1-i0,M], or overlaps itself or a tensor of c.
func (c *Call[T]) CheckRows(dst tensor.Mat[T], b, h, i0, i1 int) error {
	switch {
	case c.HasState():
		return fmt.Errorf("weights: not defined with a state before or after the call")
	case b < 0 || b >= c.Q.B:
		return fmt.Errorf("weights: batch row %d of %d", b, c.Q.B)
	case h < 0 || h >= c.Q.H:
		return fmt.Errorf("weights: head %d of %d", h, c.Q.H)
	case i0 < 0 || i0 > i1 || i1 > c.Q.N:
		return fmt.Errorf("weights: queries %d to %d of %d", i0, i1, c.Q.N)
	case dst.Rows != i1-i0 || dst.Cols != c.K.N:
		return fmt.Errorf("weights: destination is [%d,%d], needs [%d,%d]", dst.Rows, dst.Cols, i1-i0, c.K.N)
	}
	if err := dst.Check("weights"); err != nil {
		return err
	}
	return c.CheckApart("weights", &tensor.Heads[T]{Data: dst.Data, B: 1, H: 1, N: dst.Rows, D: dst.Cols, SN: dst.Stride})
}

// Mask returns the keys of s that exist, nil if all do.
func (c *Call[T]) Mask(s *Sequence) []bool {
	if c.KeyMask == nil {
		return nil
	}
	mask := c.KeyMask[s.Batch*c.K.N+s.K0:][:s.M]
	for _, exists := range mask {
		if !exists {
			return mask
		}
	}
	return nil
}

// ErrNoMatrix says that a mechanism has no attention matrix.
var ErrNoMatrix = errors.New("no attention matrix")

// HasDecay reports whether the call has a log-decay.
func (c *Call[T]) HasDecay() bool { return c.LogG.D != 0 || len(c.LogG.Data) > 0 }

// checkDecay reports a decay that does not fit the keys. What stands beyond a
// row's key length does not count.
func (c *Call[T]) checkDecay() error {
	if !c.HasDecay() {
		return nil
	}
	if err := CheckShape("log_g", &c.LogG, c.K.B, c.K.H, c.K.N, 1); err != nil {
		return err
	}
	for i := range c.K.B * c.K.H {
		b, h := i/c.K.H, i%c.K.H
		rows, n := c.LogG.Head(b, h), c.K.N
		if c.KeyLens != nil {
			n = int(c.KeyLens[b])
		}
		for j := range n {
			if x := float64(rows.Row(j)[0]); !(x <= 0) || math.IsInf(x, 0) {
				return fmt.Errorf("log_g: row %d, head %d, token %d is %v, needs to be finite and 0 or less", b, h, j, x)
			}
		}
	}
	return nil
}

// HasState reports whether c has a state before or after it.
func (c *Call[T]) HasState() bool { return c.Init != nil || c.Final != nil }

// CheckDropout returns an error if the dropout of c does not fit heads of shape s.
func CheckDropout[T tensor.Float](c *Call[T], s *Shape) error {
	return spec.CheckDrop(c.Drop, s.B*s.H*s.N, s.B*s.Hkv*s.M, s.D)
}

// Shape returns the call's shape.
func (c *Call[T]) Shape() Shape {
	return Shape{B: c.Q.B, H: c.Q.H, Hkv: c.K.H, N: c.Q.N, M: c.K.N, D: c.Q.D, Dv: c.V.D,
		Causal: c.Causal, Form: c.Form, Chunk: c.Chunk}
}

// Shape is the shape of a call, for planning and for states (which ignore N
// and M).
type Shape struct {
	B, H, Hkv, N, M, D, Dv int
	Causal                 bool
	Form                   Form
	Chunk                  int
	Carry                  Carry // of a state's sums
}

// CheckState returns an error if no state can have the shape.
func (s *Shape) CheckState() error {
	if s.B < 0 || s.H <= 0 || s.Hkv <= 0 || s.H%s.Hkv != 0 || s.D <= 0 || s.Dv <= 0 {
		return fmt.Errorf("state: shape B=%d H=%d Hkv=%d D=%d Dv=%d is not possible", s.B, s.H, s.Hkv, s.D, s.Dv)
	}
	switch {
	case tensor.Size(s.B, s.H) > MaxHeads:
		return fmt.Errorf("state: B·H is %d·%d, at most %d heads are kept", s.B, s.H, MaxHeads)
	case s.D > MaxRow || s.Dv > MaxRow:
		return fmt.Errorf("state: rows of D = %d and Dv = %d, at most %d are kept", s.D, s.Dv, MaxRow)
	case s.Chunk < 0:
		return fmt.Errorf("chunk: %d is negative", s.Chunk)
	case s.Chunk > maxChunk:
		return fmt.Errorf("chunk: %d tokens, a state has at most %d", s.Chunk, maxChunk)
	}
	return nil
}

// CheckStateSize returns an error if a state of shape s would have more bytes than
// memory can have.
func (s *Shape) CheckStateSize(bytes float64) error {
	if !(bytes <= maxState) {
		return fmt.Errorf("state: shape B=%d H=%d Hkv=%d D=%d Dv=%d in chunks of %d takes %.0f bytes, at most %.0f",
			s.B, s.H, s.Hkv, s.D, s.Dv, s.Chunk, bytes, maxState)
	}
	return nil
}

// MaxHeads is the most heads, B·H, of a state.
const MaxHeads = 1 << 20

// MaxRow is the largest D and Dv of a state.
const MaxRow = 1 << 28

const (
	// maxChunk bounds the tokens of a state's chunk. All their pairs are computed.
	maxChunk = 1 << 24
	// maxState is the most bytes of a state: more than any memory has.
	maxState = float64(min(1<<44, math.MaxInt))
)

// Carry is the way in which a state adds the sums of a chunk to the sums of earlier
// chunks. In both ways the sums of a chunk begin at zero in the element type.
type Carry int

const (
	// Rounded adds in the element type. Each chunk rounds the whole sum. The roundings
	// of a repeated token all go in one direction.
	Rounded Carry = iota
	// Compensated keeps beside each sum what its roundings left out, twice the
	// memory, so that a stream of any length has the error of a chunk. What is
	// read is the rounding of the whole: reading costs no more.
	Compensated
)

// String returns the name of the way.
func (c Carry) String() string {
	if c == Compensated {
		return "compensated"
	}
	return "rounded"
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

// ErrNonFinite is in every error about results that are NaN or infinite.
var ErrNonFinite = errors.New("not finite")

// NonFiniteError says that rows of an output hold NaN or infinities: products or sums
// of the call left the range of the element type, or a denominator was 0. Every row is
// written all the same, and a state has absorbed its tokens. Forward returns it where
// there is no Saved to count the rows in.
type NonFiniteError struct {
	Rows, AllRows int64  // rows that are not finite, and all rows
	First         [3]int // batch row, head and query of the first
}

// Error returns the text of the error.
func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("o: %d of %d rows are not finite, the first is query %d of head %d of batch row %d: numbers left the range of the element type, or a denominator is 0",
		e.Rows, e.AllRows, e.First[2], e.First[1], e.First[0])
}

// Is reports whether target is ErrNonFinite.
func (e *NonFiniteError) Is(target error) bool { return target == ErrNonFinite }

// IsNonFinite reports whether err is about rows that are not finite.
func IsNonFinite(err error) bool { return errors.Is(err, ErrNonFinite) }

// NonFinite counts the rows of x [B,H,N,D] that hold NaN or infinities and returns
// batch row, head and place of the first, by batch row, then place, then head.
func NonFinite[T tensor.Float](x tensor.Heads[T]) (rows int64, first [3]int) {
	if !hasNonFiniteSum(x) {
		return 0, first
	}
	for b := range x.B {
		for i := range x.N {
			for h := range x.H {
				if finiteRow(x.Head(b, h).Row(i)) {
					continue
				}
				if rows == 0 {
					first = [3]int{b, h, i}
				}
				rows++
			}
		}
	}
	return rows, first
}

func finiteRow[T tensor.Float](x []T) bool {
	for _, y := range x {
		if y-y != 0 {
			return false
		}
	}
	return true
}

// hasNonFiniteSum reports that a sum over a head of x is not finite, as it is where an
// element is not.
func hasNonFiniteSum[T tensor.Float](x tensor.Heads[T]) bool {
	size := x.H * x.N * x.D
	if work := float64(x.B) * float64(size); work >= par.MinWork {
		var odd atomic.Bool
		par.RunEach(x.B*x.H, work, func(i int) {
			if HasNonFiniteSum(x.Head(i/x.H, i%x.H)) {
				odd.Store(true)
			}
		})
		return odd.Load()
	}
	if x.SB == size && x.SH == x.N*x.D && x.SN == x.D && len(x.Data) >= x.B*size {
		return HasNonFiniteSum(tensor.Mat[T]{Data: x.Data, Rows: 1, Cols: x.B * size, Stride: x.B * size})
	}
	for i := range x.B * x.H {
		if HasNonFiniteSum(x.Head(i/x.H, i%x.H)) {
			return true
		}
	}
	return false
}

// HasNonFiniteSum reports whether the sum of x is not finite. This holds if an element
// of x is not finite.
func HasNonFiniteSum[T tensor.Float](x tensor.Mat[T]) bool {
	t := kernel.Active[T]()
	if x.Rows*x.Cols > 0 && scratch.IsContiguous(x) {
		y := t.Sum(x.Data[:x.Rows*x.Cols])
		return y-y != 0
	}
	for i := range x.Rows {
		if y := t.Sum(x.Row(i)); y-y != 0 {
			return true
		}
	}
	return false
}

// ReportNonFinite counts the rows of out that are not finite in keep; without, it returns them
// as an error. Where none is suspected, none is looked for.
func ReportNonFinite[T tensor.Float](out tensor.Heads[T], keep *Saved[T], suspected bool) error {
	if keep != nil {
		keep.NonFinite, keep.NonFiniteAt = 0, [3]int{}
	}
	if !suspected {
		return nil
	}
	rows, first := NonFinite(out)
	switch {
	case rows == 0:
		return nil
	case keep == nil:
		return &NonFiniteError{rows, int64(out.B) * int64(out.H) * int64(out.N), first}
	}
	keep.NonFinite, keep.NonFiniteAt = rows, first
	return nil
}
