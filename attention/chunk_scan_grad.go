package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// outputGrad returns, for queries i0 ≤ i < i1 of head g, the gradients of their
// numerators, dO/den [n, s.past.ld], and of their denominators, -(dO·o)/den.
// Both are zero for a query that sees no key.
func (s scanGrad[T]) outputGrad(g, i0, i1 int) (y, w []T) {
	u, ld := s.u, s.moments.Stride
	y = s.rowsOf(i1 - i0)
	w = arena.Take[T](u.ar, i1-i0)
	mark := u.ar.Mark()
	over := arena.Take[T](u.ar, i1-i0)
	for r, den := range u.den[g][i0:i1] {
		over[r] = u.invertDen(den)
	}
	do := &u.do[g]
	u.t.ScaleRows(y, ld, do.Data[i0*do.Stride:], do.Stride, u.dv, over)
	u.ar.Reset(mark)
	if !u.spec.givesNumerators {
		for r, den := range u.den[g][i0:i1] {
			if den == 0 {
				clear(y[r*ld:][:u.dv])
			}
		}
	}
	o := &u.o[g]
	u.t.RowDots(w, y, ld, o.Data[i0*o.Stride:], o.Stride, u.dv)
	u.t.Scale(w, -1, w)
	return y, w
}

// rowsOf returns n rows of the moments' stride, which are zero beyond Dv.
func (s scanGrad[T]) rowsOf(n int) []T {
	if s.moments.Stride == s.u.dv {
		return arena.Take[T](s.u.ar, n*s.moments.Stride)
	}
	return arena.TakeZeros[T](s.u.ar, n*s.moments.Stride)
}

// gradPast returns the gradient of n tokens with components x, as columns under a row
// to ignore. It is the sum of the rows of dx, if there are any, and of the gradient
// through moments p from rows y and numbers w.
func (s scanGrad[T]) gradPast(p *features.Moments[T], dx tensor.Mat[T], x []T, n int, y []T, ldy int, w []T) []T {
	u := s.u
	dxt := arena.TakeZeros[T](u.ar, (u.da+1)*s.ld)
	if dx.Rows > 0 {
		u.t.Transpose(dxt[s.ld:], s.ld, dx.Data, dx.Stride, n, u.da)
	}
	if p.NonEmpty {
		mark := u.ar.Mark()
		yt := arena.Take[T](u.ar, (u.dv+1)*s.ld)
		u.t.Transpose(yt, s.ld, y, ldy, n, u.dv)
		copy(yt[u.dv*s.ld:][:n], w)
		p.AddGrad(u.ar, s.m, dxt, x, yt, s.ld, n, u.dv)
		u.ar.Reset(mark)
	}
	return dxt
}

// linearBackward takes the sums of keys for the gradient of the queries from
// Forward, or recomputes them, and sums queries, T = Σ φ(q)·[dO/den,
// -(dO·o)/den], for the gradient of the keys and values. In a causal sequence
// each meets only its own side: keys before the query going forward, queries
// after the key going back.
func (u linearForm[T]) linearBackward(m *features.Monomials[T]) {
	if u.workers > 1 {
		u.linearBackwardTogether()
		return
	}
	s := u.scratchScan(m)
	back := u.moments(m, u.takeScratch)
	var db tensor.Mat[T]
	if u.causal {
		db = u.pendingKeyGrad()
	}
	u.clearValues(0, u.m)
	if !u.causal {
		if n := m.Count * s.moments.Stride; u.m > 0 && u.savedMoments != nil && len(*u.savedMoments) == n+m.Count {
			s.moments.S, s.moments.Z, s.moments.NonEmpty = (*u.savedMoments)[:n], (*u.savedMoments)[n:], true
		} else {
			s.absorbAllKeys()
		}
		for i := 0; i < u.n; i += s.c {
			for g := range u.q {
				s.grad().backQueries(g, i, min(i+s.c, u.n), 0, nil, &back)
			}
		}
		for j := 0; j < u.m; j += s.c {
			s.grad().backKeys(&back, j, min(j+s.c, u.m), db)
		}
		return
	}
	for g := range u.q {
		for i := range min(-u.offset, u.n) {
			clear(u.dq[g].Row(i))
		}
	}
	for pos := 0; pos < u.positionCount(); pos += s.c {
		j0, j1, i0, i1 := u.chunkBounds(pos, s.c)
		s.absorbKeys(j0, j1)
		s.grad().backChunk(j0, i0, i1, i0+u.offset-pos, db)
		if pos+s.c < u.positionCount() {
			s.closeChunk()
		}
	}
	for pos := (u.positionCount() - 1) / s.c * s.c; pos >= 0; pos -= s.c {
		j0, j1, i0, i1 := u.chunkBounds(pos, s.c)
		s.grad().backKeys(&back, j0, j1, db)
		if pos > 0 {
			if s.ages != nil {
				back.Fade(u.t, s.decay().chunkDecay())
			}
			for g := range u.q {
				s.grad().sumQueries(&back, g, i0, i1, i0+u.offset-pos)
			}
		}
	}
}

// pendingKeyGrad returns room for the gradients of prepared keys from the queries of their own
// chunks. The gradients are stored in the final gradients of the keys if they fit.
// Wider gradients have no room and are passed on at once.
func (u linearForm[T]) pendingKeyGrad() tensor.Mat[T] {
	if u.isPrepared || u.da <= u.d {
		return u.dk
	}
	return tensor.Mat[T]{}
}

// gradsFromSumsAlone reports that dV is what the sums of queries give, in whole vectors.
func (u linearForm[T]) gradsFromSumsAlone() bool {
	return !u.causal && u.n > 0 && u.mask == nil && len(u.logG.Data) == 0 && u.dv == kernel.Pad(u.dv)
}

// clearValues sets dV of keys j0 ≤ j < j1 to 0, where something is added to it.
func (u linearForm[T]) clearValues(j0, j1 int) {
	if u.gradsFromSumsAlone() {
		return
	}
	for j := j0; j < j1; j++ {
		clear(u.dval.Row(j))
	}
}

// backChunk sets dq of queries i0 ≤ i < i1 of every head. Query i0+r sees keys up to
// diag+r of the open chunk, whose first key is j0. The gradients of these keys are set
// in db, or in dK if db has no rows, and the gradients of their values are added to dV.
func (s scanGrad[T]) backChunk(j0, i0, i1, diag int, db tensor.Mat[T]) {
	u := s.u
	mark := u.ar.Mark()
	x := s.openGradient()
	for g := range u.q {
		s.backQueries(g, i0, i1, diag, &x, nil)
	}
	if db.Rows > 0 {
		for j := range s.n {
			copy(db.Row(j0 + j)[:u.da], x.db[j*s.lda:])
		}
	} else if s.n > 0 {
		dk, from := arena.Take[T](u.ar, (u.da+1)*s.ld), u.rows().keySide()
		u.t.Transpose(dk[s.ld:], s.ld, x.db, s.lda, s.n, u.da)
		s.prepareGrad(u.dk, dk, &from, j0, j0+s.n)
	}
	s.addValues(j0, x.dv)
	if x.age != nil {
		u.decay().ageKeys(j0, x.age[:s.n])
	}
	u.ar.Reset(mark)
}

// openGradient returns what gathers the gradients of the open chunk.
func (s scanGrad[T]) openGradient() gradient[T] {
	u := s.u
	x := gradient[T]{ldo: s.moments.Stride}
	if s.n > 0 {
		x.db = arena.TakeZeros[T](u.ar, s.n*s.lda)
		x.b = arena.TakeZeros[T](u.ar, s.n*s.lda)
		u.t.Transpose(x.b, s.lda, s.x[s.ld:], s.ld, u.da, s.n)
		x.vt = arena.Take[T](u.ar, u.dv*s.ld)
		u.t.Transpose(x.vt, s.ld, s.v, s.ldv, s.n, u.dv)
		x.dv = arena.TakeZeros[T](u.ar, s.n*s.moments.Stride)
		if u.dage != nil {
			x.age = arena.TakeZeros[T](u.ar, kernel.Pad(s.n))
		}
	}
	return x
}

// backQueries sets dq of queries i0 ≤ i < i1 of head g, and adds what they give
// the open chunk to x, and the queries themselves to back unless it is nil.
func (s scanGrad[T]) backQueries(g, i0, i1, diag int, x *gradient[T], back *features.Moments[T]) {
	u, n := s.u, i1-i0
	if n <= 0 {
		return
	}
	mark := u.ar.Mark()
	q := s.prepareQueries(g, i0, i1)
	y, w := s.outputGrad(g, i0, i1)
	if u.dage != nil {
		u.decay().ageQueries(i0, w, func(i int) float64 { return s.ages.pendingAfter(s.decay().place(diag + i - i0)) })
	}
	u.spec.maskDenGrad(w, u.den[g][i0:i1])
	var da tensor.Mat[T]
	if s.n > 0 {
		da = tensor.Mat[T]{Data: arena.TakeZeros[T](u.ar, n*s.lda), Rows: n, Cols: u.da, Stride: s.lda}
		x.do, x.w, x.da = y, w, da.Data
		b := s.openBlock(s.transposeColumns(q, n), n, diag)
		u.direct().blockGrad(&b, x)
	}
	ya, wa := s.decay().agedQueries(y, w, n, diag)
	dq, from := s.gradPast(&s.moments, da, q, n, ya, s.moments.Stride, wa), u.rows().querySide(g)
	u.dscale[g] += s.prepareGrad(u.dq[g], dq, &from, i0, i1)
	if back != nil {
		back.AddTokens(u.ar, s.m, q, s.ld, n, y, s.moments.Stride, w)
	}
	u.ar.Reset(mark)
}

// sumQueries adds queries i0 ≤ i < i1 of head g to back. Query i0+r sees keys up to
// diag+r of the open chunk.
func (s scanGrad[T]) sumQueries(back *features.Moments[T], g, i0, i1, diag int) {
	u, n := s.u, i1-i0
	if n <= 0 {
		return
	}
	mark := u.ar.Mark()
	y, w := s.outputGrad(g, i0, i1)
	u.spec.maskDenGrad(w, u.den[g][i0:i1])
	y, w = s.decay().agedQueries(y, w, n, diag)
	back.AddTokens(u.ar, s.m, s.prepareQueries(g, i0, i1), s.ld, n, y, s.moments.Stride, w)
	u.ar.Reset(mark)
}

// backKeys sets dk of keys j0 ≤ j < j1 and adds to their dV, from the queries
// summed in back and the gradient db of the prepared keys so far.
func (s scanGrad[T]) backKeys(back *features.Moments[T], j0, j1 int, db tensor.Mat[T]) {
	u, n := s.u, j1-j0
	s.clearChunk()
	if n <= 0 {
		return
	}
	s.decay().recede(j0)
	s.absorbKeys(j0, j1)
	mark := u.ar.Mark()
	v, ldv, w := s.decay().agedKeys()
	switch {
	case !back.NonEmpty:
	case u.linear().gradsFromSumsAlone():
		to := &u.dval
		back.ReadTokens(u.ar, s.m, s.x, s.ld, n, false, to.Data[j0*to.Stride:], to.Stride, arena.TakeZeros[T](u.ar, n))
	default:
		dv, ones := arena.TakeZeros[T](u.ar, n*s.moments.Stride), arena.TakeZeros[T](u.ar, n)
		back.ReadTokens(u.ar, s.m, s.x, s.ld, n, true, dv, s.moments.Stride, ones)
		if s.ages != nil {
			dv, ones = s.decay().agedValues(dv, ones, w)
			if u.dage != nil {
				u.decay().ageKeys(j0, ones)
			}
		}
		s.addValues(j0, dv)
	}
	if db.Rows > 0 {
		db = db.Slice(j0, j1)
	}
	var own []T // what their own chunk's queries gave wide rows
	if u.causal && db.Rows == 0 {
		own = arena.Take[T](u.ar, n*u.d)
		for j := range n {
			copy(own[j*u.d:][:u.d], u.dk.Row(j0+j))
		}
	}
	dk, from := s.gradPast(back, db, s.x, n, v, ldv, w), u.rows().keySide()
	s.prepareGrad(u.dk, dk, &from, j0, j1)
	for j := 0; own != nil && j < n; j++ {
		row := u.dk.Row(j0 + j)
		u.t.Add(row, row, own[j*u.d:])
	}
	u.ar.Reset(mark)
}

// addValues adds rows dv to dV of the keys of the open chunk.
func (s scanGrad[T]) addValues(j0 int, dv []T) {
	if to := &s.u.dval; !s.hasMasked && s.n > 0 {
		rows := to.Data[j0*to.Stride:]
		s.u.t.AddRows(rows, to.Stride, rows, to.Stride, dv, s.moments.Stride, s.n, to.Cols)
		return
	}
	for j := range s.n {
		if s.valid[j] {
			row := s.u.dval.Row(j0 + j)
			s.u.t.Add(row, row, dv[j*s.moments.Stride:])
		}
	}
}

// giveBack sets dk and dV of the keys of the open chunk; the last of them are keys j0 ≤
// j < j1 of the call. It adds the gradients db and dv from their own chunk to the
// gradients from the summed moments of queries that see them. Gradients of keys before
// the call go to firstKeys [n, da] and firstValues [n, dv], unless these are nil. The gradients of the ones under the values
// are added to own, unless own is nil.
func (s *chunkScan[T]) giveBack(back *features.Moments[T], j0, j1 int, db tensor.Mat[T], dv, own, firstKeys, firstValues []T) {
	u, n, ld := s.u, s.n, s.moments.Stride
	if n == 0 {
		return
	}
	mark := u.ar.Mark()
	v, ldv, w := s.decay().agedKeys()
	if back.NonEmpty {
		more, ones := arena.TakeZeros[T](u.ar, n*ld), arena.TakeZeros[T](u.ar, n)
		back.ReadTokens(u.ar, s.m, s.x, s.ld, n, true, more, ld, ones)
		if s.ages != nil {
			more, ones = s.decay().agedValues(more, ones, w)
		}
		u.t.Add(dv[:n*ld], dv[:n*ld], more)
		u.t.Add(own, own, ones)
	}
	dx := s.grad().gradPast(back, db, s.x, n, v, ldv, w)
	for j, exists := range s.valid[:n] {
		if !exists {
			clear(dv[j*ld:][:u.dv])
			for c := 1; c <= u.da; c++ {
				dx[c*s.ld+j] = 0
			}
		}
	}
	before := n - (j1 - j0)
	if firstKeys != nil && before > 0 {
		u.t.Transpose(firstKeys, u.da, dx[s.ld:], s.ld, u.da, before)
		for j := range before {
			copy(firstValues[j*u.dv:][:u.dv], dv[j*ld:])
		}
	}
	if j0 < j1 {
		keys := u.rows().keySide()
		s.prepareGrad(u.dk, dx[before:], &keys, j0, j1)
		for j := j0; j < j1; j++ {
			copy(u.dval.Row(j), dv[(before+j-j0)*ld:])
		}
	}
	u.ar.Reset(mark)
}

// stretchOf returns keys and queries of the chunk that begins at key start of
// the call, which is negative where the chunk was open before it: query i0 sees
// keys up to diag of the chunk.
func (s *chunkScan[T]) stretchOf(start int) (j0, j1, i0, i1, diag int) {
	u, after := s.u, s.u.queryOffset()
	within := func(i int) int { return min(max(i, 0), u.n) }
	j0, j1 = max(start, 0), min(start+s.c, u.m)
	i0, i1 = within(j0-after), within(j1-after)
	return j0, j1, i0, i1, i0 + after - start
}

// firstTrailingQuery returns the first query that comes after all keys.
func (u *headTask[T]) firstTrailingQuery() int { return min(max(u.m-u.queryOffset(), 0), u.n) }

// queryOffset is the number of keys of the call that come before query 0.
func (u *headTask[T]) queryOffset() int {
	if u.causal {
		return u.offset
	}
	return u.m
}
