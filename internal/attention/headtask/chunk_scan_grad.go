package headtask

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/features"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// outputGrad returns, for queries i0 ≤ i < i1 of head g, the gradients of their
// numerators, dO/den [n, s.past.ld], and of their denominators, -(dO·o)/den.
// Both are zero for a query that sees no key.
func (s *Scan) outputGrad(g, i0, i1 int) (y, w []float) {
	u, ld := s.Task, s.Moments.Stride
	y = s.rowsOf(i1 - i0)
	w = arena.Take[float](u.Arena, i1-i0)
	mark := u.Arena.Mark()
	over := arena.Take[float](u.Arena, i1-i0)
	for r, den := range u.Den[g][i0:i1] {
		over[r] = u.invertDen(den)
	}
	do := &u.DO[g]
	u.Table.ScaleRows(y, ld, do.Data[i0*do.Stride:], do.Stride, u.Dv, over)
	u.Arena.Reset(mark)
	if !u.Spec.GivesNumerators {
		for r, den := range u.Den[g][i0:i1] {
			if den == 0 {
				clear(y[r*ld:][:u.Dv])
			}
		}
	}
	o := &u.O[g]
	u.Table.RowDots(w, y, ld, o.Data[i0*o.Stride:], o.Stride, u.Dv)
	u.Table.Scale(w, -1, w)
	return y, w
}

// rowsOf returns n rows of the moments' stride, which are zero beyond Dv.
func (s *Scan) rowsOf(n int) []float {
	if s.Moments.Stride == s.Task.Dv {
		return arena.Take[float](s.Task.Arena, n*s.Moments.Stride)
	}
	return arena.TakeZeros[float](s.Task.Arena, n*s.Moments.Stride)
}

// gradPast returns the gradient of n tokens with components x, as columns under a row
// to ignore. It is the sum of the rows of dx, if there are any, and of the gradient
// through moments p from rows y and numbers w.
func (s *Scan) gradPast(p *features.Moments, dx tensor.Mat, x []float, n int, y []float, ldy int, w []float) []float {
	u := s.Task
	dxt := arena.TakeZeros[float](u.Arena, (u.PreparedWidth+1)*s.ColumnStride)
	if dx.Rows > 0 {
		u.Table.Transpose(dxt[s.ColumnStride:], s.ColumnStride, dx.Data, dx.Stride, n, u.PreparedWidth)
	}
	if p.NonEmpty {
		mark := u.Arena.Mark()
		yt := arena.Take[float](u.Arena, (u.Dv+1)*s.ColumnStride)
		u.Table.Transpose(yt, s.ColumnStride, y, ldy, n, u.Dv)
		copy(yt[u.Dv*s.ColumnStride:][:n], w)
		p.AddGrad(u.Arena, s.Monomials, dxt, x, yt, s.ColumnStride, n, u.Dv)
		u.Arena.Reset(mark)
	}
	return dxt
}

// LinearBackward is the backward pass of the linear form. For the gradient of the queries it
// uses the sums of keys that Forward saved, or recomputes them. For the gradient of the keys
// and values it sums queries: T = Σ φ(q)·[dO/den, -(dO·o)/den]. As in LinearForward, a causal
// call is a segment without states, and another has no open chunk.
func (u *Task) LinearBackward(m *features.Monomials) {
	if u.Workers > 1 {
		u.linearBackwardTogether()
		return
	}
	s := u.scratchScan(m)
	back := u.Moments(m, u.TakeScratch)
	own := u.keyGrads()
	u.clearValues(0, u.M)
	if u.Causal {
		u.clearUnseenGrads()
		s.backChunks(u.PositionCount(), &back, &own, SegmentGrads{})
		return
	}
	if n := m.Count * s.Moments.Stride; u.M > 0 && u.SavedMoments != nil && len(*u.SavedMoments) == n+m.Count {
		s.Moments.S, s.Moments.Z, s.Moments.NonEmpty = (*u.SavedMoments)[:n], (*u.SavedMoments)[n:], true
	} else {
		s.absorbAllKeys()
	}
	for i := 0; i < u.N; i += s.ChunkSize {
		for g := range u.Q {
			s.BackQueries(g, i, min(i+s.ChunkSize, u.N), 0, nil, &back)
		}
	}
	for j := 0; j < u.M; j += s.ChunkSize {
		x := chunkRange{pos: j, j0: j, j1: min(j+s.ChunkSize, u.M)}
		s.reopen(x, nil)
		s.backKeys(&back, x, &own)
	}
}

// clearUnseenGrads sets dq of the queries before all keys to 0.
func (u *Task) clearUnseenGrads() {
	for g := range u.Q {
		for i := range min(-u.Offset, u.N) {
			clear(u.DQ[g].Row(i))
		}
	}
}

// HeadGrad is the gradient of one key head of a state.
type HeadGrad struct {
	Moments      features.Moments // gradient of the moments of the closed chunks
	Count        int              // number of tokens after the closed chunks
	Keys, Values []float          // [n, da] gradient of their prepared keys, [n, dv] of their values
	Ones         []float          // [n] gradient of the ones under their values; 0 without decay
	Age          float64          // Σ dG over the positions after the state; 0 without decay
}

// Open makes room for n tokens after the closed chunks, with undefined contents, and sets Ones
// and Age to 0.
func (h *HeadGrad) Open(n, da, dv int) {
	h.Count, h.Age = n, 0
	h.Keys = scratch.Grow(h.Keys[:0], n*da)
	h.Values = scratch.Grow(h.Values[:0], n*dv)
	h.Ones = scratch.Grow(h.Ones[:0], n)
	clear(h.Ones)
}

// SegmentGrads holds the gradients of the states before and after a segment. Its zero value is for
// a whole sequence, which has neither.
type SegmentGrads struct {
	Before *Scan     // content of the state before the segment; nil: empty
	First  *HeadGrad // receives the gradient of Before; nil: not wanted
	After  *HeadGrad // gradient of the state after the segment; nil: none
	Total  bool      // After is of a total, whose last chunk has ended
}

// Backward is the backward pass of Forward for a segment. s holds the tokens of the state before
// it. The last chunk stays open unless the gradient after the segment is of a total, because
// later queries read the keys of an open chunk one by one, and the keys of closed chunks through
// the moments.
func (s *Scan) Backward(g SegmentGrads) {
	u, before := s.Task, s.Count
	back := u.Moments(s.Monomials, u.TakeScratch)
	if g.First != nil {
		g.First.Moments.ShapeAs(&back)
	}
	if g.After != nil {
		back.CopyFrom(&g.After.Moments)
	}
	n, ld := before+u.M, s.Moments.Stride
	own := keyGrads{
		isSegment: true, before: before, first: g.First,
		rows:   tensor.Mat{Data: u.TakeScratch(n * u.PreparedWidth), Rows: n, Cols: u.PreparedWidth, Stride: u.PreparedWidth},
		values: tensor.Mat{Data: arena.TakeZeros[float](u.Arena, n*ld), Rows: n, Cols: u.Dv, Stride: ld},
	}
	if u.DAge != nil {
		own.ones = u.TakeScratch(n)
	}
	s.backChunks(u.M, &back, &own, g)
	for j := range u.M {
		copy(u.DVal.Row(j), own.values.Row(before+j))
	}
	if g.First != nil {
		g.First.Moments.CopyFrom(&back)
		copy(g.First.Ones, own.ones)
		for j := range before {
			copy(g.First.Values[j*u.Dv:][:u.Dv], own.values.Row(j))
		}
	}
	if own.ones != nil {
		u.AgeKeys(0, own.ones[before:])
	}
}

// backChunks is the backward pass of Forward, with the same end. One pass goes forward, with the
// sums of the keys before each query, and another goes backward, with the sums of the queries
// after each key. back has the gradient of the moments after the call, and gets that of the
// moments before it if g.First wants it.
func (s *Scan) backChunks(end int, back *features.Moments, own *keyGrads, g SegmentGrads) {
	u, before, trailing := s.Task, s.Count, s.Task.trailingQuery(end)
	last := s.lastChunk(end, own.isSegment)
	for pos := -before; pos <= last; pos += s.ChunkSize {
		x, late := u.chunkAt(pos, s.ChunkSize, end), u.N
		if pos == last {
			late = trailing
		}
		s.AbsorbKeys(x.j0, x.j1)
		s.backChunk(x, late, own)
		switch {
		case pos == last:
		case u.N == 0:
			s.ClearChunk() // no query reads the moments
		default:
			s.CloseChunk()
		}
	}
	if g.After != nil {
		own.addAfter(u, before+last, g.After)
	}
	if g.First != nil {
		g.First.Open(before, u.PreparedWidth, u.Dv)
	}
	for pos := last; pos >= -before; pos -= s.ChunkSize {
		x, past := u.chunkAt(pos, s.ChunkSize, end), back
		s.reopen(x, g.Before)
		if pos == last && !g.Total {
			past = &features.Moments{Stride: back.Stride}
		}
		s.backKeys(past, x, own)
		if pos == -before && g.First == nil {
			return // no sums before it want their queries
		}
		if s.Decays != nil && (pos < last || g.Total) {
			back.Fade(u.Table, s.ChunkDecay())
		}
		for h := range u.Q {
			s.SumQueries(back, h, x.i0, x.i1, x.diag)
			for i := trailing; i < u.N && pos == last; i += s.ChunkSize {
				s.SumQueries(back, h, i, min(i+s.ChunkSize, u.N), s.Count)
			}
		}
	}
}

// reopen opens chunk x for the backward direction. before has its tokens that come before the call.
func (s *Scan) reopen(x chunkRange, before *Scan) {
	s.ClearChunk()
	if x.pos >= 0 {
		s.Recede(x.j0)
	} else if s.CopyOpenChunk(before); s.Decays != nil {
		s.Decays = before.Decays.CloneFor(s.ChunkSize)
		s.StartAges()
	}
	s.AbsorbKeys(x.j0, x.j1)
}

// keyGrads gathers the gradients of prepared keys and values, those from the queries of their own
// chunks first. In a segment, the tokens of the open chunk before it come first.
type keyGrads struct {
	rows     tensor.Mat // [before+M, da]
	values   tensor.Mat // [before+M, Dv]
	passesOn bool       // there are no rows: prepared keys are wider than DK, which gets both parts one by one
	fromSums bool       // values are exactly what the sums of queries give, in whole vectors

	isSegment bool
	before    int
	first     *HeadGrad // of the state before the segment; nil: not wanted
	ones      []float   // [before+M] gradients of the ones under the values; nil: dG gets them at once
}

// keyGrads returns room for the gradients of a whole sequence, in their final memory where they
// fit.
func (u *Task) keyGrads() keyGrads {
	own := keyGrads{values: u.DVal, fromSums: u.gradsFromSumsAlone()}
	if own.passesOn = u.Causal && !u.HasPreparedKeys && u.PreparedWidth > u.D; u.Causal && !own.passesOn {
		own.rows = u.DK
	}
	return own
}

// at returns the number of the first token of chunk x.
func (own *keyGrads) at(x chunkRange) int { return own.before + x.pos }

// addAfter adds the gradient of the state after a segment to that of the tokens of its open chunk,
// from number at on.
func (own *keyGrads) addAfter(u *Task, at int, after *HeadGrad) {
	add := func(to, x []float) { u.Table.Add(to, to, x) }
	for j := range after.Count {
		add(own.rows.Row(at+j), after.Keys[j*u.PreparedWidth:])
		add(own.values.Row(at+j), after.Values[j*u.Dv:])
	}
	if own.ones != nil {
		add(own.ones[at:][:after.Count], after.Ones)
	}
}

// gradsFromSumsAlone reports whether dV is exactly what the sums of queries give, in whole
// vectors.
func (u *Geometry) gradsFromSumsAlone() bool {
	return !u.Causal && u.N > 0 && u.Mask == nil && len(u.LogG.Data) == 0 && u.Dv == kernel.Pad(u.Dv)
}

// clearValues sets dV of keys j0 ≤ j < j1 to 0, where something is added to it.
func (u *Task) clearValues(j0, j1 int) {
	if u.gradsFromSumsAlone() {
		return
	}
	for j := j0; j < j1; j++ {
		clear(u.DVal.Row(j))
	}
}

// backChunk sets dq of the queries of chunk x, which is open, and of those from late on, which see
// all of it. The gradients of its keys go to own, or to dK if own passes them on, and those of
// its values are added.
func (s *Scan) backChunk(x chunkRange, late int, own *keyGrads) {
	u := s.Task
	mark := u.Arena.Mark()
	open := s.OpenGradient()
	for g := range u.Q {
		s.BackQueries(g, x.i0, x.i1, x.diag, &open, nil)
		for i := late; i < u.N; i += s.ChunkSize {
			s.BackQueries(g, i, min(i+s.ChunkSize, u.N), s.Count, &open, nil)
		}
	}
	switch {
	case s.Count == 0:
	case own.passesOn:
		dk, from := arena.Take[float](u.Arena, (u.PreparedWidth+1)*s.ColumnStride), u.KeySide()
		u.Table.Transpose(dk[s.ColumnStride:], s.ColumnStride, open.Db, s.RowStride, s.Count, u.PreparedWidth)
		s.prepareGrad(u.DK, dk, &from, x.j0, x.j1)
	default:
		for j := range s.Count {
			copy(own.rows.Row(own.at(x) + j)[:u.PreparedWidth], open.Db[j*s.RowStride:])
		}
	}
	s.addValues(x, own, open.Dv)
	switch {
	case open.Age == nil:
	case own.ones == nil:
		u.AgeKeys(x.j0, open.Age[:s.Count])
	default:
		copy(own.ones[own.at(x):][:s.Count], open.Age)
	}
	u.Arena.Reset(mark)
}

// OpenGradient returns a gradient, set to zero, for the keys and values of the open chunk.
func (s *Scan) OpenGradient() gradient {
	u := s.Task
	x := gradient{ldo: s.Moments.Stride}
	if s.Count > 0 {
		x.Db = arena.TakeZeros[float](u.Arena, s.Count*s.RowStride)
		x.b = arena.TakeZeros[float](u.Arena, s.Count*s.RowStride)
		u.Table.Transpose(x.b, s.RowStride, s.X[s.ColumnStride:], s.ColumnStride, u.PreparedWidth, s.Count)
		x.vt = arena.Take[float](u.Arena, u.Dv*s.ColumnStride)
		u.Table.Transpose(x.vt, s.ColumnStride, s.V, s.ldv, s.Count, u.Dv)
		x.Dv = arena.TakeZeros[float](u.Arena, s.Count*s.Moments.Stride)
		if u.DAge != nil {
			x.Age = arena.TakeZeros[float](u.Arena, kernel.Pad(s.Count))
		}
	}
	return x
}

// BackQueries sets dq of queries i0 ≤ i < i1 of head g and adds their contributions to the
// gradient x of the open chunk. If back is not nil, it also adds the queries to the sums back.
func (s *Scan) BackQueries(g, i0, i1, diag int, x *gradient, back *features.Moments) {
	u, n := s.Task, i1-i0
	if n <= 0 {
		return
	}
	mark := u.Arena.Mark()
	q := s.prepareQueries(g, i0, i1)
	y, w := s.outputGrad(g, i0, i1)
	if u.DAge != nil {
		u.ageQueries(i0, w, func(i int) float64 { return s.Decays.pendingAfter(s.place(diag + i - i0)) })
	}
	u.Spec.maskDenGrad(w, u.Den[g][i0:i1])
	var da tensor.Mat
	if s.Count > 0 {
		da = tensor.Mat{Data: arena.TakeZeros[float](u.Arena, n*s.RowStride), Rows: n, Cols: u.PreparedWidth, Stride: s.RowStride}
		x.do, x.w, x.da = y, w, da.Data
		b := s.openBlock(s.transposeColumns(q, n), n, diag)
		u.blockGrad(&b, x)
	}
	ya, wa := s.agedQueries(y, w, n, diag)
	dq, from := s.gradPast(&s.Moments, da, q, n, ya, s.Moments.Stride, wa), u.QuerySide(g)
	u.DScale[g] += s.prepareGrad(u.DQ[g], dq, &from, i0, i1)
	if back != nil {
		back.AddTokens(u.Arena, s.Monomials, q, s.ColumnStride, n, y, s.Moments.Stride, w)
	}
	u.Arena.Reset(mark)
}

// SumQueries adds queries i0 ≤ i < i1 of head g to the sums back. Query i0+r sees the keys up
// to number diag+r of the open chunk.
func (s *Scan) SumQueries(back *features.Moments, g, i0, i1, diag int) {
	u, n := s.Task, i1-i0
	if n <= 0 {
		return
	}
	mark := u.Arena.Mark()
	y, w := s.outputGrad(g, i0, i1)
	u.Spec.maskDenGrad(w, u.Den[g][i0:i1])
	y, w = s.agedQueries(y, w, n, diag)
	back.AddTokens(u.Arena, s.Monomials, s.prepareQueries(g, i0, i1), s.ColumnStride, n, y, s.Moments.Stride, w)
	u.Arena.Reset(mark)
}

// backKeys sets dk of the keys of chunk x, which is open, from the gradients that own has so far
// and the queries after the chunk, which back sums, and adds the part of these to the gradients
// of the values. The tokens before a segment go to own.first.
func (s *Scan) backKeys(back *features.Moments, x chunkRange, own *keyGrads) {
	u, n := s.Task, s.Count
	if n == 0 {
		return
	}
	mark := u.Arena.Mark()
	v, ldv, w := s.agedKeys()
	switch {
	case !back.NonEmpty:
	case own.fromSums:
		to := &own.values
		back.ReadTokens(u.Arena, s.Monomials, s.X, s.ColumnStride, n, false, to.Data[x.j0*to.Stride:], to.Stride, arena.TakeZeros[float](u.Arena, n))
	default:
		dv, ones := arena.TakeZeros[float](u.Arena, n*s.Moments.Stride), arena.TakeZeros[float](u.Arena, n)
		back.ReadTokens(u.Arena, s.Monomials, s.X, s.ColumnStride, n, true, dv, s.Moments.Stride, ones)
		if s.Decays != nil {
			dv, ones = s.agedValues(dv, ones, w)
		}
		if own.ones != nil {
			to := own.ones[own.at(x):][:n]
			u.Table.Add(to, to, ones)
		} else if u.DAge != nil {
			u.AgeKeys(x.j0, ones)
		}
		s.addValues(x, own, dv)
	}
	var rows tensor.Mat
	if own.rows.Rows > 0 {
		rows = own.rows.Slice(own.at(x), own.at(x)+n)
	}
	var wide []float // what their own chunk's queries gave wide rows
	if own.passesOn {
		wide = arena.Take[float](u.Arena, n*u.D)
		for j := range n {
			copy(wide[j*u.D:][:u.D], u.DK.Row(x.j0+j))
		}
	}
	dk, from := s.gradPast(back, rows, s.X, n, v, ldv, w), u.KeySide()
	for j := 0; own.isSegment && s.hasMasked && j < n; j++ {
		if s.Valid[j] {
			continue
		}
		clear(own.values.Row(own.at(x) + j))
		for c := range u.PreparedWidth {
			dk[(1+c)*s.ColumnStride+j] = 0
		}
	}
	prior := max(-x.pos, 0) // tokens before the segment
	if own.first != nil && prior > 0 {
		u.Table.Transpose(own.first.Keys, u.PreparedWidth, dk[s.ColumnStride:], s.ColumnStride, u.PreparedWidth, prior)
	}
	s.prepareGrad(u.DK, dk[prior:], &from, x.j0, x.j1)
	for j := 0; wide != nil && j < n; j++ {
		row := u.DK.Row(x.j0 + j)
		u.Table.Add(row, row, wide[j*u.D:])
	}
	u.Arena.Reset(mark)
}

// addValues adds rows dv to the gradients of the values of chunk x, which is open.
func (s *Scan) addValues(x chunkRange, own *keyGrads, dv []float) {
	to, at := &own.values, own.at(x)
	if !s.hasMasked && s.Count > 0 {
		rows := to.Data[at*to.Stride:]
		s.Task.Table.AddRows(rows, to.Stride, rows, to.Stride, dv, s.Moments.Stride, s.Count, to.Cols)
		return
	}
	for j := range s.Count {
		if s.Valid[j] {
			row := to.Row(at + j)
			s.Task.Table.Add(row, row, dv[j*s.Moments.Stride:])
		}
	}
}
