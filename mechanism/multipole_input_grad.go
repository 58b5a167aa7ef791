package mechanism

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/tensor"
)

// blockGrads holds gradients of a block's means, halves of variances, sums, dipoles and spreads.
type blockGrads struct {
	means, halves, sums, dipoles tensor.Mat
	spreads                      []float
}

// inputGrads holds the gradients of a head.
type inputGrads struct {
	*headwise.Grads
	delta []float // [N] dout·out

	// Of the present far field: rows of clusters, and of groups.
	means, halves, values, dipoles tensor.Mat
}

// newBlockGrads returns zero gradients for block b.
func (p *inputPass) newBlockGrads(b *keyBlock) blockGrads {
	return blockGrads{
		means: takeZeroRows(p.memory, b.means.Rows, b.means.Cols), halves: takeZeroRows(p.memory, b.halves.Rows, b.halves.Cols),
		sums: takeZeroRows(p.memory, b.sums.Rows, b.sums.Cols), dipoles: takeZeroRows(p.memory, (len(b.groups)-1)*b.means.Cols, b.sums.Cols),
		spreads: arena.TakeZeros[float](p.memory, len(b.spreads)),
	}
}

// backward adds to g, which is 0, the exact gradient of forward, with clusters and choices as constants.
func (m *inputMultipole) backward(h *headwise.Head, g *headwise.Grads) {
	p := m.passes.get()
	defer m.passes.put(p)
	p.begin(m.x, h, h.Scratch)
	p.grads = inputGrads{Grads: g, delta: arena.Take[float](h.Scratch, h.Q.Rows)}
	p.eachSpan(p.backSpan, p.backCluster)
	p.grads = inputGrads{}
}

// backSpan adds the gradients through queries i0 ≤ i < i1, which have the same blocks before them.
func (p *inputPass) backSpan(i0, i1 int) {
	g, f, d := &p.grads, &p.far, p.h.Q.Cols
	g.means = takePadded(p.memory, f.clusters, d)
	g.values, g.dipoles = takePadded(p.memory, f.clusters, f.dv+f.groups), takePadded(p.memory, f.groups*d, f.dv)
	g.halves = takePadded(p.memory, f.clusters, d)
	for ; i0 < i1; i0 += multipoleRows {
		rows := min(multipoleRows, i1-i0)
		if !p.fits(rows) {
			p.eachChosen(p.backCluster)
		}
		mark := p.h.Scratch.Mark()
		p.backTile(p.scores(i0, i0+rows))
		p.h.Scratch.Reset(mark)
	}
	t := p.h.Table
	commons := arena.TakeZeros[float](p.memory, f.groups) // Σ share·gradient of the share
	p.eachGroup(func(b *keyBlock, k, c0, to int) {
		for c := c0 + int(b.groups[k]); c < c0+int(b.groups[k+1]); c++ {
			commons[to] += g.values.Row(c)[f.dv+to] * f.values.Row(c)[f.dv+to]
		}
	})
	p.eachGroup(func(b *keyBlock, k, c0, to int) {
		ratio := b.unit / f.unit
		for c := int(b.groups[k]); c < int(b.groups[k+1]); c++ {
			row := g.values.Row(c0 + c)
			t.Add(b.grads.means.Row(c), b.grads.means.Row(c), g.means.Row(c0+c))
			t.Add(b.grads.sums.Row(c), b.grads.sums.Row(c), row)
			t.Axpy(b.grads.halves.Row(c), ratio*ratio, g.halves.Row(c0+c))
			if f.totals[to] >= leastSpread {
				b.grads.spreads[c] += ratio * ratio * ((row[f.dv+to] - commons[to]) / f.totals[to])
			}
		}
		for a := range d {
			t.Axpy(b.grads.dipoles.Row(k*d+a), ratio, g.dipoles.Row(to*d+a))
		}
	})
}

// backTile adds the gradients through a tile of scores, which it overwrites.
func (p *inputPass) backTile(x inputTile) {
	h, t, g := p.h, p.h.Table, &p.grads
	dout := g.DOut.Slice(x.i0, x.i0+x.n)
	delta, fades := g.delta[x.i0:x.i0+x.n], arena.Take[float](h.Scratch, x.n)
	tops := arena.Take[float](h.Scratch, x.n)
	p.weigh(&x, tops, fades) // the same choices as in Forward
	for r := range x.n {
		delta[r] = t.Dot(dout.Row(r), h.Out.Row(x.i0+r))
		fades[r] = float(math.Exp(float64(tops[r] - h.Saved[x.i0+r])))
		t.Scale(x.near.Row(r), fades[r], x.near.Row(r))
	}
	dq, acc := h.TakeScratch(x.n, h.Q.Cols), false // of scaled queries
	p.eachSegment(&x, func(w tensor.Mat, j0, j1 int) {
		addNearGrads(h, g.Grads, dq, w, x.q, dout, delta, x.i0, j0, acc)
		acc = true
	})
	if !acc {
		clear(dq.Data)
	}
	if p.far.clusters > 0 {
		p.backFar(&x, dout, dq, fades)
	}
	for r := range x.n {
		t.Axpy(g.DQ.Row(x.i0+r), p.scale, dq.Row(r))
	}
}

// backFar adds the gradients through the far weights of a tile, times fades, to dq, the gradient of
// scaled queries, and to the gradients of the far field.
func (p *inputPass) backFar(x *inputTile, dout, dq tensor.Mat, fades []float) {
	h, t, g, f := p.h, p.h.Table, &p.grads, &p.far
	d, dv := h.Q.Cols, h.V.Cols
	_, weights := p.farSums(x) // the same dipoles as in Forward
	kept := h.TakeScratch(x.n, f.groups)
	for r := range x.n {
		for k, weight := range weights.Row(r) {
			if kept.Row(r)[k] = 1; weight == 0 {
				kept.Row(r)[k] = 0
			}
		}
		t.Scale(weights.Row(r), fades[r], weights.Row(r))
		t.Scale(x.far.Row(r), fades[r], x.far.Row(r))
		t.Scale(x.exps.Row(r), fades[r], x.exps.Row(r))
	}
	features := p.groupFeatures(x, weights)
	h.Multiply(g.dipoles, features, dout, true, false, true)
	// Products of dipoles with dout [n,groups·D], of these with steps beside dout [n,Dv+groups].
	products, beside := h.TakeScratch(x.n, f.groups*d), h.TakeScratch(x.n, dv+f.groups)
	h.Multiply(products, dout, f.dipoles, false, true, false)
	for r := range x.n {
		copy(beside.Row(r), dout.Row(r))
		for k := range f.groups {
			product := products.Row(r)[k*d:][:d]
			beside.Row(r)[dv+k] = t.Dot(product, x.steps.Row(r)) * kept.Row(r)[k]
			t.Axpy(dq.Row(r), f.unit*weights.Row(r)[k], product)
		}
	}
	h.Multiply(g.values, x.far, beside, true, false, true)
	da := h.TakeScratch(x.n, f.clusters)
	h.Multiply(da, beside, f.values, false, true, false)
	for r := range x.n { // gradients of scores, and of h
		t.Axpy(da.Row(r), -g.delta[x.i0+r], f.counts)
		t.Mul(x.far.Row(r), x.far.Row(r), da.Row(r))
		t.Mul(x.exps.Row(r), x.exps.Row(r), da.Row(r))
	}
	h.Multiply(g.means, x.far, x.q, true, false, true)
	rows := tensor.Mat{Data: f.means, Rows: d, Cols: f.clusters, Stride: f.stride}
	h.Multiply(dq, x.far, rows, false, true, true)
	h.Multiply(g.halves, x.exps, x.squares, true, false, true)
	rows.Data = f.halves
	dsquares := h.TakeScratch(x.n, d)
	h.Multiply(dsquares, x.exps, rows, false, true, false)
	for r := range x.n {
		row, step := dsquares.Row(r), x.steps.Row(r)
		for a := range row {
			row[a] *= 2 * step[a]
		}
		t.Axpy(dq.Row(r), f.unit, row)
	}
}

// pullBlock adds the gradients of a block to those of its keys and values.
func (p *inputPass) pullBlock(b *keyBlock) {
	h, t, g := p.h, p.h.Table, &p.grads
	d, dv := h.K.Cols, h.V.Cols
	for k := range len(b.groups) - 1 {
		mark := h.Scratch.Mark()
		c0, c1 := int(b.groups[k]), int(b.groups[k+1])
		i0, i1 := int(b.begin[c0]), int(b.begin[c1])
		n := i1 - i0
		distances, values := h.TakeScratch(n, d), h.TakeScratch(n, dv) // k - c̄ in units, v - v̄
		for c := c0; c < c1; c++ {
			for i := int(b.begin[c]); i < int(b.begin[c+1]); i++ {
				row := distances.Row(i - i0)
				copy(row, b.k.Row(i))
				t.Axpy(row, -1, b.means.Row(c))
				t.Scale(row, 1/b.unit, row)
				row = values.Row(i - i0)
				copy(row, b.v.Row(i))
				t.Axpy(row, -1/float(b.size(c)), b.sums.Row(c))
			}
		}
		dipole := b.grads.dipoles.Slice(k*d, (k+1)*d)
		dk, dvs := h.TakeScratch(n, d), h.TakeScratch(n, dv)
		h.Multiply(dk, values, dipole, false, true, false)
		h.Multiply(dvs, distances, dipole, false, false, false)
		room := arena.Take[float](h.Scratch, d)
		for c := c0; c < c1; c++ {
			size, spread := float(b.size(c)), b.grads.spreads[c]
			for i := int(b.begin[c]); i < int(b.begin[c+1]); i++ {
				j := int(b.order[i])
				row := g.DK.Row(j)
				t.Axpy(row, 1/b.unit, dk.Row(i-i0))
				t.Axpy(row, 2*spread/b.unit, distances.Row(i-i0))
				t.Axpy(row, 1/size, b.grads.means.Row(c))
				t.Mul(room, b.grads.halves.Row(c), distances.Row(i-i0))
				t.Axpy(row, 1/(size*b.unit), room)
				row = g.DV.Row(j)
				t.Add(row, row, dvs.Row(i-i0))
				t.Add(row, row, b.grads.sums.Row(c))
			}
		}
		h.Scratch.Reset(mark)
	}
}

// backCluster adds the gradients through a cluster and queries that chose it.
func (p *inputPass) backCluster(c int, queries []int32) {
	h, t, g := p.h, p.h.Table, &p.grads
	ar := h.Scratch
	mark := ar.Mark()
	defer ar.Reset(mark)
	m := len(queries)
	q, dout := p.gather(h.Q, queries, p.scale), p.gather(g.DOut, queries, 1)
	minus := arena.Take[float](ar, m)
	for r, i := range queries {
		minus[r] = -g.delta[i]
	}
	dq := takePadded(ar, m, h.Q.Cols)
	p.eachClusterTile(c, q, func(tile clusterTile) {
		w, n := tile.w, tile.w.Cols
		for r, i := range queries {
			t.Exp(w.Row(r), w.Row(r), h.Saved[i])
		}
		columns, ds := arena.TakeZeros[float](ar, h.V.Cols*w.Stride), arena.Take[float](ar, m*w.Stride)
		t.Transpose(columns, w.Stride, tile.v.Data, tile.v.Stride, n, h.V.Cols)
		t.Block(m, w.Stride, h.V.Cols, dout.Data, dout.Stride, 1, columns, w.Stride, ds, w.Stride, false)
		t.MulRows(ds, w.Data, w.Stride, n, minus)
		t.Block(m, dq.Stride, n, ds, w.Stride, 1, tile.k.Data, tile.k.Stride, dq.Data, dq.Stride, false)
		for r, i := range queries {
			t.Axpy(g.DQ.Row(int(i)), p.scale, dq.Row(r))
		}
		dk, dv := takePadded(ar, n, h.K.Cols), takePadded(ar, n, h.V.Cols)
		t.Block(n, dk.Stride, m, ds, 1, w.Stride, q.Data, q.Stride, dk.Data, dk.Stride, false)
		t.Block(n, dv.Stride, m, w.Data, 1, w.Stride, dout.Data, dout.Stride, dv.Data, dv.Stride, false)
		for r, j := range tile.keys {
			t.Add(g.DK.Row(int(j)), g.DK.Row(int(j)), dk.Row(r))
			t.Add(g.DV.Row(int(j)), g.DV.Row(int(j)), dv.Row(r))
		}
	})
}
