package attention

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
)

// The moments of a scan are relative to the last token before the open chunk.

// age counts keys j0 ≤ j < j1 of the task into the open chunk.
func (s scanDecay[T]) age(j0, j1 int) {
	if s.ages == nil {
		return
	}
	for j := j0; j < j1; j++ {
		s.ages.add(s.u.decay().logDecay(j), s.u.hasKey(j))
	}
}

// chunkDecay returns the decay factor of the whole open chunk.
func (s scanDecay[T]) chunkDecay() T {
	if s.ages == nil {
		return 1
	}
	return T(math.Exp(s.ages.sumBetween(-1, s.ages.tokens()-1)))
}

// place returns where in the open chunk a query stands that sees its keys up to
// i: -1 if it has none.
func (s scanDecay[T]) place(i int) int { return min(i, s.n-1) }

// eps is the task's, for a query that sees keys of the open chunk up to i.
func (s scanDecay[T]) eps(i int) T {
	if s.ages == nil {
		return T(s.u.spec.Eps)
	}
	return s.u.decay().eps(s.ages.pendingAfter(s.place(i)))
}

// agedKeys returns the values of the open chunk, and ones, as they are at its
// end.
func (s scanDecay[T]) agedKeys() (v []T, ldv int, w []T) {
	if s.ages == nil {
		return s.v, s.ldv, s.x
	}
	w = arena.Take[T](s.u.ar, s.n)
	for j := range w {
		w[j] = T(s.ages.sumBetween(j, s.n-1))
	}
	s.u.t.Exp(w, w, 0)
	return s.scaleRows(s.v, s.ldv, w), s.moments.Stride, w
}

// scaleRows returns rows of the moments' stride, each of those ldr apart times its
// factor.
func (s scanDecay[T]) scaleRows(rows []T, ldr int, factors []T) []T {
	ld := s.moments.Stride
	y := arena.Take[T](s.u.ar, len(factors)*ld)
	s.u.t.ScaleRows(y, ld, rows, ldr, ld, factors)
	return y
}

// decaySince returns the decay factors [n] of the moments before the open chunk for n
// queries. The first query sees keys of the open chunk up to diag.
func (s scanDecay[T]) decaySince(n, diag int) []T {
	f := arena.Take[T](s.u.ar, n)
	for r := range f {
		f[r] = T(math.Exp(s.ages.sumBetween(-1, s.place(diag+r))))
	}
	return f
}

// agedQueries returns rows y and numbers w of n queries as the moments before
// the open chunk see them.
func (s scanDecay[T]) agedQueries(y, w []T, n, diag int) (ya, wa []T) {
	if s.ages == nil {
		return y, w
	}
	f := s.decaySince(n, diag)
	wa = arena.Take[T](s.u.ar, n)
	s.u.t.Mul(wa, w, f)
	return s.scaleRows(y, s.moments.Stride, f), wa
}

// startAges has the scan count ages from now on.
func (s scanDecay[T]) startAges() {
	if s.ages == nil {
		s.ages = undecayedAges(s.c, s.valid[:s.n])
	}
}

// recede goes back to before key j0 of the task.
func (s scanDecay[T]) recede(j0 int) {
	if s.ages == nil {
		return
	}
	u, j := s.u, j0
	for j > 0 && !u.hasKey(j-1) {
		j--
	}
	if s.ages.pending = 0; j == 0 {
		s.ages.pending = s.pendingLogDecay
	}
	for ; j < j0; j++ {
		s.ages.pending = max(s.ages.pending+u.decay().logDecay(j), slowest)
	}
}

// agedValues returns the gradients of the values of the open chunk, and of the ones
// under them. dv and ones are the gradients of agedKeys's results with factors w.
func (s scanDecay[T]) agedValues(dv, ones, w []T) (values, keys []T) {
	s.u.t.Mul(ones, ones, w)
	return s.scaleRows(dv, s.moments.Stride, w), ones
}

// fadeRows multiplies numerators and denominators that n queries have from the
// moments.
func (s scanDecay[T]) fadeRows(o, den []T, n, diag int) {
	mark := s.u.ar.Mark()
	for r, f := range s.decaySince(n, diag) {
		row := o[r*s.moments.Stride:][:s.moments.Stride]
		s.u.t.Scale(row, f, row)
		den[r] *= f
	}
	s.u.ar.Reset(mark)
}

// appendAges sets the ages to the ages of next, whose tokens follow the scan. It decays
// the moments of the scan by the decay of next.
func (s scanDecay[T]) appendAges(next *chunkScan[T]) {
	if s.ages == nil && next.ages == nil {
		return
	}
	before, after := s.ages, next.ages.cloneFor(next.c)
	if before == nil {
		before = undecayedAges(s.c, nil)
	}
	if after == nil {
		after = undecayedAges(next.c, next.valid[:next.n])
	}
	if next.first == unseen {
		after.pending += before.pending
		after.forgotten = before.forgotten
		if n := after.tokens(); n > 0 {
			after.pendings[n-1] = after.pending
		}
	} else {
		s.moments.Fade(s.u.t, T(math.Exp(before.pending+after.forgotten)))
		after.forgotten += before.forgotten + before.pending
	}
	s.ages = after
}
