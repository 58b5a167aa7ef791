package attention

import (
	"errors"
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/tensor"
)

// Form is a way to compute a mechanism: directly, as sums of features, or step by step.
type Form int

const (
	Auto   Form = iota // Plan chooses by the shape of each sequence
	Direct             // every weight is computed: O(N·M); of package headwise: the function itself, at its own cost
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

// Call holds the arguments of one attention call. Mechanisms write to nothing in it except
// Final. Errors have the names of formulas and of arrays in files: q, k, v and o for Q, K, V and
// the output, key_lengths for KeyLens, keymask for KeyMask, attn_keep for AttnKeep, cu_q and cu_k for
// CuQ and CuK, log_g for LogG.
type Call struct {
	Q tensor.Heads // [B,H,N,D]
	K tensor.Heads // [B,Hkv,M,D]; Hkv divides H
	V tensor.Heads // [B,Hkv,M,Dv]

	Causal   bool    // query i sees keys j ≤ i + (M-N)
	KeyLens  []int64 // [B] valid keys of each batch row; nil: all
	KeyMask  []bool  // [B·M] unmasked keys; nil: all
	AttnKeep []bool  // [N·M] unmasked pairs of query and key; nil: all; direct form only

	// CuQ and CuK pack sequences of different lengths into one batch row: sequence s has tokens
	// CuQ[s] ≤ n < CuQ[s+1] of Q and CuK[s] ≤ n < CuK[s+1] of K and V. B is 1.
	CuQ, CuK []int64

	// Init is a state of keys that come before the keys of the call; every query sees them.
	// Final is overwritten with the state after the call. Either may be nil. Both have one
	// batch row for each sequence of the call. If they are states of sums, the call uses the
	// linear form with their chunk and carry. A causal sequence must not have more queries than
	// keys.
	Init, Final State

	Rope *Rope // rotation of rows between normalisation and features; nil: none
	Drop *Drop // dropout, for training; nil: none

	// LogG [B,Hkv,M,1] holds the log-decay of each token: the natural logarithm of its decay
	// factor, finite and at most 0. Empty means no decay. Query i has the position of key i +
	// (M-N), and the weight of key j is f(s_ij)·exp(Σ_{j<t≤i} LogG_t). Only causal calls and
	// states support it. If a state has absorbed tokens with LogG, later tokens without LogG
	// have the factor 1. Masked keys have no weight, but their log-decay counts.
	LogG tensor.Heads

	Form  Form
	Chunk int // tokens per chunk of the linear form; 0: as planned
}

// LongestKeys returns the number of keys of the longest sequence, without padding.
func (c *Call) LongestKeys() int {
	var room [8]Sequence
	most := 0
	for _, s := range c.AppendSequences(room[:0]) {
		most = max(most, s.M)
	}
	return most
}

var (
	errNoCall  = errors.New("call: it is nil")
	errNoGrads = errors.New("grads: they are nil")
)

// Check returns an error for the first field of c that does not fit; it names the field
// and both values.
func (c *Call) Check() error {
	if err := checkKeys(c); err != nil {
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
	if err := checkDropout(c, &shape); err != nil {
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

// checkKeys returns an error for the first field of c about keys and values that does not fit.
func checkKeys(c *Call) error {
	if c == nil {
		return errNoCall
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
	if err := checkRope(c.Rope, k.D); err != nil {
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
func (c *Call) CheckOutput(name string, o *tensor.Heads) error {
	return CheckShape(name, o, c.Q.B, c.Q.H, c.Q.N, c.V.D)
}

// CheckWritten returns an error if o, which a call is about to set, does not have the shape
// [B,H,N,Dv], or overlaps itself, a tensor of c or what keep holds. keep may be nil.
func (c *Call) CheckWritten(name string, o *tensor.Heads, keep *Saved) error {
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
func (c *Call) CheckApart(name string, o *tensor.Heads) error {
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

// overlapsRow reports whether o and the slice x have an element in common.
func overlapsRow(o *tensor.Heads, x []tensor.Float) bool {
	return o.Overlaps(tensor.HeadsOf(x, 1, 1, 1, len(x)))
}

func overlapError(name, other string) error {
	return fmt.Errorf("%s: overlaps %s, needs memory of its own", name, other)
}

// CheckShape returns an error, with the name, if the shape of x is not [b,h,n,d].
func CheckShape(name string, x *tensor.Heads, b, h, n, d int) error {
	if err := x.Check(name); err != nil {
		return err
	}
	if x.B != b || x.H != h || x.N != n || x.D != d {
		return fmt.Errorf("%s: shape is [%d,%d,%d,%d], needs [%d,%d,%d,%d]", name, x.B, x.H, x.N, x.D, b, h, n, d)
	}
	return nil
}

// Sequence is one independent sequence of a call: a batch row, or a packed segment of one.
type Sequence struct {
	Index  int // among the call's sequences
	Batch  int // batch row
	Q0, N  int // first query, and number of queries
	Keys   int // number of keys, padding included
	K0, M  int // first key, and number of keys within the row's key length
	Offset int // in a causal call query i sees keys j ≤ i + Offset
}

// Sequences returns the sequences of the call: batch rows, or packed segments.
func (c *Call) Sequences() []Sequence { return c.AppendSequences(nil) }

// AppendSequences appends the sequences of the call to list.
func (c *Call) AppendSequences(list []Sequence) []Sequence {
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
func (c *Call) CheckRows(dst tensor.Mat, b, h, i0, i1 int) error {
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
	return c.CheckApart("weights", &tensor.Heads{Data: dst.Data, B: 1, H: 1, N: dst.Rows, D: dst.Cols, SN: dst.Stride})
}

// Mask returns the key mask of s, or nil if all its keys are unmasked.
func (c *Call) Mask(s *Sequence) []bool {
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

// HasDecay reports whether the call has a log-decay.
func (c *Call) HasDecay() bool { return c.LogG.D != 0 || len(c.LogG.Data) > 0 }

// checkDecay returns an error if the decay does not fit the keys. Numbers beyond a row's key
// length are not checked.
func (c *Call) checkDecay() error {
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
func (c *Call) HasState() bool { return c.Init != nil || c.Final != nil }

// checkDropout returns an error if the dropout of c does not fit heads of shape s.
func checkDropout(c *Call, s *Shape) error {
	return checkDrop(c.Drop, s.B*s.H*s.N, s.B*s.Hkv*s.M, s.D)
}
