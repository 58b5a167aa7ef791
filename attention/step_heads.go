package attention

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// HeadProjector computes the queries, keys and values of a token head by head. A layer passes
// one to StepPerHead, which calls it for each head just before the state needs its rows.
type HeadProjector interface {
	// ProjectHead sets head h of Q, K and V in every batch row, and nothing else. Calls for
	// different heads may run concurrently. next is the state memory that is read next;
	// prefetch it during the projection.
	ProjectHead(h int, next []tensor.Float)
}

// headStepper is a state that can process one head at a time.
type headStepper interface {
	StateCore
	// StepMemory returns the memory that a step reads, or nil if the state does not process one
	// head at a time.
	StepMemory() []tensor.Float
	// RunPerHead is Run for one token whose rows are computed by from.
	RunPerHead(out tensor.Heads, c *Call, from HeadProjector, work float64)
}

// StepMemory returns the memory that each step of s reads from one end to the other, if s can
// process one head at a time, and otherwise nil.
func StepMemory(s State) []tensor.Float {
	if s, ok := s.(headStepper); ok {
		return s.StepMemory()
	}
	return nil
}

// StepPerHead is s.Step(out, c) for one token of each batch row, out [B,H,1,Dv], whose rows are
// computed by from. work is the number of floating-point operations of from for all heads. A
// state that processes head by head (Plan.Renews) computes each head as soon as its rows are
// made, while rows and state are in the caches. It returns an error if out or c do not fit the
// state, or if c has more than one token.
func StepPerHead(s State, out tensor.Heads, c *Call, from HeadProjector, work float64) error {
	if c == nil {
		return errNoCall
	}
	if c.Q.N != 1 {
		return fmt.Errorf("q: N is %d, a step by heads has 1", c.Q.N)
	}
	h, ok := s.(headStepper)
	if !ok || h.StepMemory() == nil {
		ProjectHeads(from, c.Q.H, work)
		return s.Step(out, c)
	}
	if err := checkStep(h.StateShape(), &out, c); err != nil {
		return err
	}
	if err := h.Refuse(c); err != nil {
		return err
	}
	h.RunPerHead(out, c, from, work)
	return checkFinite(out, h)
}

// ProjectHeads calls from for n heads in parallel. work is the number of floating-point
// operations for all heads.
func ProjectHeads(from HeadProjector, n int, work float64) {
	par.Run(n, 1, work, headSources{from})
}

// headSources makes the rows of heads without a step.
type headSources struct{ source HeadProjector }

func (f *headSources) RunRange(lo, hi int) {
	for h := lo; h < hi; h++ {
		f.source.ProjectHead(h, nil)
	}
}
