package headtask

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/features"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// Scan is the linear form of one key head. Keys arrive in order and fill an open chunk, whose
// weights are computed pair by pair. A full chunk is closed: it is added to the moments, which
// queries read with their features.
type Scan struct {
	scanGeometry
	Moments features.Moments // sums over the keys of closed chunks
	openTokens
	scanDecays

	lead int // in a worker's copy: the task's first unmasked key, or -1
}

// scanGeometry holds the shape of a scan and the layout of its rows. Start sets it.
type scanGeometry struct {
	Task         *Task
	Monomials    *features.Monomials
	ChunkSize    int // tokens of a chunk
	ColumnStride int // stride of rows that run over a chunk's tokens
	RowStride    int // stride of prepared rows
	// Prepared rows of mean 0 are reflected onto their last axis, where they are
	// 0, and have the features of a channel less.
	dropsAxis bool
}

// openTokens holds the keys and values that are not in the moments yet.
type openTokens struct {
	Count          int     // tokens in it
	X              []float // [da+1, ld] components of the prepared keys, under their ones
	V              []float // [c, ldv] values: room, or where the call has them
	ldv            int
	Room           []float // [c, past.ld]
	usesCallValues bool    // the values of a chunk may stay in the call's memory
	Valid          []bool  // [c] unmasked tokens
	hasMasked      bool    // some are masked
	First          int     // first unmasked key: -1 if before this chunk, Unseen if there is none
}

// scanDecays holds the log-decays of a scan's keys.
type scanDecays struct {
	Decays          *LogDecays // of the open chunk; nil: no decay
	PendingLogDecay float64    // pending log-decay before the task's first key
}

// Unseen is the value of openTokens.First before the first unmasked key.
const Unseen = math.MaxInt

// newChunkScan returns an empty scan for chunks of c tokens, in memory from take.
func newChunkScan(u *Task, m *features.Monomials, c int, take func(n int) []float) *Scan {
	return new(Scan).Start(u, m, c, take)
}

// Start sets s to the result of newChunkScan and returns it.
func (s *Scan) Start(u *Task, m *features.Monomials, c int, take func(n int) []float) *Scan {
	*s = Scan{
		scanGeometry: scanGeometry{Task: u, Monomials: m, ChunkSize: c, ColumnStride: scratch.Stride[float](c), RowStride: kernel.Pad(u.PreparedWidth), dropsAxis: m.Width < u.PreparedWidth},
		openTokens:   openTokens{Valid: slices.Grow(s.Valid[:0], c)[:c], First: Unseen},
	}
	s.Moments = u.Moments(m, take)
	s.X = take((u.PreparedWidth + 1) * s.ColumnStride)
	s.Room = take(c * s.Moments.Stride)
	s.V, s.ldv = s.Room, s.Moments.Stride
	return s
}

// scratchScan is a scan in the task's own scratch memory.
func (u *Task) scratchScan(m *features.Monomials) *Scan {
	s := u.Scan.Start(u, m, min(u.Chunk, max(u.N, u.M, 1)), u.TakeScratch)
	s.usesCallValues = true
	if len(u.LogG.Data) > 0 {
		s.Decays = u.takeAges(s.ChunkSize)
	}
	return s
}

// TakeScratch returns n elements of the task's scratch memory.
func (u *Task) TakeScratch(n int) []float { return arena.Take[float](u.Arena, n) }

// Moments returns empty moments for the task's values.
func (u *Geometry) Moments(m *features.Monomials, take func(n int) []float) features.Moments {
	ld := kernel.Pad(u.Dv)
	n := m.Count * ld
	all := take(n + m.Count + kernel.Lanes - 1)
	return features.Moments{S: all[:n:n], Z: all[n:], Stride: ld}
}

// AbsorbKeys adds keys j0 ≤ j < j1 to the open chunk.
func (s *Scan) AbsorbKeys(j0, j1 int) {
	u, n := s.Task, j1-j0
	if n <= 0 {
		return
	}
	s.age(j0, j1)
	keys := u.KeySide()
	s.prepare(s.X[s.Count:], &keys, j0, j1)
	s.absorbValues(j0, j1)
	if u.Mask != nil {
		for j := j0; j < j1; j++ {
			s.AppendToken(u.Mask[j])
		}
		return
	}
	for i := range n {
		s.X[s.Count+i] = 1
		s.Valid[s.Count+i] = true
	}
	s.First = min(s.First, s.Count)
	s.Count += n
}

// absorbValues puts the values of keys j0 ≤ j < j1 into the open chunk. They are
// read where they lie if they are all of it, and whole vectors.
func (s *Scan) absorbValues(j0, j1 int) {
	u := s.Task
	if s.Count == 0 {
		if s.usesCallValues && u.Mask == nil && u.Dv == s.Moments.Stride {
			s.V, s.ldv = u.V.Data[j0*u.V.Stride:], u.V.Stride
			return
		}
		s.V, s.ldv = s.Room, s.Moments.Stride
	}
	u.CopyValues(s.V[s.Count*s.ldv:], s.ldv, j0, j1)
}

// prepare sets columns of x, under a row for the caller to set, to tokens
// i0 ≤ i < i1.
func (s *Scan) prepare(x []float, from *headRows, i0, i1 int) {
	s.Task.Prepare(x[s.ColumnStride:], s.ColumnStride, from, i0, i1)
	if s.dropsAxis {
		s.Task.Table.Reflect(x[s.ColumnStride:], s.ColumnStride, s.Task.PreparedWidth, i1-i0)
	}
}

// prepareGrad is the task's, for columns under a row to ignore.
func (s *Scan) prepareGrad(to tensor.Mat, dx []float, from *headRows, i0, i1 int) (dscale float64) {
	if s.dropsAxis {
		s.Task.Table.ReflectGrad(dx[s.ColumnStride:], s.ColumnStride, s.Task.PreparedWidth, i1-i0)
	}
	return s.Task.prepareGrad(to, dx[s.ColumnStride:], s.ColumnStride, from, i0, i1)
}

// AppendToken counts one more token in the open chunk, whose row is already in place. exists
// says that its key is unmasked.
func (s *Scan) AppendToken(exists bool) {
	s.Valid[s.Count] = exists
	s.X[s.Count] = 0
	if exists {
		s.X[s.Count] = 1
		s.First = min(s.First, s.Count)
	} else {
		s.hasMasked = true
	}
	s.Count++
}

// CloseChunk adds the open chunk to the moments and starts a new chunk.
func (s *Scan) CloseChunk() {
	if s.Count == 0 {
		return
	}
	s.sumChunk()
	s.ClearChunk()
	if s.First != Unseen {
		s.First = -1
	}
}

// sumChunk adds the open chunk to the moments, which decay by it.
func (s *Scan) sumChunk() {
	mark := s.Task.Arena.Mark()
	if s.Decays != nil {
		s.Moments.Fade(s.Task.Table, s.ChunkDecay())
	}
	v, ldv, w := s.agedKeys()
	s.Moments.AddTokens(s.Task.Arena, s.Monomials, s.X, s.ColumnStride, s.Count, v, ldv, w)
	s.Task.Arena.Reset(mark)
}

// ClearChunk removes all tokens from the open chunk.
func (s *Scan) ClearChunk() {
	s.Count, s.hasMasked = 0, false
	if s.Decays != nil {
		s.Decays.clear()
	}
}

// openBlock describes the weights of n queries, the rows of a, with the open
// chunk: query r sees its keys up to diag+r.
func (s *Scan) openBlock(a []float, n, diag int) block {
	b := block{a: a, lda: s.RowStride, bt: s.X[s.ColumnStride:], panel: s.ChunkSize, ldb: s.ColumnStride, Nq: n, nk: s.Count, diag: min(diag, s.Count), Decays: s.Decays, rowPlace: diag}
	if s.hasMasked {
		b.mask = s.Valid[:s.Count]
	}
	return b
}

// onesColumns returns n columns of components under a row of ones; the rest is for
// the caller to set.
func (s *Scan) onesColumns(n int) []float {
	x := arena.Take[float](s.Task.Arena, (s.Task.PreparedWidth+1)*s.ColumnStride)
	for i := range n {
		x[i] = 1
	}
	return x
}

// prepareQueries returns the prepared queries i0 ≤ i < i1 of head g as columns.
func (s *Scan) prepareQueries(g, i0, i1 int) []float {
	x, q := s.onesColumns(i1-i0), s.Task.QuerySide(g)
	s.prepare(x, &q, i0, i1)
	return x
}

// transposeColumns returns n columns of components as rows.
func (s *Scan) transposeColumns(x []float, n int) []float {
	a := arena.TakeZeros[float](s.Task.Arena, n*s.RowStride)
	s.Task.Table.Transpose(a, s.RowStride, x[s.ColumnStride:], s.ColumnStride, s.Task.PreparedWidth, n)
	return a
}

// sumQueryRows returns numerators o [n, s.past.ld] and denominators den [n] of n queries, the
// columns of x. Query r sees keys up to diag+r of the open chunk.
func (s *Scan) sumQueryRows(x []float, n, diag int) (o, den []float) {
	u := s.Task
	den = arena.TakeZeros[float](u.Arena, kernel.Pad(n))
	if s.Count == 0 && s.Decays == nil && s.Moments.NonEmpty && n > kernel.Lanes {
		o = arena.Take[float](u.Arena, n*s.Moments.Stride)
		s.Moments.ReadTokens(u.Arena, s.Monomials, x, s.ColumnStride, n, false, o, s.Moments.Stride, den)
		return o, den
	}
	o = arena.TakeZeros[float](u.Arena, n*s.Moments.Stride)
	if s.Decays != nil {
		s.readMoments(x, n, o, den)
		s.fadeRows(o, den, n, diag)
	}
	if s.Count > 0 {
		b := s.openBlock(x[s.ColumnStride:], n, diag)
		b.lda, b.hasColumns = s.ColumnStride, true
		u.polyBlock(&b, s.V, s.ldv, o, s.Moments.Stride, den)
	}
	if s.Decays == nil {
		s.readMoments(x, n, o, den)
	}
	return o, den
}

// readMoments adds what the moments hold for n queries, the columns of x.
func (s *Scan) readMoments(x []float, n int, o, den []float) {
	switch {
	case !s.Moments.NonEmpty:
	case n <= kernel.Lanes:
		s.Moments.ReadFewTokens(s.Task.Arena, s.Monomials, s.transposeColumns(x, n), s.RowStride, n, o, den)
	default:
		s.Moments.ReadTokens(s.Task.Arena, s.Monomials, x, s.ColumnStride, n, true, o, s.Moments.Stride, den)
	}
}

// AnswerQueries sets the outputs and denominators of queries i0 ≤ i < i1 of every head. Query
// i0+r sees the keys up to number diag+r of the open chunk.
func (s *Scan) AnswerQueries(i0, i1, diag int) {
	if i0 >= i1 {
		return
	}
	u := s.Task
	mark := u.Arena.Mark()
	for g := range u.Q {
		o, den := s.sumQueryRows(s.prepareQueries(g, i0, i1), i1-i0, diag)
		s.divideRows(g, i0, i1, diag, o, den)
		u.Arena.Reset(mark)
	}
}

// divideRows divides the numerators o of queries i0 ≤ i < i1 of head g by their
// denominators den. Query i0+r sees keys up to diag+r of the open chunk.
func (s *Scan) divideRows(g, i0, i1, diag int, o, den []float) {
	u := s.Task
	mark := u.Arena.Mark()
	over := arena.Take[float](u.Arena, i1-i0)
	for r := range over {
		den[r] = u.Spec.denominator(den[r], s.eps(diag+r))
		over[r] = u.invertDen(den[r])
	}
	if u.Spec.OutputNorm {
		s.normaliseOver(over, diag)
	}
	copy(u.Den[g][i0:i1], den)
	out := &u.O[g]
	u.Table.ScaleRows(out.Data[i0*out.Stride:], out.Stride, o, s.Moments.Stride, u.Dv, over)
	u.Arena.Reset(mark)
	u.ClearUnseen(g, i0, i0+min(s.First, diag+i1-i0)-diag)
	u.noteNonFinite(g, i0, i1)
}

// ones returns n times 1.
func ones(ar *arena.Arena, n int) []float {
	x := arena.Take[float](ar, n)
	for i := range x {
		x[i] = 1
	}
	return x
}

// ClearUnseen sets the outputs and denominators of queries i0 ≤ i < i1 of head g, which see no
// key, to 0.
func (u *Task) ClearUnseen(g, i0, i1 int) {
	for i := i0; i < i1; i++ {
		clear(u.O[g].Row(i))
		u.Den[g][i] = 0
	}
}

// chunkRange is a chunk of a causal sequence from position pos on, which is negative if the chunk was
// open before the call. It has keys j0 ≤ j < j1 of the task, and queries i0 ≤ i < i1 at their
// positions: query i0+r sees the keys up to number diag+r of the chunk.
type chunkRange struct{ pos, j0, j1, i0, i1, diag int }

// chunkAt returns the chunk of c tokens from position pos on, without positions from end on.
func (u *Geometry) chunkAt(pos, c, end int) chunkRange {
	first, after := max(pos, 0), u.queryOffset()
	i0 := min(max(first-after, 0), u.N)
	return chunkRange{
		pos: pos, j0: min(first, u.M), j1: min(pos+c, u.M),
		i0: i0, i1: min(max(min(pos+c, end)-after, 0), u.N), diag: i0 + after - pos,
	}
}

// trailingQuery returns the first query at position end or later.
func (u *Geometry) trailingQuery(end int) int { return min(max(end-u.queryOffset(), 0), u.N) }

// queryOffset is the number of keys of the call that come before query 0.
func (u *Geometry) queryOffset() int {
	if u.Causal {
		return u.Offset
	}
	return u.M
}

// PositionCount returns the number of positions of a causal sequence.
func (u *Geometry) PositionCount() int { return max(u.M, u.N+u.Offset) }

// absorbAllKeys adds all keys to the moments.
func (s *Scan) absorbAllKeys() {
	for j := 0; j < s.Task.M; j += s.ChunkSize {
		s.AbsorbKeys(j, min(j+s.ChunkSize, s.Task.M))
		s.CloseChunk()
	}
}

// LinearForward is the forward pass of the linear form. A causal call is a segment whose initial
// state is empty. A call that is not causal has a loop of its own, because it closes its last
// chunk, which queries of a segment read pair by pair: that is faster and has other bits. With
// several workers, the same steps are divided among them.
func (u *Task) LinearForward(m *features.Monomials) {
	if u.Workers > 1 {
		u.linearForwardTogether()
		return
	}
	s := u.scratchScan(m)
	if u.Causal {
		for g := range u.Q {
			u.ClearUnseen(g, 0, min(-u.Offset, u.N))
		}
		s.Forward(u.PositionCount(), false)
		return
	}
	s.absorbAllKeys()
	if u.SavedMoments != nil {
		*u.SavedMoments = append(append((*u.SavedMoments)[:0], s.Moments.S...), s.Moments.Z[:m.Count]...)
	}
	for i := 0; i < u.N; i += s.ChunkSize {
		s.AnswerQueries(i, min(i+s.ChunkSize, u.N), 0)
	}
}

// Forward absorbs the keys of the task after the tokens of s, and sets the outputs of its queries.
// Chunks have the positions below end; later queries read s as all keys leave it. In a whole
// sequence, end is PositionCount. In a segment it is M: the state after it must not depend on
// queries, so that its last chunk stays open for those after all keys. keepsState says that s is
// the state after the call, in which a full chunk is closed.
func (s *Scan) Forward(end int, keepsState bool) {
	u := s.Task
	trailing := u.trailingQuery(end)
	last := s.lastChunk(end, keepsState || trailing < u.N)
	for pos := -s.Count; pos <= last; pos += s.ChunkSize {
		x := u.chunkAt(pos, s.ChunkSize, end)
		s.AbsorbKeys(x.j0, x.j1)
		s.AnswerQueries(x.i0, x.i1, x.diag)
		if pos < last {
			s.CloseChunk()
		}
	}
	for i := trailing; i < u.N; i += s.ChunkSize {
		s.AnswerQueries(i, min(i+s.ChunkSize, u.N), s.Count)
	}
}

// lastChunk returns the position of the last chunk that begins before end, or at end if the
// chunk before it is full and is closed.
func (s *Scan) lastChunk(end int, closesFull bool) int {
	n := s.Count + end
	if !closesFull && n > 0 {
		n--
	}
	return n/s.ChunkSize*s.ChunkSize - s.Count
}

// Run absorbs the keys of the task and sets the outputs of its queries. If there are both,
// query i sees the keys up to number i of the task; without keys, queries see all absorbed
// keys.
func (s *Scan) Run() {
	u := s.Task
	if s.Decays != nil {
		s.PendingLogDecay = s.Decays.Pending
	}
	for j := 0; j < u.M; {
		if s.canFuseSteps() {
			s.fuseSteps(j)
			return
		}
		if u.Workers > 1 && s.Count == 0 && u.M-j >= 2*s.ChunkSize {
			j = s.runTogether(j)
			continue
		}
		j1, diag := min(j+s.ChunkSize-s.Count, u.M), s.Count
		s.AbsorbKeys(j, j1)
		if u.N > 0 {
			s.AnswerQueries(j, j1, diag)
		}
		if s.Count == s.ChunkSize {
			s.CloseChunk()
		}
		j = j1
	}
	if u.M > 0 {
		return
	}
	if u.Workers > 1 && u.N >= 2*s.ChunkSize {
		s.readTogether()
		return
	}
	for i := 0; i < u.N; i += s.ChunkSize {
		s.AnswerQueries(i, min(i+s.ChunkSize, u.N), s.Count)
	}
}

// CopyFrom copies the content of from, a scan of the same shape.
func (s *Scan) CopyFrom(from *Scan) {
	s.Moments.CopyFrom(&from.Moments)
	s.CopyOpenChunk(from)
	s.Decays = from.Decays.CloneFor(s.ChunkSize)
}

// CopyOpenChunk copies the open chunk of from.
func (s *Scan) CopyOpenChunk(from *Scan) {
	copy(s.X, from.X)
	s.V, s.ldv = s.Room, s.Moments.Stride
	for i := range from.Count {
		copy(s.V[i*s.ldv:][:s.ldv], from.V[i*from.ldv:])
	}
	copy(s.Valid, from.Valid[:from.Count])
	s.Count, s.hasMasked, s.First = from.Count, from.hasMasked, from.First
}

// MergeNext closes the open chunk and appends the tokens of next.
func (s *Scan) MergeNext(next *Scan) {
	s.CloseChunk()
	seen := s.First != Unseen
	s.appendAges(next)
	s.Moments.AddMoments(s.Task.Table, &next.Moments)
	s.CopyOpenChunk(next)
	if seen {
		s.First = -1
	}
}

// The moments of a scan are relative to the last token before the open chunk.

// age adds the log-decays of keys j0 ≤ j < j1 of the task to those of the open chunk.
func (s *Scan) age(j0, j1 int) {
	if s.Decays == nil {
		return
	}
	for j := j0; j < j1; j++ {
		s.Decays.Add(s.Task.LogDecay(j), s.Task.HasKey(j))
	}
}

// ChunkDecay returns the decay factor of the whole open chunk.
func (s *Scan) ChunkDecay() float {
	if s.Decays == nil {
		return 1
	}
	return float(math.Exp(s.Decays.SumBetween(-1, s.Decays.tokens()-1)))
}

// place returns the position in the open chunk of a query that sees its keys up to i, or -1 if
// the chunk is empty.
func (s *Scan) place(i int) int { return min(i, s.Count-1) }

// eps is the task's, for a query that sees keys of the open chunk up to i.
func (s *Scan) eps(i int) float {
	if s.Decays == nil {
		return float(s.Task.Spec.Eps)
	}
	return s.Task.RelativeEps(s.Decays.pendingAfter(s.place(i)))
}

// agedKeys returns the values of the open chunk, and ones, as they are at its
// end.
func (s *Scan) agedKeys() (v []float, ldv int, w []float) {
	if s.Decays == nil {
		return s.V, s.ldv, s.X
	}
	w = arena.Take[float](s.Task.Arena, s.Count)
	for j := range w {
		w[j] = float(s.Decays.SumBetween(j, s.Count-1))
	}
	s.Task.Table.Exp(w, w, 0)
	return s.scaleRows(s.V, s.ldv, w), s.Moments.Stride, w
}

// scaleRows returns rows of the moments' stride, each of those ldr apart times its
// factor.
func (s *Scan) scaleRows(rows []float, ldr int, factors []float) []float {
	ld := s.Moments.Stride
	y := arena.Take[float](s.Task.Arena, len(factors)*ld)
	s.Task.Table.ScaleRows(y, ld, rows, ldr, ld, factors)
	return y
}

// decaySince returns the decay factors [n] of the moments before the open chunk for n
// queries. The first query sees keys of the open chunk up to diag.
func (s *Scan) decaySince(n, diag int) []float {
	f := arena.Take[float](s.Task.Arena, n)
	for r := range f {
		f[r] = float(math.Exp(s.Decays.SumBetween(-1, s.place(diag+r))))
	}
	return f
}

// agedQueries returns rows y and numbers w of n queries as the moments before
// the open chunk see them.
func (s *Scan) agedQueries(y, w []float, n, diag int) (ya, wa []float) {
	if s.Decays == nil {
		return y, w
	}
	f := s.decaySince(n, diag)
	wa = arena.Take[float](s.Task.Arena, n)
	s.Task.Table.Mul(wa, w, f)
	return s.scaleRows(y, s.Moments.Stride, f), wa
}

// StartAges makes the scan keep log-decays from now on.
func (s *Scan) StartAges() {
	if s.Decays == nil {
		s.Decays = UndecayedAges(s.ChunkSize, s.Valid[:s.Count])
	}
}

// Recede resets the pending log-decay to its value before key j0 of the task.
func (s *Scan) Recede(j0 int) {
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
		s.Decays.Pending = max(s.Decays.Pending+u.LogDecay(j), Slowest)
	}
}

// agedValues returns the gradients of the values of the open chunk, and of the ones
// under them. dv and ones are the gradients of agedKeys's results with factors w.
func (s *Scan) agedValues(dv, ones, w []float) (values, keys []float) {
	s.Task.Table.Mul(ones, ones, w)
	return s.scaleRows(dv, s.Moments.Stride, w), ones
}

// fadeRows multiplies the numerators and denominators that n queries have read from the moments
// by the decay since the closed chunks.
func (s *Scan) fadeRows(o, den []float, n, diag int) {
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
func (s *Scan) appendAges(next *Scan) {
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
		s.Moments.Fade(s.Task.Table, float(math.Exp(before.Pending+after.Forgotten)))
		after.Forgotten += before.Forgotten + before.Pending
	}
	s.Decays = after
}
