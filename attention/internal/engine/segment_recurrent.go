package engine

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/tensor"
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

// scan returns the scan of a task, with what the state before holds.
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

// reopen sets the open chunk of s to the open chunk of head i in the initial state.
func (x *RecurrentSegment) reopen(s *headtask.Scan, i int) {
	s.CopyOpenChunk(x.Init.Heads[i])
	if x.Fades {
		s.Decays = x.Init.Heads[i].Decays.CloneFor(s.ChunkSize)
		s.StartAges()
	}
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
	for start := -s.Count; ; start += s.ChunkSize {
		j0, j1, i0, i1, diag := s.StretchOf(start)
		s.AbsorbKeys(j0, j1)
		s.AnswerQueries(i0, i1, diag)
		if s.Count < s.ChunkSize {
			break
		}
		s.CloseChunk()
	}
	for i := u.FirstTrailingQuery(); i < u.N; i += s.ChunkSize {
		s.AnswerQueries(i, min(i+s.ChunkSize, u.N), s.Count)
	}
	if x.Final != nil {
		x.Final.Heads[i].CopyFrom(s)
	}
}

// Backward goes through the chunks twice, like LinearBackward. The last chunk stays open unless
// the final gradient is of a total, because later queries read the keys of an open chunk one by
// one, and the keys of closed chunks through the moments.
func (x *RecurrentSegment) Backward(u *headtask.Task, q *SequenceTask, kh int, g *attention.Grads) {
	i := q.Index*x.Group + kh
	s := x.stream(u, i)
	before, ld := s.Count, s.Moments.Stride
	last := (before+u.M)/s.ChunkSize*s.ChunkSize - before // where the last chunk begins
	// Gradients of prepared keys and of values from the queries of their own
	// chunks, the keys before the call first.
	db := tensor.Mat{Data: u.TakeScratch((before + u.M) * u.PreparedWidth), Rows: before + u.M, Cols: u.PreparedWidth, Stride: u.PreparedWidth}
	dv := u.TakeScratch((before + u.M) * ld)
	var ones []float // likewise of the ones under the values; nil: not wanted
	if u.DAge != nil {
		ones = u.TakeScratch(before + u.M)
	}
	late := func(f func(i0, i1 int)) {
		for i := u.FirstTrailingQuery(); i < u.N; i += s.ChunkSize {
			f(i, min(i+s.ChunkSize, u.N))
		}
	}
	for start := -before; start <= last; start += s.ChunkSize {
		j0, j1, i0, i1, diag := s.StretchOf(start)
		s.AbsorbKeys(j0, j1)
		mark := u.Arena.Mark()
		open := s.OpenGradient()
		for g := range u.Q {
			s.BackQueries(g, i0, i1, diag, &open, nil)
			if start == last {
				late(func(i0, i1 int) { s.BackQueries(g, i0, i1, s.Count, &open, nil) })
			}
		}
		for j := range s.Count {
			copy(db.Row(before+start+j), open.Db[j*s.RowStride:])
		}
		copy(dv[(before+start)*ld:][:s.Count*ld], open.Dv)
		if ones != nil {
			copy(ones[before+start:][:s.Count], open.Age)
		}
		u.Arena.Reset(mark)
		switch {
		case start == last:
		case u.N == 0:
			s.ClearChunk() // no query reads the moments
		default:
			s.CloseChunk()
		}
	}

	back := u.Moments(s.Monomials, u.TakeScratch)
	var first *HeadGrad
	if g.DInit != nil {
		first = &StateGradOf(g.DInit).Heads[i]
		first.Moments.ShapeAs(&back)
	}
	ended := false // the last chunk too is in the moments
	if g.DFinal != nil {
		after := &StateGradOf(g.DFinal).Heads[i]
		ended = StateGradOf(g.DFinal).Total
		back.CopyFrom(&after.Moments)
		for j := range after.Count {
			row := db.Row(before + last + j)
			u.Table.Add(row, row, after.Keys[j*u.PreparedWidth:])
			row = dv[(before+last+j)*ld:][:u.Dv]
			u.Table.Add(row, row, after.Values[j*u.Dv:])
		}
		if ones != nil {
			row := ones[before+last:][:after.Count]
			u.Table.Add(row, row, after.Ones)
		}
	}
	var firstKeys, firstValues []float
	if first != nil {
		first.Open(before, u.PreparedWidth, u.Dv)
		firstKeys, firstValues = first.Keys, first.Values
	}
	for start := last; start >= -before; start -= s.ChunkSize {
		j0, j1, i0, i1, diag := s.StretchOf(start)
		s.ClearChunk()
		if start < 0 {
			x.reopen(s, i)
		} else {
			s.Recede(j0)
		}
		s.AbsorbKeys(j0, j1)
		past := &back
		if start == last && !ended {
			past = &features.Moments{Stride: ld}
		}
		var own []float
		if ones != nil {
			own = ones[before+start:][:s.Count]
		}
		s.GiveBack(past, j0, j1, db.Slice(before+start, before+start+s.Count), dv[(before+start)*ld:], own, firstKeys, firstValues)
		if start == -before && first == nil {
			continue // no sums before it want their queries
		}
		if s.Decays != nil && (start < last || ended) {
			back.Fade(u.Table, s.ChunkDecay())
		}
		for g := range u.Q {
			s.SumQueries(&back, g, i0, i1, diag)
			if start == last {
				late(func(i0, i1 int) { s.SumQueries(&back, g, i0, i1, s.Count) })
			}
		}
	}
	if first != nil {
		first.Moments.CopyFrom(&back)
		copy(first.Ones, ones)
	}
	if ones != nil {
		u.AgeKeys(0, ones[before:])
	}
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
