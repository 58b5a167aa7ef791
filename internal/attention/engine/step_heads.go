package engine

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// StepMemory returns the moments of all heads if the state steps head by head, otherwise nil.
func (s *RecurrentState) StepMemory() []float {
	if !s.byHead {
		return nil
	}
	return s.moments.data
}

// RunPerHead is Run for one token whose rows are computed by from, one head at a time. Each
// head is stepped as soon as from has made its rows, while rows and moments are in the caches.
func (s *RecurrentState) RunPerHead(out tensor.Heads, c *attention.Call, from attention.HeadProjector, work float64) {
	sh := &s.Shape
	if s.HasClosedCount = c.KeyMask == nil && !c.HasDecay() && s.allHeadsClosed(); !s.HasClosedCount {
		attention.ProjectHeads(from, sh.H, work)
		s.Run(out, c, 1, 1)
		return
	}
	ar := arena.Acquire()
	defer ar.Release()
	rows := s.Engine.tokenRows(ar, sh, c, 1, 1)
	rows.byHead = true
	par.Run(sh.H, 1, work, headSteps{from, s, out, rows})
	s.TokenCount++
}

// headSteps does heads of all batch rows.
type headSteps struct {
	source attention.HeadProjector
	s      *RecurrentState
	out    tensor.Heads
	rows   tokenRows
}

func (f *headSteps) RunRange(lo, hi int) {
	n := f.s.Shape.B
	for h := lo; h < hi; h++ {
		f.source.ProjectHead(h, f.s.moments.data[h*n*f.s.moments.size:][:n*f.s.moments.size])
		ar := arena.Acquire()
		f.rows.prepare(ar, h*n, (h+1)*n)
		ar.Release()
		f.s.fuseStepHeads(h*n, (h+1)*n, f.out, f.rows.c, f.rows)
	}
}
