package headtask

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
)

// The moments of a scan are relative to the last token before the open chunk.

// age counts keys j0 ≤ j < j1 of the task into the open chunk.
func (s scanDecay[T]) age(j0, j1 int) {
	if s.Decays == nil {
		return
	}
	for j := j0; j < j1; j++ {
		s.Decays.Add(s.Task.Decay().LogDecay(j), s.Task.HasKey(j))
	}
}

// ChunkDecay returns the decay factor of the whole open chunk.
func (s scanDecay[T]) ChunkDecay() T {
	if s.Decays == nil {
		return 1
	}
	return T(math.Exp(s.Decays.SumBetween(-1, s.Decays.tokens()-1)))
}

// place returns where in the open chunk a query stands that sees its keys up to
// i: -1 if it has none.
func (s scanDecay[T]) place(i int) int { return min(i, s.Count-1) }

// eps is the task's, for a query that sees keys of the open chunk up to i.
func (s scanDecay[T]) eps(i int) T {
	if s.Decays == nil {
		return T(s.Task.Spec.Eps)
	}
	return s.Task.Decay().RelativeEps(s.Decays.pendingAfter(s.place(i)))
}

// agedKeys returns the values of the open chunk, and ones, as they are at its
// end.
func (s scanDecay[T]) agedKeys() (v []T, ldv int, w []T) {
	if s.Decays == nil {
		return s.V, s.ldv, s.X
	}
	w = arena.Take[T](s.Task.Arena, s.Count)
	for j := range w {
		w[j] = T(s.Decays.SumBetween(j, s.Count-1))
	}
	s.Task.Table.Exp(w, w, 0)
	return s.scaleRows(s.V, s.ldv, w), s.Moments.Stride, w
}

// scaleRows returns rows of the moments' stride, each of those ldr apart times its
// factor.
func (s scanDecay[T]) scaleRows(rows []T, ldr int, factors []T) []T {
	ld := s.Moments.Stride
	y := arena.Take[T](s.Task.Arena, len(factors)*ld)
	s.Task.Table.ScaleRows(y, ld, rows, ldr, ld, factors)
	return y
}

// decaySince returns the decay factors [n] of the moments before the open chunk for n
// queries. The first query sees keys of the open chunk up to diag.
func (s scanDecay[T]) decaySince(n, diag int) []T {
	f := arena.Take[T](s.Task.Arena, n)
	for r := range f {
		f[r] = T(math.Exp(s.Decays.SumBetween(-1, s.place(diag+r))))
	}
	return f
}

// agedQueries returns rows y and numbers w of n queries as the moments before
// the open chunk see them.
func (s scanDecay[T]) agedQueries(y, w []T, n, diag int) (ya, wa []T) {
	if s.Decays == nil {
		return y, w
	}
	f := s.decaySince(n, diag)
	wa = arena.Take[T](s.Task.Arena, n)
	s.Task.Table.Mul(wa, w, f)
	return s.scaleRows(y, s.Moments.Stride, f), wa
}

// StartAges has the scan count ages from now on.
func (s scanDecay[T]) StartAges() {
	if s.Decays == nil {
		s.Decays = UndecayedAges(s.ChunkSize, s.Valid[:s.Count])
	}
}

// Recede goes back to before key j0 of the task.
func (s scanDecay[T]) Recede(j0 int) {
	if s.Decays == nil {
		return
	}
	u, j := s.Task, j0
	for j > 0 && !u.HasKey(j-1) {
		j--
	}
	if s.Decays.Pending = 0; j == 0 {
		s.Decays.Pending = s.PendingLogDecay
	}
	for ; j < j0; j++ {
		s.Decays.Pending = max(s.Decays.Pending+u.Decay().LogDecay(j), Slowest)
	}
}

// agedValues returns the gradients of the values of the open chunk, and of the ones
// under them. dv and ones are the gradients of agedKeys's results with factors w.
func (s scanDecay[T]) agedValues(dv, ones, w []T) (values, keys []T) {
	s.Task.Table.Mul(ones, ones, w)
	return s.scaleRows(dv, s.Moments.Stride, w), ones
}

// fadeRows multiplies numerators and denominators that n queries have from the
// moments.
func (s scanDecay[T]) fadeRows(o, den []T, n, diag int) {
	mark := s.Task.Arena.Mark()
	for r, f := range s.decaySince(n, diag) {
		row := o[r*s.Moments.Stride:][:s.Moments.Stride]
		s.Task.Table.Scale(row, f, row)
		den[r] *= f
	}
	s.Task.Arena.Reset(mark)
}

// appendAges sets the ages to the ages of next, whose tokens follow the scan. It decays
// the moments of the scan by the decay of next.
func (s scanDecay[T]) appendAges(next *Scan[T]) {
	if s.Decays == nil && next.Decays == nil {
		return
	}
	before, after := s.Decays, next.Decays.CloneFor(next.ChunkSize)
	if before == nil {
		before = UndecayedAges(s.ChunkSize, nil)
	}
	if after == nil {
		after = UndecayedAges(next.ChunkSize, next.Valid[:next.Count])
	}
	if next.First == Unseen {
		after.Pending += before.Pending
		after.Forgotten = before.Forgotten
		if n := after.tokens(); n > 0 {
			after.pendings[n-1] = after.Pending
		}
	} else {
		s.Moments.Fade(s.Task.Table, T(math.Exp(before.Pending+after.Forgotten)))
		after.Forgotten += before.Forgotten + before.Pending
	}
	s.Decays = after
}
