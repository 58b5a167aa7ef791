package mechanism

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/tensor"
)

// multipoleGrads holds the gradients of a head. Backward visits the blocks from the last to the
// first, and sums accumulates the gradients of the sums of each cell. A key gets the part that
// accumulates while it is far: when it becomes far, its gradient is decreased by the gradient
// through sums at that moment, and when it becomes near, or at the end, increased by it.
type multipoleGrads struct {
	*headwise.Grads
	sums []float // [cells][width]
	// With tilt. An exponent s r·(k-C) with gradient y gives r the gradient s·y·(k-C). tilts [cells][D]
	// sums s·y·(k-k₀), where k₀ is the first key of the cell, and balances [cells] sums y, for the part
	// s·y·(k₀-C) that balanceTilts adds. Over a whole call balances are 0 unless an exponent is bounded.
	tilts, balances []float
	bounded         bool

	// Of the current block:
	means   []float // [cells][D] gradient of c̄
	moments []float // [cells][features][Dv]
	squares []float // [cells][pairs]
	masses  []float // with tilt: [cells] of the sums of weights
	powers  []float // with tilt: [cells] of the exponents of far weights, summed over queries
}

// Backward computes the exact gradient of Forward.
func (x *multipoleAttention) Backward(h *headwise.Head, g *headwise.Grads) {
	g.Clear()
	defer restorePadding(h, dropPadding(h))
	n := h.Q.Rows
	length := x.block
	block, end := floorDiv(h.Shift+n-1, length), floorDiv(h.Shift, length)
	p := x.open(h, h.Saved[n:], block)
	p.backward(g, block, end)
	if p.grads.bounded {
		p.balanceTilts()
	}
	for n, row := range p.numbered {
		to := x.headRows(g.Params[0], h.KeyHead, h.KeyHeads).Row(int(row))
		h.Table.Add(to, to, p.grads.tilts[n*len(to):][:len(to)])
	}
}

// backward adds to g the gradients through the queries of the blocks from block down to end.
// After it p.grads.sums holds the gradient of the sums with which the pass began.
func (p *multipolePass) backward(g *headwise.Grads, block, end int) {
	l, ar := &p.sums.momentLayout, p.h.Scratch
	p.grads = multipoleGrads{Grads: g, sums: arena.TakeZeros[float](ar, p.count*l.width),
		means: arena.Take[float](ar, p.count*l.d), moments: arena.Take[float](ar, p.count*l.features*l.dv), squares: arena.Take[float](ar, p.count*l.pairs)}
	if l.mass > 0 {
		p.grads.tilts, p.grads.balances = arena.TakeZeros[float](ar, p.count*l.d), arena.TakeZeros[float](ar, p.count)
		p.grads.masses, p.grads.powers = arena.Take[float](ar, p.count), arena.Take[float](ar, p.count)
	}
	for ; block >= end; block-- {
		p.moveTo(block)
		p.refresh()
		p.backBlock(block)
	}
	for j := p.first; j < p.last; j++ {
		if p.isFar(j, p.lo, p.hi) {
			p.pull(j, 1)
		}
	}
}

// backBlock adds the gradients through the queries of a block.
func (p *multipolePass) backBlock(block int) {
	h, g := p.h, &p.grads
	clear(g.means)
	clear(g.moments)
	clear(g.squares)
	clear(g.masses)
	clear(g.powers)
	for i0, i1 := p.queriesOf(block); i0 < i1; i0 += multipoleRows {
		mark := h.Scratch.Mark()
		rows := min(multipoleRows, i1-i0)
		p.backTile(p.scores(i0, i0+rows))
		h.Scratch.Reset(mark)
	}
	for c := range p.used {
		if p.sums.counts[c] > 0 {
			p.addCell(c)
		}
	}
}

// addNearGrads adds the gradients through the weights w of queries from i0 on and keys from j0 on to the
// gradients of these keys and values, and to dq [n,D], which it sets if acc is false. q holds the scaled
// queries, delta the products of dout and the outputs.
func addNearGrads(h *headwise.Head, g *headwise.Grads, dq, w, q, dout tensor.Mat, delta []float, i0, j0 int, acc bool) {
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	j1 := j0 + w.Cols
	ds := h.TakeScratch(w.Rows, w.Cols)
	h.Multiply(ds, dout, h.V.Slice(j0, j1), false, true, false)
	for r := range w.Rows {
		row := ds.Row(r)
		for j, y := range w.Row(r) {
			row[j] = y * (row[j] - delta[r])
		}
		if h.Causal { // values of later keys may not be finite
			clear(row[seenOf(h, i0+r, j0, len(row)):])
		}
	}
	addSeen(h, dq, ds, h.K, i0, j0, acc)
	h.Multiply(g.DK.Slice(j0, j1), ds, q, true, false, true)
	h.Multiply(g.DV.Slice(j0, j1), w, dout, true, false, true)
}

// backTile adds the gradients through a tile of scores, which it overwrites.
func (p *multipolePass) backTile(x queryTile) {
	h, t, g := p.h, p.h.Table, &p.grads
	dout := g.DOut.Slice(x.i0, x.i0+x.n)
	delta := arena.Take[float](h.Scratch, x.n)
	for r := range x.n {
		near, far, lse := x.near.Row(r), x.far.Row(r), h.Saved[x.i0+r]
		delta[r] = t.Dot(dout.Row(r), h.Out.Row(x.i0+r))
		t.Exp(near, near, lse)
		t.Exp(far, far, lse)
	}
	dq, acc := h.TakeScratch(x.n, h.Q.Cols), false // of scaled queries
	p.eachSegment(&x.near, func(w tensor.Mat, j0, j1 int) {
		addNearGrads(h, g.Grads, dq, w, x.q, dout, delta, x.i0, j0, acc)
		acc = true
	})
	if !acc {
		clear(dq.Data)
	}
	if p.used > 0 {
		p.backFar(&x, dout, dq, delta)
	}
	for r := range x.n {
		t.Axpy(g.DQ.Row(x.i0+r), p.scale, dq.Row(r))
	}
}

// backFar adds the gradients through the far weights of a tile to dq, the gradient of scaled
// queries, and to the gradients of means, moments and squares.
func (p *multipolePass) backFar(x *queryTile, dout, dq tensor.Mat, delta []float) {
	h, t, g := p.h, p.h.Table, &p.grads
	da := h.TakeScratch(x.n, p.used) // gradient of far weights, then of their exponents
	var dpsi tensor.Mat
	if p.order > 0 {
		dpsi = h.TakeScratch(x.n, p.tile.features)
		clear(dpsi.Data)
	}
	p.eachMomentGroup(p.tile.moments, func(c0, c1 int, moments tensor.Mat) {
		mark := h.Scratch.Mark()
		defer h.Scratch.Reset(mark)
		l := &p.tile.momentLayout
		grads := matrixOf(g.moments[c0*l.features*l.dv:], moments.Rows, l.dv)
		if p.order == 0 {
			h.Multiply(entry.SliceColumns(da, c0, c1), dout, moments, false, true, false)
			h.Multiply(grads, entry.SliceColumns(x.far, c0, c1), dout, true, false, true)
			return
		}
		weights, products := h.TakeScratch(x.n, moments.Rows), h.TakeScratch(x.n, moments.Rows)
		x.expandWeights(t, weights, c0, c1)
		h.Multiply(grads, weights, dout, true, false, true)
		h.Multiply(products, dout, moments, false, true, false)
		for r := range x.n {
			psi, row := x.psi.Row(r), products.Row(r)
			for c := c0; c < c1; c++ {
				da.Row(r)[c] = t.Dot(psi, row[:len(psi)])
				t.Axpy(dpsi.Row(r), x.far.Row(r)[c], row[:len(psi)])
				row = row[len(psi):]
			}
		}
	})
	for r := range x.n {
		t.Axpy(da.Row(r), -delta[r], p.tile.counts[:p.used])
		if p.order > 1 {
			t.Axpy(da.Row(r), -delta[r], x.quad.Row(r))
		}
	}
	if p.order > 1 {
		d := h.Q.Cols
		weights := h.TakeScratch(x.n, p.used)
		for r := range x.n {
			t.Scale(weights.Row(r), -delta[r], x.far.Row(r))
		}
		h.Multiply(entry.SliceColumns(dpsi, 1+d, dpsi.Cols), weights, p.squareRows(), false, false, true)
		h.Multiply(matrixOf(g.squares, p.used, p.tile.pairs), weights, entry.SliceColumns(x.psi, 1+d, x.psi.Cols), true, false, true)
	}
	for r := range x.n {
		t.Mul(da.Row(r), da.Row(r), x.far.Row(r))
	}
	for r := 0; r < x.n && g.masses != nil; r++ {
		t.Axpy(g.masses[:p.used], -delta[r], x.far.Row(r))
		t.Add(g.powers[:p.used], g.powers[:p.used], da.Row(r))
	}
	h.Multiply(dq, da, p.meanRows(), false, false, true)
	h.Multiply(matrixOf(g.means, p.used, h.Q.Cols), da, x.q, true, false, true)
	for r := range x.n {
		if p.order > 0 {
			addQueryFeaturesGrad(&p.tile.momentLayout, dq.Row(r), dpsi.Row(r), x.q.Row(r))
		}
	}
}

// addCell adds the gradients of the mean, moments and squares of cell c in the current block to
// the gradients of its sums.
func (p *multipolePass) addCell(c int) {
	s, t, g := &p.sums, p.h.Table, &p.grads
	l := &s.momentLayout
	d, dv := l.d, l.dv
	to, n := s.cell(g.sums, c), float(s.massOf(c))
	dmean, dmoments := g.means[c*d:][:d], g.moments[c*l.features*dv:][:l.features*dv]
	if l.mass > 0 {
		mean, tilt, dtilt := p.tile.means[c*d:][:d], s.tilts.of(c, d), g.tilts[c*d:][:d]
		w := s.tilts.back(c, mean)
		for a := 0; a < d && l.order > 0; a++ { // Σv - s r·Σ (k-c̄)vᵀ
			dtilt[a] -= p.scale * t.Dot(dmoments[:dv], p.tile.momentsOf(c, 1+a)[:dv])
			t.Axpy(dmoments[(1+a)*dv:][:dv], -tilt[a], dmoments[:dv])
		}
		t.Scale(dmoments, w, dmoments)
		if math.Abs(s.tilts.exponent(c, mean)) < maxTilt {
			t.Axpy(dmean, -g.powers[c], tilt)
			for a := range d {
				at := c*l.width + a
				dtilt[a] -= p.scale * g.powers[c] * ((s.hi[at] + s.lo[at]) / n)
			}
			g.balances[c] -= g.powers[c]
		} else {
			g.bounded = true
		}
		to[l.mass] += w * g.masses[c]
	}
	t.Add(to[d:][:dv], to[d:][:dv], dmoments[:dv])
	if l.order > 0 {
		p.addMoments(c, dmean, dmoments[dv:])
	}
	t.Axpy(to[:d], 1/n, dmean)
	for a := 0; a < d && l.mass > 0; a++ { // the mean is Σr over Σ1
		at := c*l.width + a
		to[l.mass] -= dmean[a] / n * ((s.hi[at] + s.lo[at]) / n)
	}
}

// addMoments is addCell for moments of orders above 0. It adds to dmean the gradient through
// the dependence of moments on the mean.
func (p *multipolePass) addMoments(c int, dmean, dmoments []float) {
	s, t, g := &p.sums, p.h.Table, &p.grads
	l := &s.momentLayout
	d, dv, n := l.d, l.dv, float(s.massOf(c))
	mark := p.h.Scratch.Mark()
	defer p.h.Scratch.Reset(mark)
	to := s.cell(g.sums, c)
	sums, delta := arena.Take[float](p.h.Scratch, l.width), arena.Take[float](p.h.Scratch, d)
	t.Add(sums, s.cell(s.hi, c), s.cell(s.lo, c))
	t.Scale(delta, 1/n, sums[:d])
	values, dvalues := sums[d:][:dv], to[d:][:dv]
	dipole, ddipole := sums[l.dipole:][:d*dv], to[l.dipole:][:d*dv]
	for a := range d { // Σ r_a v - δ_a Σ v
		row := dmoments[a*dv:][:dv]
		t.Add(ddipole[a*dv:][:dv], ddipole[a*dv:][:dv], row)
		t.Axpy(dvalues, -delta[a], row)
		dmean[a] -= t.Dot(row, values)
	}
	if l.order == 1 {
		return
	}
	dsquares, f := g.squares[c*l.pairs:][:l.pairs], 0
	for a := range d {
		for b := a; b < d; b++ {
			// Σ r_a r_b - n δ_a δ_b
			y := dsquares[f]
			to[l.quad+f] += y
			dmean[a] -= y * n * delta[b]
			dmean[b] -= y * n * delta[a]
			// Σ r_a r_b v - δ_a Σ r_b v - δ_b Σ r_a v + δ_a δ_b Σ v
			row := dmoments[(d+f)*dv:][:dv]
			square := to[l.square+f*dv:][:dv]
			t.Add(square, square, row)
			t.Axpy(ddipole[b*dv:][:dv], -delta[a], row)
			t.Axpy(ddipole[a*dv:][:dv], -delta[b], row)
			t.Axpy(dvalues, delta[a]*delta[b], row)
			along := t.Dot(row, values)
			dmean[a] += delta[b]*along - t.Dot(row, dipole[b*dv:][:dv])
			dmean[b] += delta[a]*along - t.Dot(row, dipole[a*dv:][:dv])
			f++
		}
	}
}

// pull adds the gradient through the sums of its cell, times sign, to the gradients of key j and
// its value. In Forward it does nothing.
func (p *multipolePass) pull(j int, sign float) {
	c := int(p.cells[j])
	if c < 0 || p.grads.Grads == nil {
		return
	}
	s, t, g := &p.sums, p.h.Table, &p.grads
	l := &s.momentLayout
	d, dv := l.d, l.dv
	from, dk, dvalue := s.cell(g.sums, c), g.DK.Row(j), g.DV.Row(j)
	if l.mass > 0 {
		sign *= p.pullTilt(j, c, sign)
	}
	t.Axpy(dk, sign, from[:d])
	t.Axpy(dvalue, sign, from[d:][:dv])
	if l.order == 0 {
		return
	}
	r, v := p.room[:d], p.h.V.Row(j)
	s.setDistance(t, r, c, p.h.K.Row(j))
	for a := range d {
		row := from[l.dipole+a*dv:][:dv]
		t.Axpy(dvalue, sign*r[a], row)
		dk[a] += sign * t.Dot(row, v)
	}
	if l.order == 1 {
		return
	}
	f := 0
	for a := range d {
		for b := a; b < d; b++ {
			row := from[l.square+f*dv:][:dv]
			t.Axpy(dvalue, sign*r[a]*r[b], row)
			along := sign * (from[l.quad+f] + t.Dot(row, v))
			dk[a] += along * r[b]
			dk[b] += along * r[a]
			f++
		}
	}
}

// pullTilt adds the gradient through the weight of key j in the sums of cell c, times sign, to the
// gradients of the key and of the cell's tilt. It returns the weight.
func (p *multipolePass) pullTilt(j, c int, sign float) float {
	s, t, g := &p.sums, p.h.Table, &p.grads
	l := &s.momentLayout
	k, v, r, from := p.h.K.Row(j), p.h.V.Row(j), p.room[:l.d], s.cell(g.sums, c)
	x := s.tilts.exponent(c, k)
	w := float(math.Exp(boundTilt(x)))
	if math.Abs(x) >= maxTilt {
		g.bounded = true
		return w
	}
	s.setDistance(t, r, c, k)
	sum := from[l.mass] + t.Dot(from[:l.d], r) + t.Dot(from[l.d:][:l.dv], v)
	for a := 0; a < l.d && l.order > 0; a++ {
		sum += r[a] * t.Dot(from[l.dipole+a*l.dv:][:l.dv], v)
	}
	by := sign * w * sum
	t.Axpy(g.DK.Row(j), by, s.tilts.of(c, l.d))
	t.Axpy(g.tilts[c*l.d:][:l.d], p.scale*by, r)
	g.balances[c] += by
	return w
}

// balanceTilts adds to the gradients of tilts the terms with the distances of first keys from centres.
func (p *multipolePass) balanceTilts() {
	s, g := &p.sums, &p.grads
	for c, y := range g.balances {
		if y == 0 { // perhaps a cell without keys
			continue
		}
		dtilt, centre := g.tilts[c*s.d:][:s.d], p.centre(c)
		for a, x := range s.reference(c) {
			dtilt[a] += p.scale * y * (x - centre[a])
		}
	}
}

// centre returns the centre of cell c.
func (p *multipolePass) centre(c int) []float {
	if p.numbered != nil {
		c = int(p.numbered[c])
	}
	return p.book(p.h.KeyHead, p.h.KeyHeads).Row(c)
}
