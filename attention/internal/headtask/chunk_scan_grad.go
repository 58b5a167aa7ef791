package headtask

import (
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
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
// and values it sums queries: T = Σ φ(q)·[dO/den, -(dO·o)/den]. In a causal sequence one pass
// goes forward, with the sums of the keys before each query, and another goes backward, with
// the sums of the queries after each key.
func (u *Task) LinearBackward(m *features.Monomials) {
	if u.Workers > 1 {
		u.linearBackwardTogether()
		return
	}
	s := u.scratchScan(m)
	back := u.Moments(m, u.TakeScratch)
	var db tensor.Mat
	if u.Causal {
		db = u.pendingKeyGrad()
	}
	u.clearValues(0, u.M)
	if !u.Causal {
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
			s.backKeys(&back, j, min(j+s.ChunkSize, u.M), db)
		}
		return
	}
	for g := range u.Q {
		for i := range min(-u.Offset, u.N) {
			clear(u.DQ[g].Row(i))
		}
	}
	for pos := 0; pos < u.PositionCount(); pos += s.ChunkSize {
		j0, j1, i0, i1 := u.chunkBounds(pos, s.ChunkSize)
		s.AbsorbKeys(j0, j1)
		s.backChunk(j0, i0, i1, i0+u.Offset-pos, db)
		if pos+s.ChunkSize < u.PositionCount() {
			s.CloseChunk()
		}
	}
	for pos := (u.PositionCount() - 1) / s.ChunkSize * s.ChunkSize; pos >= 0; pos -= s.ChunkSize {
		j0, j1, i0, i1 := u.chunkBounds(pos, s.ChunkSize)
		s.backKeys(&back, j0, j1, db)
		if pos > 0 {
			if s.Decays != nil {
				back.Fade(u.Table, s.ChunkDecay())
			}
			for g := range u.Q {
				s.SumQueries(&back, g, i0, i1, i0+u.Offset-pos)
			}
		}
	}
}

// pendingKeyGrad returns room for the gradients of prepared keys from the queries of their own
// chunks. The gradients are stored in the final gradients of the keys if they fit.
// Wider gradients have no room and are passed on at once.
func (u *Task) pendingKeyGrad() tensor.Mat {
	if u.HasPreparedKeys || u.PreparedWidth <= u.D {
		return u.DK
	}
	return tensor.Mat{}
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

// backChunk sets dq of queries i0 ≤ i < i1 of every head. Query i0+r sees keys up to
// diag+r of the open chunk, whose first key is j0. The gradients of these keys are set
// in db, or in dK if db has no rows, and the gradients of their values are added to dV.
func (s *Scan) backChunk(j0, i0, i1, diag int, db tensor.Mat) {
	u := s.Task
	mark := u.Arena.Mark()
	x := s.OpenGradient()
	for g := range u.Q {
		s.BackQueries(g, i0, i1, diag, &x, nil)
	}
	if db.Rows > 0 {
		for j := range s.Count {
			copy(db.Row(j0 + j)[:u.PreparedWidth], x.Db[j*s.RowStride:])
		}
	} else if s.Count > 0 {
		dk, from := arena.Take[float](u.Arena, (u.PreparedWidth+1)*s.ColumnStride), u.KeySide()
		u.Table.Transpose(dk[s.ColumnStride:], s.ColumnStride, x.Db, s.RowStride, s.Count, u.PreparedWidth)
		s.prepareGrad(u.DK, dk, &from, j0, j0+s.Count)
	}
	s.addValues(j0, x.Dv)
	if x.Age != nil {
		u.AgeKeys(j0, x.Age[:s.Count])
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

// backKeys sets dk of keys j0 ≤ j < j1 and adds to their dV, from the queries
// summed in back and the gradient db of the prepared keys so far.
func (s *Scan) backKeys(back *features.Moments, j0, j1 int, db tensor.Mat) {
	u, n := s.Task, j1-j0
	s.ClearChunk()
	if n <= 0 {
		return
	}
	s.Recede(j0)
	s.AbsorbKeys(j0, j1)
	mark := u.Arena.Mark()
	v, ldv, w := s.agedKeys()
	switch {
	case !back.NonEmpty:
	case u.gradsFromSumsAlone():
		to := &u.DVal
		back.ReadTokens(u.Arena, s.Monomials, s.X, s.ColumnStride, n, false, to.Data[j0*to.Stride:], to.Stride, arena.TakeZeros[float](u.Arena, n))
	default:
		dv, ones := arena.TakeZeros[float](u.Arena, n*s.Moments.Stride), arena.TakeZeros[float](u.Arena, n)
		back.ReadTokens(u.Arena, s.Monomials, s.X, s.ColumnStride, n, true, dv, s.Moments.Stride, ones)
		if s.Decays != nil {
			dv, ones = s.agedValues(dv, ones, w)
			if u.DAge != nil {
				u.AgeKeys(j0, ones)
			}
		}
		s.addValues(j0, dv)
	}
	if db.Rows > 0 {
		db = db.Slice(j0, j1)
	}
	var own []float // what their own chunk's queries gave wide rows
	if u.Causal && db.Rows == 0 {
		own = arena.Take[float](u.Arena, n*u.D)
		for j := range n {
			copy(own[j*u.D:][:u.D], u.DK.Row(j0+j))
		}
	}
	dk, from := s.gradPast(back, db, s.X, n, v, ldv, w), u.KeySide()
	s.prepareGrad(u.DK, dk, &from, j0, j1)
	for j := 0; own != nil && j < n; j++ {
		row := u.DK.Row(j0 + j)
		u.Table.Add(row, row, own[j*u.D:])
	}
	u.Arena.Reset(mark)
}

// addValues adds rows dv to dV of the keys of the open chunk.
func (s *Scan) addValues(j0 int, dv []float) {
	if to := &s.Task.DVal; !s.hasMasked && s.Count > 0 {
		rows := to.Data[j0*to.Stride:]
		s.Task.Table.AddRows(rows, to.Stride, rows, to.Stride, dv, s.Moments.Stride, s.Count, to.Cols)
		return
	}
	for j := range s.Count {
		if s.Valid[j] {
			row := s.Task.DVal.Row(j0 + j)
			s.Task.Table.Add(row, row, dv[j*s.Moments.Stride:])
		}
	}
}

// GiveBack completes the gradients of the keys and values of the open chunk. db and dv have the
// parts from queries of the same chunk; the parts from later queries, which back sums, are added
// to dv in place. Keys j0 ≤ j < j1 of the call are the last ones of the chunk: their rows of the
// task's DK and DVal are set. The gradients of the keys of the chunk before them, which belong
// to earlier calls, go to firstKeys [n, da] and firstValues [n, dv], unless these are nil. own,
// unless nil, gets the parts of later queries through the denominators added, one number a key.
func (s *Scan) GiveBack(back *features.Moments, j0, j1 int, db tensor.Mat, dv, own, firstKeys, firstValues []float) {
	u, n, ld := s.Task, s.Count, s.Moments.Stride
	if n == 0 {
		return
	}
	mark := u.Arena.Mark()
	v, ldv, w := s.agedKeys()
	if back.NonEmpty {
		more, ones := arena.TakeZeros[float](u.Arena, n*ld), arena.TakeZeros[float](u.Arena, n)
		back.ReadTokens(u.Arena, s.Monomials, s.X, s.ColumnStride, n, true, more, ld, ones)
		if s.Decays != nil {
			more, ones = s.agedValues(more, ones, w)
		}
		u.Table.Add(dv[:n*ld], dv[:n*ld], more)
		u.Table.Add(own, own, ones)
	}
	dx := s.gradPast(back, db, s.X, n, v, ldv, w)
	for j, exists := range s.Valid[:n] {
		if !exists {
			clear(dv[j*ld:][:u.Dv])
			for c := 1; c <= u.PreparedWidth; c++ {
				dx[c*s.ColumnStride+j] = 0
			}
		}
	}
	before := n - (j1 - j0)
	if firstKeys != nil && before > 0 {
		u.Table.Transpose(firstKeys, u.PreparedWidth, dx[s.ColumnStride:], s.ColumnStride, u.PreparedWidth, before)
		for j := range before {
			copy(firstValues[j*u.Dv:][:u.Dv], dv[j*ld:])
		}
	}
	if j0 < j1 {
		keys := u.KeySide()
		s.prepareGrad(u.DK, dx[before:], &keys, j0, j1)
		for j := j0; j < j1; j++ {
			copy(u.DVal.Row(j), dv[(before+j-j0)*ld:])
		}
	}
	u.Arena.Reset(mark)
}

// StretchOf returns the keys j0 ≤ j < j1 and queries i0 ≤ i < i1 of the chunk that begins at
// key start of the call. start is negative if the chunk was open before the call. Query i0 sees
// the keys up to number diag of the chunk.
func (s *Scan) StretchOf(start int) (j0, j1, i0, i1, diag int) {
	u, after := s.Task, s.Task.queryOffset()
	within := func(i int) int { return min(max(i, 0), u.N) }
	j0, j1 = max(start, 0), min(start+s.ChunkSize, u.M)
	i0, i1 = within(j0-after), within(j1-after)
	return j0, j1, i0, i1, i0 + after - start
}

// FirstTrailingQuery returns the first query that comes after all keys of the call.
func (u *Geometry) FirstTrailingQuery() int { return min(max(u.M-u.queryOffset(), 0), u.N) }

// queryOffset is the number of keys of the call that come before query 0.
func (u *Geometry) queryOffset() int {
	if u.Causal {
		return u.Offset
	}
	return u.M
}
