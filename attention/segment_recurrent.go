package attention

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/tensor"
)

// segment is a call whose sequences begin after a state, end in one, or both.
type segment[T tensor.Float] interface {
	// countPriorKeys returns the number of keys of sequence i in the initial state, 0 if all of
	// them are masked.
	countPriorKeys(i int) int64
	// earlier tells of the keys of head i of the state before.
	earlier(i int) headtask.PriorKeys
	// forward runs key head kh of a sequence, as task u.
	forward(u *headtask.Task[T], s *sequenceTask, kh int)
	// backward is forward for the gradients g.
	backward(u *headtask.Task[T], s *sequenceTask, kh int, g *Grads[T])
	// check reports gradients of states that do not fit.
	check(g *Grads[T]) error
	// end counts the tokens of the state after the call.
	end()
}

// segment returns c as a segment, whose sequences are seqs; nil if it is none.
// Keep says that Backward will be asked.
func (e *engine[T]) segment(c *Call[T], seqs []sequenceTask, keep bool) (segment[T], error) {
	if !c.HasState() {
		return nil, nil
	}
	keys, err := e.checks().checkSegment(c, seqs, keep)
	if err != nil {
		return nil, err
	}
	start := newSumsSegment[T]
	if e.spec.IsPairwise() {
		start = newCacheSegment[T]
	}
	x, err := start(e, c, seqs, keys)
	if err != nil {
		return nil, err
	}
	for i := range seqs {
		seqs[i].priorKeys = x.countPriorKeys(i)
	}
	return x, nil
}

// checkSegment reports what a call with a state before or after it may not have,
// and returns the number of keys of its longest sequence.
func (e callCheck[T]) checkSegment(c *Call[T], seqs []sequenceTask, keep bool) (keys int, err error) {
	if err := e.refuseFuture("init"); err != nil {
		return 0, err
	}
	switch {
	case c.AttnKeep != nil:
		return 0, fmt.Errorf("attn_keep: not defined with a state before or after the call")
	case c.Form == Direct && !e.spec.IsPairwise():
		return 0, fmt.Errorf("form: direct needs every key, a state of %s holds sums", e.spec.Name)
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

// ends returns the states before and after c, which are of type S; parts gives
// what they are made of.
func ends[S interface {
	comparable
	State[T]
}, T tensor.Float](e *engine[T], c *Call[T], seqs []sequenceTask, parts func(S) (*engine[T], *Shape)) (init, final S, err error) {
	var none S
	want := Shape{B: len(seqs), H: c.Q.H, Hkv: c.K.H, D: c.Q.D, Dv: c.V.D}
	set := false
	for _, x := range []struct {
		name string
		st   State[T]
		to   *S
	}{{"init", c.Init, &init}, {"final", c.Final, &final}} {
		if x.st == nil {
			continue
		}
		st, ok := x.st.(S)
		if !ok || st == none {
			return none, none, fmt.Errorf("%s: kind of state is %T, %s has %T", x.name, x.st, e.spec.Name, none)
		}
		from, shape := parts(st)
		if !set {
			set = true
			want.Chunk, want.Carry = shape.Chunk, shape.Carry
			if c.Chunk > 0 && !e.spec.IsPairwise() {
				want.Chunk = c.Chunk
			}
		}
		if err := e.identity().fits(x.name, &want, from.identity(), shape); err != nil {
			return none, none, err
		}
		*x.to = st
	}
	return init, final, nil
}

// checkStateGrads reports gradients of states that c does not have, or that do not fit.
func checkStateGrads[T tensor.Float](g *Grads[T], c *Call[T], seg segment[T]) error {
	switch {
	case g.DInit != nil && c.Init == nil:
		return fmt.Errorf("dinit: the call has no initial state")
	case g.DFinal != nil && c.Final == nil:
		return fmt.Errorf("dfinal: the call has no final state")
	case seg == nil:
		return nil
	}
	return seg.check(g)
}

// recurrentSegment is a segment between states that are sums.
type recurrentSegment[T tensor.Float] struct {
	e           *engine[T]
	init, final *recurrentState[T]
	shape       *Shape // of both
	keys        int    // of the longest sequence
	seqs        []sequenceTask
	group       int // key heads of a sequence
	fades       bool
}

func newSumsSegment[T tensor.Float](e *engine[T], c *Call[T], seqs []sequenceTask, keys int) (segment[T], error) {
	init, final, err := ends(e, c, seqs, func(s *recurrentState[T]) (*engine[T], *Shape) { return s.e, &s.shape })
	if err != nil {
		return nil, err
	}
	x := &recurrentSegment[T]{e: e, init: init, final: final, keys: keys, seqs: seqs, group: c.K.H, fades: hasFadingKeys(c)}
	if x.shape = new(Shape); init != nil {
		*x.shape = init.shape
	} else {
		*x.shape = final.shape
	}
	return x, nil
}

func (x *recurrentSegment[T]) countPriorKeys(i int) int64 {
	if x.init == nil || x.init.heads[i*x.group].First == headtask.Unseen {
		return 0
	}
	return x.init.tokens
}

// earlier counts the keys of closed chunks by the sum of the constant, which
// single powers do not have, and knows no lengths of theirs.
func (x *recurrentSegment[T]) earlier(i int) (e headtask.PriorKeys) {
	if x.init == nil {
		return e
	}
	s := x.init.heads[i]
	if !x.e.spec.IsSinglePower() {
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
		e.Add(gone, x.e.factor(math.Sqrt(square)))
		e.Longest = max(e.Longest, math.Sqrt(square))
	}
	if s.Decays != nil {
		e.PendingLogDecay = s.Decays.Pending
	}
	return e
}

func (x *recurrentSegment[T]) end() {
	if x.final == nil {
		return
	}
	tokens := int64(x.keys)
	if x.init != nil {
		tokens += x.init.tokens
	}
	x.final.tokens, x.final.hasClosedCount = tokens, false
}

// scan returns the scan of a task, with what the state before holds.
func (x *recurrentSegment[T]) stream(u *headtask.Task[T], i int) *headtask.Scan[T] {
	s := u.Scan.Start(u, x.e.newMonomials(u.PreparedWidth), x.shape.Chunk, u.Linear().TakeScratch)
	if x.shape.Carry == Compensated {
		s.Moments.Compensate(u.Linear().TakeScratch)
	}
	if x.init != nil {
		s.CopyFrom(x.init.heads[i])
	}
	if x.fades {
		s.Decay().StartAges()
		s.PendingLogDecay = s.Decays.Pending
	}
	return s
}

// reopen sets the open chunk of s to the open chunk of head i in the initial state.
func (x *recurrentSegment[T]) reopen(s *headtask.Scan[T], i int) {
	s.CopyOpenChunk(x.init.heads[i])
	if x.fades {
		s.Decays = x.init.heads[i].Decays.CloneFor(s.ChunkSize)
		s.Decay().StartAges()
	}
}

// openBefore is the number of tokens in the open chunk of head i of the state
// before.
func (x *recurrentSegment[T]) openBefore(i int) int {
	if x.init == nil {
		return 0
	}
	return x.init.heads[i].Count
}

func (x *recurrentSegment[T]) check(g *Grads[T]) error {
	if g.DInit != nil {
		GradPartsOf(g.DInit).resize(x.shape)
	}
	if g.DFinal == nil {
		return nil
	}
	return GradPartsOf(g.DFinal).check(x.shape, func(i int) int { return (x.openBefore(i) + x.seqs[i/x.group].M) % x.shape.Chunk })
}

func (x *recurrentSegment[T]) forward(u *headtask.Task[T], q *sequenceTask, kh int) {
	i := q.Index*x.group + kh
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
	if x.final != nil {
		x.final.heads[i].CopyFrom(s)
	}
}

// backward goes through the chunks twice, as linearBackward does. The last chunk stays
// open, unless the final gradient is of a total: later queries reach its keys one by
// one, and the keys of closed chunks through the gradient of the moments.
func (x *recurrentSegment[T]) backward(u *headtask.Task[T], q *sequenceTask, kh int, g *Grads[T]) {
	i := q.Index*x.group + kh
	s := x.stream(u, i)
	before, ld := s.Count, s.Moments.Stride
	last := (before+u.M)/s.ChunkSize*s.ChunkSize - before // where the last chunk begins
	// Gradients of prepared keys and of values from the queries of their own
	// chunks, the keys before the call first.
	db := tensor.Mat[T]{Data: u.Linear().TakeScratch((before + u.M) * u.PreparedWidth), Rows: before + u.M, Cols: u.PreparedWidth, Stride: u.PreparedWidth}
	dv := u.Linear().TakeScratch((before + u.M) * ld)
	var ones []T // likewise of the ones under the values; nil: not wanted
	if u.DAge != nil {
		ones = u.Linear().TakeScratch(before + u.M)
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
		open := s.Grad().OpenGradient()
		for g := range u.Q {
			s.Grad().BackQueries(g, i0, i1, diag, &open, nil)
			if start == last {
				late(func(i0, i1 int) { s.Grad().BackQueries(g, i0, i1, s.Count, &open, nil) })
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

	back := u.Linear().Moments(s.Monomials, u.Linear().TakeScratch)
	var first *headGrad[T]
	if g.DInit != nil {
		first = &GradPartsOf(g.DInit).heads[i]
		first.moments.ShapeAs(&back)
	}
	ended := false // the last chunk too is in the moments
	if g.DFinal != nil {
		after := &GradPartsOf(g.DFinal).heads[i]
		ended = GradPartsOf(g.DFinal).total
		back.CopyFrom(&after.moments)
		for j := range after.n {
			row := db.Row(before + last + j)
			u.Table.Add(row, row, after.x[j*u.PreparedWidth:])
			row = dv[(before+last+j)*ld:][:u.Dv]
			u.Table.Add(row, row, after.v[j*u.Dv:])
		}
		if ones != nil {
			row := ones[before+last:][:after.n]
			u.Table.Add(row, row, after.w)
		}
	}
	var firstKeys, firstValues []T
	if first != nil {
		first.open(before, u.PreparedWidth, u.Dv)
		firstKeys, firstValues = first.x, first.v
	}
	for start := last; start >= -before; start -= s.ChunkSize {
		j0, j1, i0, i1, diag := s.StretchOf(start)
		s.ClearChunk()
		if start < 0 {
			x.reopen(s, i)
		} else {
			s.Decay().Recede(j0)
		}
		s.AbsorbKeys(j0, j1)
		past := &back
		if start == last && !ended {
			past = &features.Moments[T]{Stride: ld}
		}
		var own []T
		if ones != nil {
			own = ones[before+start:][:s.Count]
		}
		s.GiveBack(past, j0, j1, db.Slice(before+start, before+start+s.Count), dv[(before+start)*ld:], own, firstKeys, firstValues)
		if start == -before && first == nil {
			continue // no sums before it want their queries
		}
		if s.Decays != nil && (start < last || ended) {
			back.Fade(u.Table, s.Decay().ChunkDecay())
		}
		for g := range u.Q {
			s.Grad().SumQueries(&back, g, i0, i1, diag)
			if start == last {
				late(func(i0, i1 int) { s.Grad().SumQueries(&back, g, i0, i1, s.Count) })
			}
		}
	}
	if first != nil {
		first.moments.CopyFrom(&back)
		copy(first.w, ones)
	}
	if ones != nil {
		u.Decay().AgeKeys(0, ones[before:])
	}
}

// ageAfter returns the sum of dG over what comes after the call, for key head i.
func ageAfter[T tensor.Float](g *Grads[T], i int) float64 {
	if g.DFinal == nil {
		return 0
	}
	return GradPartsOf(g.DFinal).heads[i].age
}

// checkAge reports a gradient of log_g that is not shaped as it is.
func checkAge[T tensor.Float](g *Grads[T], c *Call[T]) error {
	if !c.HasDecay() || g.DLogG.D == 0 {
		return nil
	}
	return CheckShape("d_log_g", &g.DLogG, c.K.B, c.K.H, c.K.N, 1)
}
