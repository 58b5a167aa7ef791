package attention

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// stream is the linear form of one key head. Keys arrive in order and fill an
// open chunk, which queries meet pair by pair; a closed chunk has moved into
// the moments, which queries meet through their features.
type stream[T tensor.Float] struct {
	u    *unit[T]
	m    *features.Monomials[T]
	past features.Moments[T]
	c    int // tokens of a chunk
	ld   int // stride of rows that run over a chunk's tokens
	lda  int // stride of prepared rows
	// Prepared rows of mean 0 are reflected onto their last axis, where they are
	// 0, and have the features of a channel less.
	flat bool

	// The open chunk.
	n     int // tokens in it
	x     []T // [da+1, ld] components of the prepared keys, under their ones
	v     []T // [c, ldv] values: room, or where the call has them
	ldv   int
	room  []T    // [c, past.ld]
	lent  bool   // the values of a chunk may stay in the call's memory
	exist []bool // [c] keys that exist
	holes bool   // some do not
	first int    // the first key that exists: -1 before this chunk, unseen nowhere
	ages  *ages  // of its keys; nil: no decay

	owed float64 // what waits before the unit's first key

	lead int // of a member of a team: the first of the unit's keys that exists, -1 if none does
}

// unseen is the place of a key that has not come yet.
const unseen = math.MaxInt

// newStream returns an empty stream for chunks of c tokens, in memory from take.
func newStream[T tensor.Float](u *unit[T], m *features.Monomials[T], c int, take func(n int) []T) *stream[T] {
	return new(stream[T]).start(u, m, c, take)
}

// start makes s what newStream returns.
func (s *stream[T]) start(u *unit[T], m *features.Monomials[T], c int, take func(n int) []T) *stream[T] {
	*s = stream[T]{u: u, m: m, c: c, ld: scratch.Stride[T](c), lda: kernel.Pad(u.da), flat: m.Width < u.da, exist: slices.Grow(s.exist[:0], c)[:c], first: unseen}
	s.past = u.moments(m, take)
	s.x = take((u.da + 1) * s.ld)
	s.room = take(c * s.past.Stride)
	s.v, s.ldv = s.room, s.past.Stride
	return s
}

// scratchStream is a stream in the unit's own scratch memory.
func (u *unit[T]) scratchStream(m *features.Monomials[T]) *stream[T] {
	s := u.stream.start(u, m, min(u.chunk, max(u.n, u.m, 1)), u.take)
	s.lent = true
	if len(u.logG.Data) > 0 {
		s.ages = u.takeAges(s.c)
	}
	return s
}

// take returns n elements of the unit's scratch memory.
func (u *unit[T]) take(n int) []T { return arena.Take[T](u.ar, n) }

// moments returns empty moments for the unit's values.
func (u *unit[T]) moments(m *features.Monomials[T], take func(n int) []T) features.Moments[T] {
	ld := kernel.Pad(u.dv)
	n := m.Count * ld
	all := take(n + m.Count + kernel.Lanes - 1)
	return features.Moments[T]{S: all[:n:n], Z: all[n:], Stride: ld}
}

// take puts keys j0 ≤ j < j1 into the open chunk.
func (s *stream[T]) take(j0, j1 int) {
	u, n := s.u, j1-j0
	if n <= 0 {
		return
	}
	s.age(j0, j1)
	keys := u.keySide()
	s.prepare(s.x[s.n:], &keys, j0, j1)
	s.takeValues(j0, j1)
	if u.mask != nil {
		for j := j0; j < j1; j++ {
			s.mark(u.mask[j])
		}
		return
	}
	for i := range n {
		s.x[s.n+i] = 1
		s.exist[s.n+i] = true
	}
	s.first = min(s.first, s.n)
	s.n += n
}

// takeValues puts the values of keys j0 ≤ j < j1 into the open chunk. They are
// read where they lie if they are all of it, and whole vectors.
func (s *stream[T]) takeValues(j0, j1 int) {
	u := s.u
	if s.n == 0 {
		if s.lent && u.mask == nil && u.dv == s.past.Stride {
			s.v, s.ldv = u.v.Data[j0*u.v.Stride:], u.v.Stride
			return
		}
		s.v, s.ldv = s.room, s.past.Stride
	}
	u.copyV(s.v[s.n*s.ldv:], s.ldv, j0, j1)
}

// prepare sets columns of x, under a row for the caller to set, to tokens
// i0 ≤ i < i1.
func (s *stream[T]) prepare(x []T, from *side[T], i0, i1 int) {
	s.u.prepare(x[s.ld:], s.ld, from, i0, i1)
	if s.flat {
		s.u.t.Reflect(x[s.ld:], s.ld, s.u.da, i1-i0)
	}
}

// prepareGrad is the unit's, for columns under a row to ignore.
func (s *stream[T]) prepareGrad(to tensor.Mat[T], dx []T, from *side[T], i0, i1 int) (dscale float64) {
	if s.flat {
		s.u.t.ReflectGrad(dx[s.ld:], s.ld, s.u.da, i1-i0)
	}
	return s.u.prepareGrad(to, dx[s.ld:], s.ld, from, i0, i1)
}

// mark counts the next token of the open chunk as one whose key exists or not.
func (s *stream[T]) mark(exists bool) {
	s.exist[s.n] = exists
	s.x[s.n] = 0
	if exists {
		s.x[s.n] = 1
		s.first = min(s.first, s.n)
	} else {
		s.holes = true
	}
	s.n++
}

// close moves the open chunk into the moments.
func (s *stream[T]) close() {
	if s.n == 0 {
		return
	}
	s.settle()
	s.drop()
	if s.first != unseen {
		s.first = -1
	}
}

// settle adds the open chunk to the moments, which decay by it.
func (s *stream[T]) settle() {
	mark := s.u.ar.Mark()
	if s.ages != nil {
		s.past.Fade(s.u.t, s.left())
	}
	v, ldv, w := s.agedKeys()
	s.past.AddTokens(s.u.ar, s.m, s.x, s.ld, s.n, v, ldv, w)
	s.u.ar.Reset(mark)
}

// drop empties the open chunk.
func (s *stream[T]) drop() {
	s.n, s.holes = 0, false
	if s.ages != nil {
		s.ages.clear()
	}
}

// pairs describes the weights of n queries, the rows of a, with the open
// chunk: query r sees its keys up to diag+r.
func (s *stream[T]) pairs(a []T, n, diag int) block[T] {
	b := block[T]{a: a, lda: s.lda, bt: s.x[s.ld:], panel: s.c, ldb: s.ld, nq: n, nk: s.n, diag: min(diag, s.n), ages: s.ages, at: diag}
	if s.holes {
		b.mask = s.exist[:s.n]
	}
	return b
}

// columns returns n columns of components under a row of ones; the rest is for
// the caller to set.
func (s *stream[T]) columns(n int) []T {
	x := arena.Take[T](s.u.ar, (s.u.da+1)*s.ld)
	for i := range n {
		x[i] = 1
	}
	return x
}

// queries returns the prepared queries i0 ≤ i < i1 of head g as columns.
func (s *stream[T]) queries(g, i0, i1 int) []T {
	x, q := s.columns(i1-i0), s.u.querySide(g)
	s.prepare(x, &q, i0, i1)
	return x
}

// rows returns n columns of components as rows.
func (s *stream[T]) rows(x []T, n int) []T {
	a := arena.TakeZeros[T](s.u.ar, n*s.lda)
	s.u.t.Transpose(a, s.lda, x[s.ld:], s.ld, s.u.da, n)
	return a
}

// attend returns numerators o [n, s.past.ld] and denominators den [n] of n queries, the
// columns of x. Query r sees keys up to diag+r of the open chunk.
func (s *stream[T]) attend(x []T, n, diag int) (o, den []T) {
	u := s.u
	den = arena.TakeZeros[T](u.ar, kernel.Pad(n))
	if s.n == 0 && s.ages == nil && s.past.NonEmpty && n > kernel.Lanes {
		o = arena.Take[T](u.ar, n*s.past.Stride)
		s.past.ReadTokens(u.ar, s.m, x, s.ld, n, false, o, s.past.Stride, den)
		return o, den
	}
	o = arena.TakeZeros[T](u.ar, n*s.past.Stride)
	if s.ages != nil {
		s.recall(x, n, o, den)
		s.fadeRows(o, den, n, diag)
	}
	if s.n > 0 {
		b := s.pairs(x[s.ld:], n, diag)
		b.lda, b.across = s.ld, true
		u.polyBlock(&b, s.v, s.ldv, o, s.past.Stride, den)
	}
	if s.ages == nil {
		s.recall(x, n, o, den)
	}
	return o, den
}

// recall adds what the moments hold for n queries, the columns of x.
func (s *stream[T]) recall(x []T, n int, o, den []T) {
	switch {
	case !s.past.NonEmpty:
	case n <= kernel.Lanes:
		s.past.ReadFewTokens(s.u.ar, s.m, s.rows(x, n), s.lda, n, o, den)
	default:
		s.past.ReadTokens(s.u.ar, s.m, x, s.ld, n, true, o, s.past.Stride, den)
	}
}

// read sets the outputs and denominators of queries i0 ≤ i < i1 of every head;
// query i0+r sees keys up to diag+r of the open chunk.
func (s *stream[T]) read(i0, i1, diag int) {
	if i0 >= i1 {
		return
	}
	u := s.u
	mark := u.ar.Mark()
	for g := range u.q {
		o, den := s.attend(s.queries(g, i0, i1), i1-i0, diag)
		s.finish(g, i0, i1, diag, o, den)
		u.ar.Reset(mark)
	}
}

// finish divides the numerators o of queries i0 ≤ i < i1 of head g by their
// denominators den. Query i0+r sees keys up to diag+r of the open chunk.
func (s *stream[T]) finish(g, i0, i1, diag int, o, den []T) {
	u := s.u
	mark := u.ar.Mark()
	over := arena.Take[T](u.ar, i1-i0)
	for r := range over {
		den[r] = u.spec.total(den[r], s.eps(diag+r))
		over[r] = u.over(den[r])
	}
	if u.spec.OutputNorm {
		s.normaliseOver(over, diag)
	}
	copy(u.den[g][i0:i1], den)
	out := &u.o[g]
	u.t.ScaleRows(out.Data[i0*out.Stride:], out.Stride, o, s.past.Stride, u.dv, over)
	u.ar.Reset(mark)
	u.unseen(g, i0, i0+min(s.first, diag+i1-i0)-diag)
	u.inspect(g, i0, i1)
}

// ones returns n times 1.
func ones[T tensor.Float](ar *arena.Arena, n int) []T {
	x := arena.Take[T](ar, n)
	for i := range x {
		x[i] = 1
	}
	return x
}

// unseen sets outputs and denominators of queries i0 ≤ i < i1 of head g to 0. These
// queries see no key.
func (u *unit[T]) unseen(g, i0, i1 int) {
	for i := i0; i < i1; i++ {
		clear(u.o[g].Row(i))
		u.den[g][i] = 0
	}
}

// span returns the keys and queries of a causal sequence whose positions are
// pos ≤ p < pos+c.
func (u *unit[T]) span(pos, c int) (j0, j1, i0, i1 int) {
	within := func(i, n int) int { return min(max(i, 0), n) }
	return min(pos, u.m), min(pos+c, u.m), within(pos-u.off, u.n), within(pos+c-u.off, u.n)
}

// end is the number of positions of a causal sequence.
func (u *unit[T]) end() int { return max(u.m, u.n+u.off) }

// takeAll brings all keys into the moments.
func (s *stream[T]) takeAll() {
	for j := 0; j < s.u.m; j += s.c {
		s.take(j, min(j+s.c, s.u.m))
		s.close()
	}
}

func (u *unit[T]) linearForward(m *features.Monomials[T]) {
	if u.workers > 1 {
		u.linearForwardTogether()
		return
	}
	s := u.scratchStream(m)
	if !u.causal {
		s.takeAll()
		if u.past != nil {
			*u.past = append(append((*u.past)[:0], s.past.S...), s.past.Z[:m.Count]...)
		}
		for i := 0; i < u.n; i += s.c {
			s.read(i, min(i+s.c, u.n), 0)
		}
		return
	}
	for g := range u.q {
		u.unseen(g, 0, min(-u.off, u.n))
	}
	for pos := 0; pos < u.n+u.off; pos += s.c {
		j0, j1, i0, i1 := u.span(pos, s.c)
		s.take(j0, j1)
		s.read(i0, i1, i0+u.off-pos)
		if pos+s.c < u.n+u.off {
			s.close()
		}
	}
}
