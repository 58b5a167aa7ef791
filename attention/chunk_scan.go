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

// chunkScan is the linear form of one key head. Keys arrive in order and fill an
// open chunk, which queries meet pair by pair; a closed chunk has moved into
// the moments, which queries meet through their features.
type chunkScan[T tensor.Float] struct {
	u       *headTask[T]
	m       *features.Monomials[T]
	moments features.Moments[T]
	c       int // tokens of a chunk
	ld      int // stride of rows that run over a chunk's tokens
	lda     int // stride of prepared rows
	// Prepared rows of mean 0 are reflected onto their last axis, where they are
	// 0, and have the features of a channel less.
	dropsAxis bool

	// The open chunk.
	n              int // tokens in it
	x              []T // [da+1, ld] components of the prepared keys, under their ones
	v              []T // [c, ldv] values: room, or where the call has them
	ldv            int
	room           []T        // [c, past.ld]
	usesCallValues bool       // the values of a chunk may stay in the call's memory
	valid          []bool     // [c] keys that exist
	hasMasked      bool       // some do not
	first          int        // the first key that exists: -1 before this chunk, unseen nowhere
	ages           *logDecays // of its keys; nil: no decay

	pendingLogDecay float64 // what waits before the task's first key

	lead int // of a member of a group: the first of the task's keys that exists, -1 if none does
}

// scanDecay has the decays of a chunk scan.
type scanDecay[T tensor.Float] struct{ *chunkScan[T] }

// scanGrad takes gradients back through a chunk scan.
type scanGrad[T tensor.Float] struct{ *chunkScan[T] }

// groupScan divides the chunks of a scan among a group of workers.
type groupScan[T tensor.Float] struct{ *chunkScan[T] }

func (s *chunkScan[T]) decay() scanDecay[T] { return scanDecay[T]{s} }
func (s *chunkScan[T]) group() groupScan[T] { return groupScan[T]{s} }
func (s *chunkScan[T]) grad() scanGrad[T]   { return scanGrad[T]{s} }

// unseen is the place of a key that has not come yet.
const unseen = math.MaxInt

// newChunkScan returns an empty scan for chunks of c tokens, in memory from take.
func newChunkScan[T tensor.Float](u *headTask[T], m *features.Monomials[T], c int, take func(n int) []T) *chunkScan[T] {
	return new(chunkScan[T]).start(u, m, c, take)
}

// start makes s the result of newChunkScan.
func (s *chunkScan[T]) start(u *headTask[T], m *features.Monomials[T], c int, take func(n int) []T) *chunkScan[T] {
	*s = chunkScan[T]{u: u, m: m, c: c, ld: scratch.Stride[T](c), lda: kernel.Pad(u.da), dropsAxis: m.Width < u.da, valid: slices.Grow(s.valid[:0], c)[:c], first: unseen}
	s.moments = u.linear().moments(m, take)
	s.x = take((u.da + 1) * s.ld)
	s.room = take(c * s.moments.Stride)
	s.v, s.ldv = s.room, s.moments.Stride
	return s
}

// scratchScan is a scan in the task's own scratch memory.
func (u linearForm[T]) scratchScan(m *features.Monomials[T]) *chunkScan[T] {
	s := u.stream.start(u.headTask, m, min(u.chunk, max(u.n, u.m, 1)), u.takeScratch)
	s.usesCallValues = true
	if len(u.logG.Data) > 0 {
		s.ages = u.decay().takeAges(s.c)
	}
	return s
}

// takeScratch returns n elements of the task's scratch memory.
func (u linearForm[T]) takeScratch(n int) []T { return arena.Take[T](u.ar, n) }

// moments returns empty moments for the task's values.
func (u linearForm[T]) moments(m *features.Monomials[T], take func(n int) []T) features.Moments[T] {
	ld := kernel.Pad(u.dv)
	n := m.Count * ld
	all := take(n + m.Count + kernel.Lanes - 1)
	return features.Moments[T]{S: all[:n:n], Z: all[n:], Stride: ld}
}

// absorbKeys puts keys j0 ≤ j < j1 into the open chunk.
func (s *chunkScan[T]) absorbKeys(j0, j1 int) {
	u, n := s.u, j1-j0
	if n <= 0 {
		return
	}
	s.decay().age(j0, j1)
	keys := u.rows().keySide()
	s.prepare(s.x[s.n:], &keys, j0, j1)
	s.absorbValues(j0, j1)
	if u.mask != nil {
		for j := j0; j < j1; j++ {
			s.appendToken(u.mask[j])
		}
		return
	}
	for i := range n {
		s.x[s.n+i] = 1
		s.valid[s.n+i] = true
	}
	s.first = min(s.first, s.n)
	s.n += n
}

// absorbValues puts the values of keys j0 ≤ j < j1 into the open chunk. They are
// read where they lie if they are all of it, and whole vectors.
func (s *chunkScan[T]) absorbValues(j0, j1 int) {
	u := s.u
	if s.n == 0 {
		if s.usesCallValues && u.mask == nil && u.dv == s.moments.Stride {
			s.v, s.ldv = u.v.Data[j0*u.v.Stride:], u.v.Stride
			return
		}
		s.v, s.ldv = s.room, s.moments.Stride
	}
	u.copyValues(s.v[s.n*s.ldv:], s.ldv, j0, j1)
}

// prepare sets columns of x, under a row for the caller to set, to tokens
// i0 ≤ i < i1.
func (s *chunkScan[T]) prepare(x []T, from *headRows[T], i0, i1 int) {
	s.u.rows().prepare(x[s.ld:], s.ld, from, i0, i1)
	if s.dropsAxis {
		s.u.t.Reflect(x[s.ld:], s.ld, s.u.da, i1-i0)
	}
}

// prepareGrad is the task's, for columns under a row to ignore.
func (s *chunkScan[T]) prepareGrad(to tensor.Mat[T], dx []T, from *headRows[T], i0, i1 int) (dscale float64) {
	if s.dropsAxis {
		s.u.t.ReflectGrad(dx[s.ld:], s.ld, s.u.da, i1-i0)
	}
	return s.u.rows().prepareGrad(to, dx[s.ld:], s.ld, from, i0, i1)
}

// appendToken counts the next token of the open chunk as one whose key exists or not.
func (s *chunkScan[T]) appendToken(exists bool) {
	s.valid[s.n] = exists
	s.x[s.n] = 0
	if exists {
		s.x[s.n] = 1
		s.first = min(s.first, s.n)
	} else {
		s.hasMasked = true
	}
	s.n++
}

// closeChunk moves the open chunk into the moments.
func (s *chunkScan[T]) closeChunk() {
	if s.n == 0 {
		return
	}
	s.sumChunk()
	s.clearChunk()
	if s.first != unseen {
		s.first = -1
	}
}

// sumChunk adds the open chunk to the moments, which decay by it.
func (s *chunkScan[T]) sumChunk() {
	mark := s.u.ar.Mark()
	if s.ages != nil {
		s.moments.Fade(s.u.t, s.decay().chunkDecay())
	}
	v, ldv, w := s.decay().agedKeys()
	s.moments.AddTokens(s.u.ar, s.m, s.x, s.ld, s.n, v, ldv, w)
	s.u.ar.Reset(mark)
}

// clearChunk empties the open chunk.
func (s *chunkScan[T]) clearChunk() {
	s.n, s.hasMasked = 0, false
	if s.ages != nil {
		s.ages.clear()
	}
}

// openBlock describes the weights of n queries, the rows of a, with the open
// chunk: query r sees its keys up to diag+r.
func (s *chunkScan[T]) openBlock(a []T, n, diag int) block[T] {
	b := block[T]{a: a, lda: s.lda, bt: s.x[s.ld:], panel: s.c, ldb: s.ld, nq: n, nk: s.n, diag: min(diag, s.n), ages: s.ages, rowPlace: diag}
	if s.hasMasked {
		b.mask = s.valid[:s.n]
	}
	return b
}

// onesColumns returns n columns of components under a row of ones; the rest is for
// the caller to set.
func (s *chunkScan[T]) onesColumns(n int) []T {
	x := arena.Take[T](s.u.ar, (s.u.da+1)*s.ld)
	for i := range n {
		x[i] = 1
	}
	return x
}

// prepareQueries returns the prepared queries i0 ≤ i < i1 of head g as columns.
func (s *chunkScan[T]) prepareQueries(g, i0, i1 int) []T {
	x, q := s.onesColumns(i1-i0), s.u.rows().querySide(g)
	s.prepare(x, &q, i0, i1)
	return x
}

// transposeColumns returns n columns of components as rows.
func (s *chunkScan[T]) transposeColumns(x []T, n int) []T {
	a := arena.TakeZeros[T](s.u.ar, n*s.lda)
	s.u.t.Transpose(a, s.lda, x[s.ld:], s.ld, s.u.da, n)
	return a
}

// sumQueryRows returns numerators o [n, s.past.ld] and denominators den [n] of n queries, the
// columns of x. Query r sees keys up to diag+r of the open chunk.
func (s *chunkScan[T]) sumQueryRows(x []T, n, diag int) (o, den []T) {
	u := s.u
	den = arena.TakeZeros[T](u.ar, kernel.Pad(n))
	if s.n == 0 && s.ages == nil && s.moments.NonEmpty && n > kernel.Lanes {
		o = arena.Take[T](u.ar, n*s.moments.Stride)
		s.moments.ReadTokens(u.ar, s.m, x, s.ld, n, false, o, s.moments.Stride, den)
		return o, den
	}
	o = arena.TakeZeros[T](u.ar, n*s.moments.Stride)
	if s.ages != nil {
		s.readMoments(x, n, o, den)
		s.decay().fadeRows(o, den, n, diag)
	}
	if s.n > 0 {
		b := s.openBlock(x[s.ld:], n, diag)
		b.lda, b.hasColumns = s.ld, true
		u.direct().polyBlock(&b, s.v, s.ldv, o, s.moments.Stride, den)
	}
	if s.ages == nil {
		s.readMoments(x, n, o, den)
	}
	return o, den
}

// readMoments adds what the moments hold for n queries, the columns of x.
func (s *chunkScan[T]) readMoments(x []T, n int, o, den []T) {
	switch {
	case !s.moments.NonEmpty:
	case n <= kernel.Lanes:
		s.moments.ReadFewTokens(s.u.ar, s.m, s.transposeColumns(x, n), s.lda, n, o, den)
	default:
		s.moments.ReadTokens(s.u.ar, s.m, x, s.ld, n, true, o, s.moments.Stride, den)
	}
}

// answerQueries sets the outputs and denominators of queries i0 ≤ i < i1 of every head;
// query i0+r sees keys up to diag+r of the open chunk.
func (s *chunkScan[T]) answerQueries(i0, i1, diag int) {
	if i0 >= i1 {
		return
	}
	u := s.u
	mark := u.ar.Mark()
	for g := range u.q {
		o, den := s.sumQueryRows(s.prepareQueries(g, i0, i1), i1-i0, diag)
		s.divideRows(g, i0, i1, diag, o, den)
		u.ar.Reset(mark)
	}
}

// divideRows divides the numerators o of queries i0 ≤ i < i1 of head g by their
// denominators den. Query i0+r sees keys up to diag+r of the open chunk.
func (s *chunkScan[T]) divideRows(g, i0, i1, diag int, o, den []T) {
	u := s.u
	mark := u.ar.Mark()
	over := arena.Take[T](u.ar, i1-i0)
	for r := range over {
		den[r] = u.spec.denominator(den[r], s.decay().eps(diag+r))
		over[r] = u.invertDen(den[r])
	}
	if u.spec.OutputNorm {
		s.normaliseOver(over, diag)
	}
	copy(u.den[g][i0:i1], den)
	out := &u.o[g]
	u.t.ScaleRows(out.Data[i0*out.Stride:], out.Stride, o, s.moments.Stride, u.dv, over)
	u.ar.Reset(mark)
	u.linear().clearUnseen(g, i0, i0+min(s.first, diag+i1-i0)-diag)
	u.noteNonFinite(g, i0, i1)
}

// ones returns n times 1.
func ones[T tensor.Float](ar *arena.Arena, n int) []T {
	x := arena.Take[T](ar, n)
	for i := range x {
		x[i] = 1
	}
	return x
}

// clearUnseen sets outputs and denominators of queries i0 ≤ i < i1 of head g to 0. These
// queries see no key.
func (u linearForm[T]) clearUnseen(g, i0, i1 int) {
	for i := i0; i < i1; i++ {
		clear(u.o[g].Row(i))
		u.den[g][i] = 0
	}
}

// chunkBounds returns the keys and queries of a causal sequence whose positions are
// pos ≤ p < pos+c.
func (u linearForm[T]) chunkBounds(pos, c int) (j0, j1, i0, i1 int) {
	within := func(i, n int) int { return min(max(i, 0), n) }
	return min(pos, u.m), min(pos+c, u.m), within(pos-u.offset, u.n), within(pos+c-u.offset, u.n)
}

// positionCount is the number of positions of a causal sequence.
func (u linearForm[T]) positionCount() int { return max(u.m, u.n+u.offset) }

// absorbAllKeys brings all keys into the moments.
func (s *chunkScan[T]) absorbAllKeys() {
	for j := 0; j < s.u.m; j += s.c {
		s.absorbKeys(j, min(j+s.c, s.u.m))
		s.closeChunk()
	}
}

func (u linearForm[T]) linearForward(m *features.Monomials[T]) {
	if u.workers > 1 {
		u.linearForwardTogether()
		return
	}
	s := u.scratchScan(m)
	if !u.causal {
		s.absorbAllKeys()
		if u.savedMoments != nil {
			*u.savedMoments = append(append((*u.savedMoments)[:0], s.moments.S...), s.moments.Z[:m.Count]...)
		}
		for i := 0; i < u.n; i += s.c {
			s.answerQueries(i, min(i+s.c, u.n), 0)
		}
		return
	}
	for g := range u.q {
		u.clearUnseen(g, 0, min(-u.offset, u.n))
	}
	for pos := 0; pos < u.n+u.offset; pos += s.c {
		j0, j1, i0, i1 := u.chunkBounds(pos, s.c)
		s.absorbKeys(j0, j1)
		s.answerQueries(i0, i1, i0+u.offset-pos)
		if pos+s.c < u.n+u.offset {
			s.closeChunk()
		}
	}
}

// run takes in the task's keys, each before the query of its place, where there
// are both.
func (s *chunkScan[T]) run() {
	u := s.u
	if s.ages != nil {
		s.pendingLogDecay = s.ages.pending
	}
	for j := 0; j < u.m; {
		if s.canFuseSteps() {
			s.fuseSteps(j)
			return
		}
		if u.workers > 1 && s.n == 0 && u.m-j >= 2*s.c {
			j = s.group().runTogether(j)
			continue
		}
		j1, diag := min(j+s.c-s.n, u.m), s.n
		s.absorbKeys(j, j1)
		if u.n > 0 {
			s.answerQueries(j, j1, diag)
		}
		if s.n == s.c {
			s.closeChunk()
		}
		j = j1
	}
	if u.m > 0 {
		return
	}
	if u.workers > 1 && u.n >= 2*s.c {
		s.group().readTogether()
		return
	}
	for i := 0; i < u.n; i += s.c {
		s.answerQueries(i, min(i+s.c, u.n), s.n)
	}
}

// copyFrom makes the scan hold what from holds, which has the same shape.
func (s *chunkScan[T]) copyFrom(from *chunkScan[T]) {
	s.moments.CopyFrom(&from.moments)
	s.copyOpenChunk(from)
	s.ages = from.ages.cloneFor(s.c)
}

// copyOpenChunk copies the open chunk of from.
func (s *chunkScan[T]) copyOpenChunk(from *chunkScan[T]) {
	copy(s.x, from.x)
	s.v, s.ldv = s.room, s.moments.Stride
	for i := range from.n {
		copy(s.v[i*s.ldv:][:s.ldv], from.v[i*from.ldv:])
	}
	copy(s.valid, from.valid[:from.n])
	s.n, s.hasMasked, s.first = from.n, from.hasMasked, from.first
}

// mergeNext closes the open chunk and adds what next holds.
func (s *chunkScan[T]) mergeNext(next *chunkScan[T]) {
	s.closeChunk()
	seen := s.first != unseen
	s.decay().appendAges(next)
	s.moments.AddMoments(s.u.t, &next.moments)
	s.copyOpenChunk(next)
	if seen {
		s.first = -1
	}
}
