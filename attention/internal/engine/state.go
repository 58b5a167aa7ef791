package engine

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// checkAbsorb reports keys and values that a state of shape s cannot take in.
func checkAbsorb[T tensor.Float](s *contract.Shape, c *contract.Call[T]) error {
	if c == nil {
		return contract.ErrNoCall
	}
	if err := checkTokens(s, c, c.K.N); err != nil {
		return err
	}
	if err := contract.CheckKeys(c); err != nil {
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
func checkRead[T tensor.Float](s *contract.Shape, out *tensor.Heads[T], c *contract.Call[T], absorbs bool) error {
	if c == nil {
		return contract.ErrNoCall
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
	if err := contract.CheckShape("o", out, q.B, q.H, q.N, s.Dv); err != nil {
		return err
	}
	if absorbs {
		return c.CheckApart("o", out)
	}
	return (&contract.Call[T]{Q: *q, Rope: c.Rope}).CheckApart("o", out) // the rest is not read
}

// checkStep reports tokens that a state of shape s cannot take in and answer.
func checkStep[T tensor.Float](s *contract.Shape, out *tensor.Heads[T], c *contract.Call[T]) error {
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

// StateCore is a State without the checks of its calls. CheckedAbsorb, CheckedRead and
// CheckedStep make the methods of a State from it.
type StateCore[T tensor.Float] interface {
	StateShape() *contract.Shape
	// Refuse returns an error if states of the mechanism do not support c.
	Refuse(c *contract.Call[T]) error
	// Run absorbs m keys and sets out for n queries in every head. If n and m are
	// equal and above 0, query i sees the keys up to its own.
	Run(out tensor.Heads[T], c *contract.Call[T], n, m int)
}

// rowNoticer is a StateCore that notices rows that are not finite while it computes them.
type rowNoticer interface{ Watch() *headtask.RowNotices }

// checkFinite returns an error if rows of out, which s has set, are not finite.
func checkFinite[T tensor.Float](out tensor.Heads[T], s StateCore[T]) error {
	if x, is := s.(rowNoticer); is && out.N > 1 {
		if w := x.Watch(); w != nil && !w.Overflow.Swap(false) {
			return nil
		}
	}
	return contract.ReportNonFinite(out, nil, true)
}

// CheckedAbsorb absorbs the keys and values of c into s. It returns an error if they do
// not fit the state.
func CheckedAbsorb[T tensor.Float](c *contract.Call[T], s StateCore[T]) error {
	if err := checkAbsorb(s.StateShape(), c); err != nil {
		return err
	}
	if err := s.Refuse(c); err != nil {
		return err
	}
	s.Run(tensor.Heads[T]{}, c, 0, c.K.N)
	return nil
}

// CheckedRead sets out [B,H,N,Dv] for the queries of c. It returns an error if they do not
// fit the state, and a *NonFiniteError if rows of out are not finite.
func CheckedRead[T tensor.Float](out tensor.Heads[T], c *contract.Call[T], s StateCore[T]) error {
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
func CheckedStep[T tensor.Float](out tensor.Heads[T], c *contract.Call[T], s StateCore[T]) error {
	if err := checkStep(s.StateShape(), &out, c); err != nil {
		return err
	}
	if err := s.Refuse(c); err != nil {
		return err
	}
	s.Run(out, c, c.Q.N, c.K.N)
	return checkFinite(out, s)
}

// checkTokens reports what states do not know, and rotations that do not reach
// over n tokens.
func checkTokens[T tensor.Float](s *contract.Shape, c *contract.Call[T], n int) error {
	calls := *s
	calls.N, calls.M = c.Q.N, c.K.N
	if err := contract.CheckDropout(c, &calls); err != nil {
		return err
	}
	if c.Drop != nil && c.Drop.Kind == spec.ProductDrop {
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
	if err := spec.CheckRope(c.Rope, s.D); err != nil {
		return err
	}
	if c.Rope != nil && c.Rope.Rows() < n {
		return fmt.Errorf("rope: has %d rows, the call has %d tokens", c.Rope.Rows(), n)
	}
	return nil
}

// StateUnit returns the task that works on a key head of a state of shape s.
// bind readies it for a call.
func (e *Engine[T]) StateUnit(s *contract.Shape) *headtask.Task[T] {
	group := s.H / s.Hkv
	return &headtask.Task[T]{
		Table: kernel.Active[T](), Spec: &e.Spec,
		Q: make([]tensor.Mat[T], group), O: make([]tensor.Mat[T], group),
		Den: make([][]T, group), Scale: make([]T, group),
		D: s.D, Dv: s.Dv, PreparedWidth: e.Spec.Width(s.D),
	}
}

// BindState points u, of key head i of a state of shape s, at the m keys and values
// of c and at its n queries and their outputs.
func BindState[T tensor.Float](u *headtask.Task[T], ar *arena.Arena, s *contract.Shape, i int, out tensor.Heads[T], c *contract.Call[T], n, m int) {
	b, kh := i/s.Hkv, i%s.Hkv
	u.Arena, u.N, u.M, u.Rope, u.Drop, u.KeyHead = ar, n, m, c.Rope, nil, kh
	if c.Drop.IsActive() {
		u.Drop, u.Coords, u.KeyHeads = c.Drop, statePlace(c, b), s.Hkv
	}
	u.LogG = tensor.Mat[T]{}
	if m > 0 {
		if c.HasDecay() {
			u.LogG = c.LogG.Head(b, kh)
		}
		u.K, u.V, u.Mask = c.K.Head(b, kh), c.V.Head(b, kh), nil
		if c.KeyMask != nil {
			u.Mask = c.KeyMask[b*m:][:m]
		}
	}
	if n > 0 {
		for g := range u.Q {
			h := kh*len(u.Q) + g
			u.Q[g], u.O[g] = c.Q.Head(b, h), out.Head(b, h)
			u.Den[g] = arena.Take[T](ar, n)
			u.Scale[g] = u.Spec.RowScale(u.D, h)
		}
	}
}

// UnbindState takes a call and its arena off u: an idle state would keep them from the garbage
// collector.
func UnbindState[T tensor.Float](u *headtask.Task[T]) {
	u.Arena, u.Rope, u.Drop = nil, nil, nil
	u.K, u.V, u.LogG, u.Mask = tensor.Mat[T]{}, tensor.Mat[T]{}, tensor.Mat[T]{}, nil
	clear(u.Q)
	clear(u.O)
	clear(u.Den)
	clear(u.Sums[:cap(u.Sums)])
}

// stateHeads computes key heads of a state's call: m keys and n queries each. A call of
// a single token has its prepared rows in rows.
type stateHeads[T tensor.Float] struct {
	s interface {
		Do(lo, hi int, out tensor.Heads[T], c *contract.Call[T], n, m int, rows tokenRows[T])
	}
	out  tensor.Heads[T]
	c    *contract.Call[T]
	n, m int
	rows tokenRows[T]
}

func (h *stateHeads[T]) RunRange(lo, hi int) {
	if h.rows.x != nil {
		ar := arena.Acquire()
		h.rows.prepare(ar, lo, hi)
		ar.Release()
	}
	h.s.Do(lo, hi, h.out, h.c, h.n, h.m, h.rows)
}

// A token of a head is little work. With many heads, a piece of a step has up to
// tokenHeads of them.
const tokenHeads = 16

// runHeads does all n key heads. Little work does not look for memory to carry it
// in.
func runHeads[T tensor.Float](n int, work float64, h stateHeads[T]) {
	if work < par.MinWork {
		h.RunRange(0, n)
		return
	}
	size := 1
	if h.rows.x != nil {
		size = min(max(n/64, 1), tokenHeads)
	}
	par.Run(n, size, work, h)
}

// decaying reports that a state has met a decay.
func decaying[T tensor.Float](st contract.State[T]) bool {
	s, ok := st.(interface{ HasDecay() bool })
	return ok && s.HasDecay()
}

const decayKind = " with decay"

// statePlace is the place of batch row b of a call to a state.
func statePlace[T tensor.Float](c *contract.Call[T], b int) spec.DropCoords {
	if p := spec.SourceOf(c.Drop); p != nil {
		return *p
	}
	return spec.DropCoords{Row: b, Start: c.Drop.Start, B: b, N: c.Q.N, M: c.K.N}
}

// HasFadingKeys reports whether the keys that queries see have lost weight with time.
func HasFadingKeys[T tensor.Float](c *contract.Call[T]) bool { return c.HasDecay() || decaying(c.Init) }
