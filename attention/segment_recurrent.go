package attention

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/tensor"
)

// segment is a call whose sequences begin after a state, end in one, or both.
type segment[T tensor.Float] interface {
	// countPriorKeys returns the number of keys of sequence i in the initial state, 0 if all of
	// them are masked.
	countPriorKeys(i int) int64
	// earlier tells of the keys of head i of the state before.
	earlier(i int) priorKeys
	// forward runs key head kh of a sequence, as task u.
	forward(u *headTask[T], s *Sequence, kh int)
	// backward is forward for the gradients g.
	backward(u *headTask[T], s *Sequence, kh int, g *Grads[T])
	// check reports gradients of states that do not fit.
	check(g *Grads[T]) error
	// end counts the tokens of the state after the call.
	end()
}

// segment returns c as a segment, whose sequences are seqs; nil if it is none.
// Keep says that Backward will be asked.
func (e *engine[T]) segment(c *Call[T], seqs []Sequence, keep bool) (segment[T], error) {
	if !c.HasState() {
		return nil, nil
	}
	keys, err := e.checks().checkSegment(c, seqs, keep)
	if err != nil {
		return nil, err
	}
	start := newSumsSegment[T]
	if e.spec.isPairwise() {
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
func (e callCheck[T]) checkSegment(c *Call[T], seqs []Sequence, keep bool) (keys int, err error) {
	if err := e.refuseFuture("init"); err != nil {
		return 0, err
	}
	switch {
	case c.AttnKeep != nil:
		return 0, fmt.Errorf("attn_keep: not defined with a state before or after the call")
	case c.Form == Direct && !e.spec.isPairwise():
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
}, T tensor.Float](e *engine[T], c *Call[T], seqs []Sequence, parts func(S) (*engine[T], *Shape)) (init, final S, err error) {
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
			if c.Chunk > 0 && !e.spec.isPairwise() {
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

// check reports gradients of states that c does not have, or that do not fit.
func (g *Grads[T]) check(c *Call[T], seg segment[T]) error {
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
	seqs        []Sequence
	group       int // key heads of a sequence
	fades       bool
}

func newSumsSegment[T tensor.Float](e *engine[T], c *Call[T], seqs []Sequence, keys int) (segment[T], error) {
	init, final, err := ends(e, c, seqs, func(s *recurrentState[T]) (*engine[T], *Shape) { return s.e, &s.shape })
	if err != nil {
		return nil, err
	}
	x := &recurrentSegment[T]{e: e, init: init, final: final, keys: keys, seqs: seqs, group: c.K.H, fades: c.hasFadingKeys()}
	if x.shape = new(Shape); init != nil {
		*x.shape = init.shape
	} else {
		*x.shape = final.shape
	}
	return x, nil
}

func (x *recurrentSegment[T]) countPriorKeys(i int) int64 {
	if x.init == nil || x.init.heads[i*x.group].first == unseen {
		return 0
	}
	return x.init.tokens
}

// earlier counts the keys of closed chunks by the sum of the constant, which
// single powers do not have, and knows no lengths of theirs.
func (x *recurrentSegment[T]) earlier(i int) (e priorKeys) {
	if x.init == nil {
		return e
	}
	s := x.init.heads[i]
	if !x.e.spec.isSinglePower() {
		e.count = s.countClosedKeys()
	}
	for j, exists := range s.valid[:s.n] {
		if !exists {
			continue
		}
		var gone, square float64
		if s.ages != nil {
			gone = s.ages.sumBetween(j-1, j)
		}
		for c := 1; c <= s.u.da; c++ {
			y := float64(s.x[c*s.ld+j])
			square += y * y
		}
		e.add(gone, x.e.factor(math.Sqrt(square)))
		e.longest = max(e.longest, math.Sqrt(square))
	}
	if s.ages != nil {
		e.pendingLogDecay = s.ages.pending
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
func (x *recurrentSegment[T]) stream(u *headTask[T], i int) *chunkScan[T] {
	s := u.stream.start(u, x.e.newMonomials(u.da), x.shape.Chunk, u.linear().takeScratch)
	if x.shape.Carry == Compensated {
		s.moments.Compensate(u.linear().takeScratch)
	}
	if x.init != nil {
		s.copyFrom(x.init.heads[i])
	}
	if x.fades {
		s.decay().startAges()
		s.pendingLogDecay = s.ages.pending
	}
	return s
}

// reopen sets the open chunk of s to the open chunk of head i in the initial state.
func (x *recurrentSegment[T]) reopen(s *chunkScan[T], i int) {
	s.copyOpenChunk(x.init.heads[i])
	if x.fades {
		s.ages = x.init.heads[i].ages.cloneFor(s.c)
		s.decay().startAges()
	}
}

// openBefore is the number of tokens in the open chunk of head i of the state
// before.
func (x *recurrentSegment[T]) openBefore(i int) int {
	if x.init == nil {
		return 0
	}
	return x.init.heads[i].n
}

func (x *recurrentSegment[T]) check(g *Grads[T]) error {
	if g.DInit != nil {
		g.DInit.resize(x.shape)
	}
	if g.DFinal == nil {
		return nil
	}
	return g.DFinal.check(x.shape, func(i int) int { return (x.openBefore(i) + x.seqs[i/x.group].M) % x.shape.Chunk })
}

func (x *recurrentSegment[T]) forward(u *headTask[T], q *Sequence, kh int) {
	i := q.Index*x.group + kh
	s := x.stream(u, i)
	for start := -s.n; ; start += s.c {
		j0, j1, i0, i1, diag := s.stretchOf(start)
		s.absorbKeys(j0, j1)
		s.answerQueries(i0, i1, diag)
		if s.n < s.c {
			break
		}
		s.closeChunk()
	}
	for i := u.firstTrailingQuery(); i < u.n; i += s.c {
		s.answerQueries(i, min(i+s.c, u.n), s.n)
	}
	if x.final != nil {
		x.final.heads[i].copyFrom(s)
	}
}

// backward goes through the chunks twice, as linearBackward does. The last chunk stays
// open, unless the final gradient is of a total: later queries reach its keys one by
// one, and the keys of closed chunks through the gradient of the moments.
func (x *recurrentSegment[T]) backward(u *headTask[T], q *Sequence, kh int, g *Grads[T]) {
	i := q.Index*x.group + kh
	s := x.stream(u, i)
	before, ld := s.n, s.moments.Stride
	last := (before+u.m)/s.c*s.c - before // where the last chunk begins
	// Gradients of prepared keys and of values from the queries of their own
	// chunks, the keys before the call first.
	db := tensor.Mat[T]{Data: u.linear().takeScratch((before + u.m) * u.da), Rows: before + u.m, Cols: u.da, Stride: u.da}
	dv := u.linear().takeScratch((before + u.m) * ld)
	var ones []T // likewise of the ones under the values; nil: not wanted
	if u.dage != nil {
		ones = u.linear().takeScratch(before + u.m)
	}
	late := func(f func(i0, i1 int)) {
		for i := u.firstTrailingQuery(); i < u.n; i += s.c {
			f(i, min(i+s.c, u.n))
		}
	}
	for start := -before; start <= last; start += s.c {
		j0, j1, i0, i1, diag := s.stretchOf(start)
		s.absorbKeys(j0, j1)
		mark := u.ar.Mark()
		open := s.grad().openGradient()
		for g := range u.q {
			s.grad().backQueries(g, i0, i1, diag, &open, nil)
			if start == last {
				late(func(i0, i1 int) { s.grad().backQueries(g, i0, i1, s.n, &open, nil) })
			}
		}
		for j := range s.n {
			copy(db.Row(before+start+j), open.db[j*s.lda:])
		}
		copy(dv[(before+start)*ld:][:s.n*ld], open.dv)
		if ones != nil {
			copy(ones[before+start:][:s.n], open.age)
		}
		u.ar.Reset(mark)
		switch {
		case start == last:
		case u.n == 0:
			s.clearChunk() // no query reads the moments
		default:
			s.closeChunk()
		}
	}

	back := u.linear().moments(s.m, u.linear().takeScratch)
	var first *headGrad[T]
	if g.DInit != nil {
		first = &g.DInit.heads[i]
		first.moments.ShapeAs(&back)
	}
	ended := false // the last chunk too is in the moments
	if g.DFinal != nil {
		after := &g.DFinal.heads[i]
		ended = g.DFinal.total
		back.CopyFrom(&after.moments)
		for j := range after.n {
			row := db.Row(before + last + j)
			u.t.Add(row, row, after.x[j*u.da:])
			row = dv[(before+last+j)*ld:][:u.dv]
			u.t.Add(row, row, after.v[j*u.dv:])
		}
		if ones != nil {
			row := ones[before+last:][:after.n]
			u.t.Add(row, row, after.w)
		}
	}
	var firstKeys, firstValues []T
	if first != nil {
		first.open(before, u.da, u.dv)
		firstKeys, firstValues = first.x, first.v
	}
	for start := last; start >= -before; start -= s.c {
		j0, j1, i0, i1, diag := s.stretchOf(start)
		s.clearChunk()
		if start < 0 {
			x.reopen(s, i)
		} else {
			s.decay().recede(j0)
		}
		s.absorbKeys(j0, j1)
		past := &back
		if start == last && !ended {
			past = &features.Moments[T]{Stride: ld}
		}
		var own []T
		if ones != nil {
			own = ones[before+start:][:s.n]
		}
		s.giveBack(past, j0, j1, db.Slice(before+start, before+start+s.n), dv[(before+start)*ld:], own, firstKeys, firstValues)
		if start == -before && first == nil {
			continue // no sums before it want their queries
		}
		if s.ages != nil && (start < last || ended) {
			back.Fade(u.t, s.decay().chunkDecay())
		}
		for g := range u.q {
			s.grad().sumQueries(&back, g, i0, i1, diag)
			if start == last {
				late(func(i0, i1 int) { s.grad().sumQueries(&back, g, i0, i1, s.n) })
			}
		}
	}
	if first != nil {
		first.moments.CopyFrom(&back)
		copy(first.w, ones)
	}
	if ones != nil {
		u.decay().ageKeys(0, ones[before:])
	}
}
