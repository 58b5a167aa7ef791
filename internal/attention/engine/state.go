package engine

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// StateUnit returns the task for a key head of a state of shape s. BindState prepares it for
// each call.
func (e *Engine) StateUnit(s *attention.Shape) *headtask.Task {
	group := s.H / s.Hkv
	return &headtask.Task{
		Geometry: headtask.Geometry{
			Table: kernel.Active[float](), Spec: &e.Spec,
			Q: make([]tensor.Mat, group), Scale: make([]float, group),
			D: s.D, Dv: s.Dv, PreparedWidth: e.Spec.Width(s.D),
		},
		Output: headtask.Output{O: make([]tensor.Mat, group), Den: make([][]float, group)},
	}
}

// BindState sets u, the task of key head i of a state of shape s, to the m keys and values of
// c, its n queries and their outputs.
func BindState(u *headtask.Task, ar *arena.Arena, s *attention.Shape, i int, out tensor.Heads, c *attention.Call, n, m int) {
	b, kh := i/s.Hkv, i%s.Hkv
	u.Arena, u.N, u.M, u.Rope, u.Drop, u.KeyHead = ar, n, m, c.Rope, nil, kh
	if c.Drop.IsActive() {
		u.Drop, u.Coords, u.KeyHeads = c.Drop, statePlace(c, b), s.Hkv
	}
	u.LogG = tensor.Mat{}
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
			u.Den[g] = arena.Take[float](ar, n)
			u.Scale[g] = u.Spec.RowScale(u.D, h)
		}
	}
}

// UnbindState removes the call and the arena from u, so that an idle state does not keep them
// in memory.
func UnbindState(u *headtask.Task) {
	u.Arena, u.Rope, u.Drop = nil, nil, nil
	u.K, u.V, u.LogG, u.Mask = tensor.Mat{}, tensor.Mat{}, tensor.Mat{}, nil
	clear(u.Q)
	clear(u.O)
	clear(u.Den)
	clear(u.Sums[:cap(u.Sums)])
}

// stateHeads computes key heads of a state's call: m keys and n queries each. A call of
// a single token has its prepared rows in rows.
type stateHeads struct {
	s interface {
		Do(lo, hi int, out tensor.Heads, c *attention.Call, n, m int, rows tokenRows)
	}
	out  tensor.Heads
	c    *attention.Call
	n, m int
	rows tokenRows
}

func (h *stateHeads) RunRange(lo, hi int) {
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
func runHeads(n int, work float64, h stateHeads) {
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
func decaying(st attention.State) bool {
	s, ok := st.(interface{ HasDecay() bool })
	return ok && s.HasDecay()
}

// statePlace is the place of batch row b of a call to a state.
func statePlace(c *attention.Call, b int) attention.DropCoords {
	if p := c.Drop.Source; p != nil {
		return *p
	}
	return attention.DropCoords{Row: b, Start: c.Drop.Start, B: b, N: c.Q.N, M: c.K.N}
}

// HasFadingKeys reports whether c has a decay, or continues from a state that has one.
func HasFadingKeys(c *attention.Call) bool {
	return c.HasDecay() || decaying(c.Init)
}
