package engine

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// StateUnit returns the task for a key head of a state of shape s. BindState prepares it for
// each call.
func (e *Engine[T]) StateUnit(s *attention.Shape) *headtask.Task[T] {
	group := s.H / s.Hkv
	return &headtask.Task[T]{
		Geometry: headtask.Geometry[T]{
			Table: kernel.Active[T](), Spec: &e.Spec,
			Q: make([]tensor.Mat[T], group), Scale: make([]T, group),
			D: s.D, Dv: s.Dv, PreparedWidth: e.Spec.Width(s.D),
		},
		Output: headtask.Output[T]{O: make([]tensor.Mat[T], group), Den: make([][]T, group)},
	}
}

// BindState sets u, the task of key head i of a state of shape s, to the m keys and values of
// c, its n queries and their outputs.
func BindState[T tensor.Float](u *headtask.Task[T], ar *arena.Arena, s *attention.Shape, i int, out tensor.Heads[T], c *attention.Call[T], n, m int) {
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

// UnbindState removes the call and the arena from u, so that an idle state does not keep them
// in memory.
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
		Do(lo, hi int, out tensor.Heads[T], c *attention.Call[T], n, m int, rows tokenRows[T])
	}
	out  tensor.Heads[T]
	c    *attention.Call[T]
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

// decaying reports whether a state has absorbed a decay.
func decaying[T tensor.Float](st attention.State[T]) bool {
	s, ok := st.(interface{ HasDecay() bool })
	return ok && s.HasDecay()
}

// statePlace is the place of batch row b of a call to a state.
func statePlace[T tensor.Float](c *attention.Call[T], b int) attention.DropCoords {
	if p := c.Drop.Source; p != nil {
		return *p
	}
	return attention.DropCoords{Row: b, Start: c.Drop.Start, B: b, N: c.Q.N, M: c.K.N}
}

// HasFadingKeys reports whether c has a decay, or continues from a state that has one.
func HasFadingKeys[T tensor.Float](c *attention.Call[T]) bool {
	return c.HasDecay() || decaying(c.Init)
}
