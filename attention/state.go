package attention

import (
	"errors"
	"fmt"

	"github.com/farfield-ml/farfield/tensor"
)

// State holds the keys and values that a mechanism has absorbed. Calls must have the B, H, Hkv,
// D and Dv for which it was made. Results do not depend on how tokens are divided into calls.
// Outputs must not overlap the tensors of their call, as for a Mechanism.
//
// Absorb, Read, Step, Merge and Reset must not run at the same time as any other method of the
// same State. Different states of one mechanism may be used at the same time, and so may a
// clone and its origin.
type State interface {
	// Absorb adds the keys and values of c; its queries are not used.
	Absorb(c *Call) error
	// Read sets out for the queries of c, each of which sees all absorbed keys. It returns a
	// *NonFiniteError, after all rows are written, if rows are not finite.
	Read(out tensor.Heads, c *Call) error
	// Step continues a causal call: it absorbs the tokens of c one after another, and query i
	// sees all keys up to its own, whatever c.Causal says. c must have as many queries as keys.
	// It returns the errors of Read.
	Step(out tensor.Heads, c *Call) error
	// Merge appends the tokens of next, which is not changed. Both states must have the same
	// mechanism, setting, shape, chunk and carry. If rows are rotated, the positions of next
	// must follow the positions of s. Results differ from those of one stream in rounding,
	// within the bound of the linear form, because chunks end at other tokens. Merging a state
	// without tokens changes nothing.
	Merge(next State) error
	// Clone returns an independent state of the same tokens.
	Clone() State
	// Reset removes all tokens.
	Reset()
	Tokens() int64 // tokens absorbed, masked ones included
	Bytes() int64  // memory held
	// AppendBinary appends a snapshot to b. A state that Mechanism.RestoreState restores from
	// it, in any process, continues with the same bits.
	AppendBinary(b []byte) ([]byte, error)
}

// Carry is the way in which a state adds the sums of a chunk to the sums of earlier chunks. The
// sums of each chunk start from zero in the element type.
type Carry int

const (
	// Rounded adds in the element type, so each chunk rounds the whole sum. If a token repeats,
	// all these roundings can go in one direction.
	Rounded Carry = iota
	// Compensated also keeps the rounding error of each sum, so that a stream of any length has
	// the error of a single chunk. States take twice the memory. Reading costs no more, because
	// it uses the rounded sums.
	Compensated
)

// String returns the name of the carry.
func (c Carry) String() string {
	if c == Compensated {
		return "compensated"
	}
	return "rounded"
}

// StateCore is a State without the checks of its calls. CheckedAbsorb, CheckedRead and
// CheckedStep implement the methods of a State with it.
type StateCore interface {
	StateShape() *Shape
	// Refuse returns an error if states of the mechanism do not support c.
	Refuse(c *Call) error
	// Run absorbs m keys and sets out for n queries in every head. If n and m are
	// equal and above 0, query i sees the keys up to its own.
	Run(out tensor.Heads, c *Call, n, m int)
}

// CheckedAbsorb absorbs the keys and values of c into s. It returns an error if they do
// not fit the state.
func CheckedAbsorb(c *Call, s StateCore) error {
	if err := checkAbsorb(s.StateShape(), c); err != nil {
		return err
	}
	if err := s.Refuse(c); err != nil {
		return err
	}
	s.Run(tensor.Heads{}, c, 0, c.K.N)
	return nil
}

// CheckedRead sets out [B,H,N,Dv] for the queries of c. It returns an error if they do not
// fit the state, and a *NonFiniteError if rows of out are not finite.
func CheckedRead(out tensor.Heads, c *Call, s StateCore) error {
	if err := checkRead(s.StateShape(), &out, c, false); err != nil {
		return err
	}
	if err := s.Refuse(c); err != nil {
		return err
	}
	s.Run(out, c, c.Q.N, 0)
	return checkFinite(out, s)
}

// CheckedStep absorbs the tokens of c one by one and sets out [B,H,N,Dv] for their queries.
// It returns an error if they do not fit the state, and a *NonFiniteError if rows of out are
// not finite.
func CheckedStep(out tensor.Heads, c *Call, s StateCore) error {
	if err := checkStep(s.StateShape(), &out, c); err != nil {
		return err
	}
	if err := s.Refuse(c); err != nil {
		return err
	}
	s.Run(out, c, c.Q.N, c.K.N)
	return checkFinite(out, s)
}

// checkAbsorb returns an error if a state of shape s cannot absorb the keys and values of c.
func checkAbsorb(s *Shape, c *Call) error {
	if c == nil {
		return errNoCall
	}
	if err := checkTokens(s, c, c.K.N); err != nil {
		return err
	}
	if err := checkKeys(c); err != nil {
		return err
	}
	switch k := &c.K; {
	case k.B != s.B:
		return fmt.Errorf("k: B is %d, the state has %d", k.B, s.B)
	case k.H != s.Hkv:
		return fmt.Errorf("k: has %d heads, the state has %d", k.H, s.Hkv)
	case k.D != s.D:
		return fmt.Errorf("k: D is %d, the state has %d", k.D, s.D)
	case c.V.D != s.Dv:
		return fmt.Errorf("v: Dv is %d, the state has %d", c.V.D, s.Dv)
	}
	return nil
}

// checkRead reports queries that a state of shape s cannot answer. If absorbs is set, the
// keys of c have been checked and are read, too.
func checkRead(s *Shape, out *tensor.Heads, c *Call, absorbs bool) error {
	if c == nil {
		return errNoCall
	}
	if err := checkTokens(s, c, c.Q.N); err != nil {
		return err
	}
	q := &c.Q
	if err := q.Check("q"); err != nil {
		return err
	}
	switch {
	case q.B != s.B:
		return fmt.Errorf("q: B is %d, the state has %d", q.B, s.B)
	case q.H != s.H:
		return fmt.Errorf("q: has %d heads, the state has %d", q.H, s.H)
	case q.D != s.D:
		return fmt.Errorf("q: D is %d, the state has %d", q.D, s.D)
	}
	if err := CheckShape("o", out, q.B, q.H, q.N, s.Dv); err != nil {
		return err
	}
	if absorbs {
		return c.CheckApart("o", out)
	}
	return (&Call{Q: *q, Rope: c.Rope}).CheckApart("o", out) // the rest is not read
}

// checkStep returns an error if a state of shape s cannot step the tokens of c.
func checkStep(s *Shape, out *tensor.Heads, c *Call) error {
	if err := checkAbsorb(s, c); err != nil {
		return err
	}
	if err := checkRead(s, out, c, true); err != nil {
		return err
	}
	if c.Q.N != c.K.N {
		return fmt.Errorf("k: M is %d, a step of q has %d", c.K.N, c.Q.N)
	}
	return nil
}

// checkTokens reports what states do not know, and rotations that do not reach
// over n tokens.
func checkTokens(s *Shape, c *Call, n int) error {
	calls := *s
	calls.N, calls.M = c.Q.N, c.K.N
	if err := checkDropout(c, &calls); err != nil {
		return err
	}
	if c.Drop != nil && c.Drop.Kind == ProductDrop {
		return fmt.Errorf("dropout: %v is not defined for a state", c.Drop.Kind)
	}
	switch {
	case c.KeyLens != nil:
		return fmt.Errorf("key_lengths: not defined for a state; use keymask")
	case c.AttnKeep != nil:
		return fmt.Errorf("attn_keep: not defined for a state")
	case c.CuQ != nil:
		return fmt.Errorf("cu_q: not defined for a state")
	case c.CuK != nil:
		return fmt.Errorf("cu_k: not defined for a state")
	}
	if err := checkRope(c.Rope, s.D); err != nil {
		return err
	}
	if c.Rope != nil && c.Rope.Rows() < n {
		return fmt.Errorf("rope: has %d rows, the call has %d tokens", c.Rope.Rows(), n)
	}
	return nil
}

// rowNoticer is a StateCore that notices rows that are not finite while it computes them.
type rowNoticer interface {
	// MayBeNonFinite reports whether rows of the last call may hold NaN or infinities.
	MayBeNonFinite() bool
}

// checkFinite returns an error if rows of out, which s has set, are not finite.
func checkFinite(out tensor.Heads, s StateCore) error {
	if x, is := s.(rowNoticer); is && out.N > 1 && !x.MayBeNonFinite() {
		return nil
	}
	return ReportNonFinite(out, nil, true)
}

// ErrNotMergeable is in the errors of Merge for a state that cannot follow another one.
var ErrNotMergeable = errors.New("state: not mergeable")
