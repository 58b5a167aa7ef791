package attention

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
)

// The moments of a stream are relative to the last token before the open chunk.

// age counts keys j0 ≤ j < j1 of the unit into the open chunk.
func (s *stream[T]) age(j0, j1 int) {
	if s.ages == nil {
		return
	}
	for j := j0; j < j1; j++ {
		s.ages.add(s.u.rate(j), s.u.exists(j))
	}
}

// left returns the decay factor of the whole open chunk.
func (s *stream[T]) left() T {
	if s.ages == nil {
		return 1
	}
	return T(math.Exp(s.ages.between(-1, s.ages.tokens()-1)))
}

// place returns where in the open chunk a query stands that sees its keys up to
// i: -1 if it has none.
func (s *stream[T]) place(i int) int { return min(i, s.n-1) }

// eps is the unit's, for a query that sees keys of the open chunk up to i.
func (s *stream[T]) eps(i int) T {
	if s.ages == nil {
		return T(s.u.spec.Eps)
	}
	return s.u.eps(s.ages.waits(s.place(i)))
}

// agedKeys returns the values of the open chunk, and ones, as they are at its
// end.
func (s *stream[T]) agedKeys() (v []T, ldv int, w []T) {
	if s.ages == nil {
		return s.v, s.ldv, s.x
	}
	w = arena.Take[T](s.u.ar, s.n)
	for j := range w {
		w[j] = T(s.ages.between(j, s.n-1))
	}
	s.u.t.Exp(w, w, 0)
	return s.scaleRows(s.v, s.ldv, w), s.past.Stride, w
}

// scaleRows returns rows of the moments' stride, each of those ldr apart times its
// factor.
func (s *stream[T]) scaleRows(rows []T, ldr int, factors []T) []T {
	ld := s.past.Stride
	y := arena.Take[T](s.u.ar, len(factors)*ld)
	s.u.t.ScaleRows(y, ld, rows, ldr, ld, factors)
	return y
}

// since returns the decay factors [n] of the moments before the open chunk for n
// queries. The first query sees keys of the open chunk up to diag.
func (s *stream[T]) since(n, diag int) []T {
	f := arena.Take[T](s.u.ar, n)
	for r := range f {
		f[r] = T(math.Exp(s.ages.between(-1, s.place(diag+r))))
	}
	return f
}

// agedQueries returns rows y and numbers w of n queries as the moments before
// the open chunk see them.
func (s *stream[T]) agedQueries(y, w []T, n, diag int) (ya, wa []T) {
	if s.ages == nil {
		return y, w
	}
	f := s.since(n, diag)
	wa = arena.Take[T](s.u.ar, n)
	s.u.t.Mul(wa, w, f)
	return s.scaleRows(y, s.past.Stride, f), wa
}

// startAges has the stream count ages from now on.
func (s *stream[T]) startAges() {
	if s.ages == nil {
		s.ages = lateAges(s.c, s.exist[:s.n])
	}
}

// recede goes back to before key j0 of the unit.
func (s *stream[T]) recede(j0 int) {
	if s.ages == nil {
		return
	}
	u, j := s.u, j0
	for j > 0 && !u.exists(j-1) {
		j--
	}
	if s.ages.owes = 0; j == 0 {
		s.ages.owes = s.owed
	}
	for ; j < j0; j++ {
		s.ages.owes = max(s.ages.owes+u.rate(j), slowest)
	}
}

// agedValues returns the gradients of the values of the open chunk, and of the ones
// under them. dv and ones are the gradients of agedKeys's results with factors w.
func (s *stream[T]) agedValues(dv, ones, w []T) (values, keys []T) {
	s.u.t.Mul(ones, ones, w)
	return s.scaleRows(dv, s.past.Stride, w), ones
}

// fadeRows multiplies numerators and denominators that n queries have from the
// moments.
func (s *stream[T]) fadeRows(o, den []T, n, diag int) {
	mark := s.u.ar.Mark()
	for r, f := range s.since(n, diag) {
		row := o[r*s.past.Stride:][:s.past.Stride]
		s.u.t.Scale(row, f, row)
		den[r] *= f
	}
	s.u.ar.Reset(mark)
}

// follow sets the ages to the ages of next, whose tokens follow the stream. It decays
// the moments of the stream by the decay of next.
func (s *stream[T]) follow(next *stream[T]) {
	if s.ages == nil && next.ages == nil {
		return
	}
	before, after := s.ages, next.ages.clone(next.c)
	if before == nil {
		before = lateAges(s.c, nil)
	}
	if after == nil {
		after = lateAges(next.c, next.exist[:next.n])
	}
	if next.first == unseen {
		after.owes += before.owes
		after.gone = before.gone
		if n := after.tokens(); n > 0 {
			after.owed[n-1] = after.owes
		}
	} else {
		s.past.Fade(s.u.t, T(math.Exp(before.owes+after.gone)))
		after.gone += before.gone + before.owes
	}
	s.ages = after
}
