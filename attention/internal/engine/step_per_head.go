package engine

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// HeadProjector makes the queries, keys and values of a token head by head.
type HeadProjector[T tensor.Float] interface {
	// Head sets head h of Q, K and V in every batch row, and no other head. It may run
	// for several heads at a time. ahead is the state memory of the head, which is read
	// next: prefetch it during the projection.
	Head(h int, ahead []T)
}

// headStepper is a state that may take a head at a time.
type headStepper[T tensor.Float] interface {
	// stepMemory returns nil where it does not.
	stepMemory() []T
	stepHeads(out tensor.Heads[T], c *contract.Call[T], from HeadProjector[T], work float64) error
}

// StepMemory returns the memory that each step of s reads from one end to the other, where a
// state takes a head at a time; nil where it does not.
func StepMemory[T tensor.Float](s contract.State[T]) []T {
	if s, ok := s.(headStepper[T]); ok {
		return s.stepMemory()
	}
	return nil
}

func (s *RecurrentState[T]) stepMemory() []T {
	if !s.byHead {
		return nil
	}
	return s.moments.data
}

// StepPerHead is s.Step(out, c) for one token of each batch row, out [B,H,1,Dv]. from
// makes the rows of a head, with work floating-point operations for all heads. A state
// that processes head by head (Plan.Renews) computes each head as soon as its rows are
// made, while rows and state are in the caches. It returns an error if out or c do not
// fit the state, or if q has more than one token.
func StepPerHead[T tensor.Float](s contract.State[T], out tensor.Heads[T], c *contract.Call[T], from HeadProjector[T], work float64) error {
	if c == nil {
		return contract.ErrNoCall
	}
	if c.Q.N != 1 {
		return fmt.Errorf("q: N is %d, a step by heads has 1", c.Q.N)
	}
	if s, ok := s.(headStepper[T]); ok && s.stepMemory() != nil {
		return s.stepHeads(out, c, from, work)
	}
	par.Run(c.Q.H, 1, work, headSources[T]{from})
	return s.Step(out, c)
}

// headSources makes the rows of heads without a step.
type headSources[T tensor.Float] struct{ source HeadProjector[T] }

func (f *headSources[T]) RunRange(lo, hi int) {
	for h := lo; h < hi; h++ {
		f.source.Head(h, nil)
	}
}

func (s *RecurrentState[T]) stepHeads(out tensor.Heads[T], c *contract.Call[T], from HeadProjector[T], work float64) error {
	sh := &s.Shape
	if err := checkStep(sh, &out, c); err != nil {
		return err
	}
	if err := s.Refuse(c); err != nil {
		return err
	}
	if s.HasClosedCount = c.KeyMask == nil && !c.HasDecay() && s.allHeadsClosed(); !s.HasClosedCount {
		par.Run(sh.H, 1, work, headSources[T]{from})
		s.Run(out, c, 1, 1)
		return checkFinite(out, s)
	}
	ar := arena.Acquire()
	defer ar.Release()
	rows := s.Engine.tokenRows(ar, sh, c, 1, 1)
	rows.byHead = true
	par.Run(sh.H, 1, work, headSteps[T]{headSources[T]{from}, s, out, rows})
	s.TokenCount++
	return checkFinite(out, s)
}

// headSteps does heads of all batch rows.
type headSteps[T tensor.Float] struct {
	headSources[T]
	s    *RecurrentState[T]
	out  tensor.Heads[T]
	rows tokenRows[T]
}

func (f *headSteps[T]) RunRange(lo, hi int) {
	n := f.s.Shape.B
	for h := lo; h < hi; h++ {
		f.source.Head(h, f.s.moments.data[h*n*f.s.moments.size:][:n*f.s.moments.size])
		ar := arena.Acquire()
		f.rows.prepare(ar, h*n, (h+1)*n)
		ar.Release()
		f.s.fuseStepHeads(h*n, (h+1)*n, f.out, f.rows.c, f.rows)
	}
}
