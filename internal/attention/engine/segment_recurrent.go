package engine

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
)

// segment is a call whose sequences begin after a state, end in one, or both.
type segment interface {
	// countPriorKeys returns the number of keys of sequence i in the initial state, 0 if all of
	// them are masked.
	countPriorKeys(i int) int64
	// Earlier describes the keys of head i in the state before the call.
	Earlier(i int) headtask.PriorKeys
	// Forward runs key head kh of a sequence, as task u.
	Forward(u *headtask.Task, s *SequenceTask, kh int)
	// Backward is Forward for the gradients g.
	Backward(u *headtask.Task, s *SequenceTask, kh int, g *attention.Grads)
	// Check returns an error for gradients of states that do not fit.
	Check(g *attention.Grads) error
	// end counts the tokens of the state after the call.
	end()
}

// CheckSegment returns an error if a call with a state before or after it has a field that
// states do not support. It also returns the number of keys of the longest sequence.
func (e *Engine) CheckSegment(c *attention.Call, seqs []SequenceTask, keep bool) (keys int, err error) {
	if err := e.refuseFuture("init"); err != nil {
		return 0, err
	}
	switch {
	case c.AttnKeep != nil:
		return 0, fmt.Errorf("attn_keep: not defined with a state before or after the call")
	case c.Form == attention.Direct && !e.Spec.IsPairwise():
		return 0, fmt.Errorf("form: direct needs every key, a state of %s holds sums", e.Spec.Name)
	case keep && c.Init == c.Final:
		return 0, fmt.Errorf("final: is the initial state itself, which Backward needs")
	}
	for _, s := range seqs {
		if c.Causal && s.N > s.Keys {
			return 0, fmt.Errorf("init: a causal sequence has %d queries and only %d keys", s.N, s.Keys)
		}
		keys = max(keys, s.Keys)
	}
	return keys, nil
}

// StatesOf returns the initial and final states of c as type S; a state that is nil stays nil.
// parts returns the engine and shape of a state. StatesOf returns an error if a state has
// another type, mechanism or shape.
func StatesOf[S interface {
	comparable
	attention.State
}](e *Engine, c *attention.Call, seqs []SequenceTask, parts func(S) (*Engine, *attention.Shape)) (init, final S, err error) {
	var none S
	want := attention.Shape{B: len(seqs), H: c.Q.H, Hkv: c.K.H, D: c.Q.D, Dv: c.V.D}
	set := false
	for _, x := range []struct {
		name string
		st   attention.State
		to   *S
	}{{"init", c.Init, &init}, {"final", c.Final, &final}} {
		if x.st == nil {
			continue
		}
		st, ok := x.st.(S)
		if !ok || st == none {
			return none, none, fmt.Errorf("%s: kind of state is %T, %s has %T", x.name, x.st, e.Spec.Name, none)
		}
		from, shape := parts(st)
		if !set {
			set = true
			want.Chunk, want.Carry = shape.Chunk, shape.Carry
			if c.Chunk > 0 && !e.Spec.IsPairwise() {
				want.Chunk = c.Chunk
			}
		}
		if err := e.Identity().Fits(x.name, &want, from.Identity(), shape); err != nil {
			return none, none, err
		}
		*x.to = st
	}
	return init, final, nil
}

// CheckStateGrads returns an error if g has gradients of states that c does not have, or that
// do not fit.
func CheckStateGrads(g *attention.Grads, c *attention.Call, seg segment) error {
	switch {
	case g.DInit != nil && c.Init == nil:
		return fmt.Errorf("dinit: the call has no initial state")
	case g.DFinal != nil && c.Final == nil:
		return fmt.Errorf("dfinal: the call has no final state")
	case seg == nil:
		return nil
	}
	return seg.Check(g)
}

// RecurrentSegment is a call between states of sums, at least one of which is set.
type RecurrentSegment struct {
	Engine      *Engine
	Init, Final *RecurrentState
	Shape       *attention.Shape // shape of both states
	Keys        int              // keys of the longest sequence
	Sequences   []SequenceTask
	Group       int // number of key heads of a sequence
	Fades       bool
}

func newSumsSegment(e *Engine, c *attention.Call, seqs []SequenceTask, keys int) (segment, error) {
	init, final, err := StatesOf(e, c, seqs, func(s *RecurrentState) (*Engine, *attention.Shape) { return s.Engine, &s.Shape })
	if err != nil {
		return nil, err
	}
	x := &RecurrentSegment{Engine: e, Init: init, Final: final, Keys: keys, Sequences: seqs, Group: c.K.H, Fades: HasFadingKeys(c)}
	if x.Shape = new(attention.Shape); init != nil {
		*x.Shape = init.Shape
	} else {
		*x.Shape = final.Shape
	}
	return x, nil
}

func (x *RecurrentSegment) countPriorKeys(i int) int64 {
	if x.Init == nil || x.Init.Heads[i*x.Group].First == headtask.Unseen {
		return 0
	}
	return x.Init.TokenCount
}

// Earlier describes the keys of head i in the initial state. It counts the keys of closed
// chunks by the sum of the constant feature, which single powers do not have. It knows the
// lengths of keys in the open chunk only.
func (x *RecurrentSegment) Earlier(i int) (e headtask.PriorKeys) {
	if x.Init == nil {
		return e
	}
	s := x.Init.Heads[i]
	if !x.Engine.Spec.IsSinglePower() {
		e.Count = s.CountClosedKeys()
	}
	for j, exists := range s.Valid[:s.Count] {
		if !exists {
			continue
		}
		var gone, square float64
		if s.Decays != nil {
			gone = s.Decays.SumBetween(j-1, j)
		}
		for c := 1; c <= s.Task.PreparedWidth; c++ {
			y := float64(s.X[c*s.ColumnStride+j])
			square += y * y
		}
		e.Add(gone, gateFactor(&x.Engine.Spec, math.Sqrt(square)))
		e.Longest = max(e.Longest, math.Sqrt(square))
	}
	if s.Decays != nil {
		e.PendingLogDecay = s.Decays.Pending
	}
	return e
}

func (x *RecurrentSegment) end() {
	if x.Final == nil {
		return
	}
	tokens := int64(x.Keys)
	if x.Init != nil {
		tokens += x.Init.TokenCount
	}
	x.Final.TokenCount, x.Final.HasClosedCount = tokens, false
}

// stream returns the scan of a task, with what the state before holds.
func (x *RecurrentSegment) stream(u *headtask.Task, i int) *headtask.Scan {
	s := u.Scan.Start(u, x.Engine.newMonomials(u.PreparedWidth), x.Shape.Chunk, u.TakeScratch)
	if x.Shape.Carry == attention.Compensated {
		s.Moments.Compensate(u.TakeScratch)
	}
	if x.Init != nil {
		s.CopyFrom(x.Init.Heads[i])
	}
	if x.Fades {
		s.StartAges()
		s.PendingLogDecay = s.Decays.Pending
	}
	return s
}

// OpenBefore returns the number of tokens in the open chunk of head i of the initial state.
func (x *RecurrentSegment) OpenBefore(i int) int {
	if x.Init == nil {
		return 0
	}
	return x.Init.Heads[i].Count
}

// Check returns an error if the gradients of states do not fit. It makes room for those of the
// initial state.
func (x *RecurrentSegment) Check(g *attention.Grads) error {
	if g.DInit != nil {
		StateGradOf(g.DInit).Resize(x.Shape)
	}
	if g.DFinal == nil {
		return nil
	}
	return StateGradOf(g.DFinal).Check(x.Shape, func(i int) int { return (x.OpenBefore(i) + x.Sequences[i/x.Group].M) % x.Shape.Chunk })
}

// Forward computes key head kh of a sequence, as task u.
func (x *RecurrentSegment) Forward(u *headtask.Task, q *SequenceTask, kh int) {
	i := q.Index*x.Group + kh
	s := x.stream(u, i)
	s.Forward(u.M, x.Final != nil)
	if x.Final != nil {
		x.Final.Heads[i].CopyFrom(s)
	}
}

// Backward computes the gradients of key head kh of a sequence, as task u.
func (x *RecurrentSegment) Backward(u *headtask.Task, q *SequenceTask, kh int, g *attention.Grads) {
	i := q.Index*x.Group + kh
	var ends headtask.SegmentGrads
	if x.Init != nil {
		ends.Before = x.Init.Heads[i]
	}
	if g.DInit != nil {
		ends.First = &StateGradOf(g.DInit).Heads[i]
	}
	if g.DFinal != nil {
		after := StateGradOf(g.DFinal)
		ends.After, ends.Total = &after.Heads[i], after.Total
	}
	x.stream(u, i).Backward(ends)
}

// ageAfter returns the sum of dG over what comes after the call, for key head i.
func ageAfter(g *attention.Grads, i int) float64 {
	if g.DFinal == nil {
		return 0
	}
	return StateGradOf(g.DFinal).Heads[i].Age
}

// CheckAge returns an error if the gradient of log_g is wanted but does not have the shape of
// log_g, or the call has no decay.
func CheckAge(g *attention.Grads, c *attention.Call) error {
	switch {
	case g.DLogG.D == 0:
		return nil
	case !c.HasDecay():
		return fmt.Errorf("d_log_g: the call has no log_g")
	}
	return attention.CheckShape("d_log_g", &g.DLogG, c.K.B, c.K.H, c.K.N, 1)
}
