package mechanism

import (
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// With centres=input the cells are clusters of the keys of a call. A far cluster c of n keys with
// mean c̄ and variances σ² of the channels weighs n·exp(s q·c̄)·(1 + h), h = ½ s² Σ_a q_a² σ_a²: the
// Taylor polynomial of order 2, summed over keys whose channels are unrelated. The term of order 1,
// Σ(k-c̄) vᵀ, is pooled over a group of clusters, which share it in proportion to Σ|k-c̄|²; in a causal
// call over all clusters. A query chooses a cluster as near if its weights for the keys of the cluster
// would deviate much from their mean. Near clusters are computed one after another, each for all
// queries of a wave that chose it.

const (
	// lloydSteps is the number of Lloyd steps of each of the two levels of clusters.
	lloydSteps = 2
	// clusterGroups is the largest number of groups of the clusters of a block.
	clusterGroups = 16
	// groupKeys is the least number of keys for each group after the first. leastKeys is the least
	// average number of keys of a cluster if the setting size is 0.
	groupKeys = 512
	leastKeys = 16
	// firstSpans is the number of closed spans that are joined into one block, and spanRadix the number of
	// such blocks that are joined again. A block of four spans of 512 keys would have as many clusters as
	// the spans.
	firstSpans, spanRadix = 16, 4
	// waveQueries is the number of queries whose choices are collected before their near
	// clusters are computed, if the clusters last that long.
	waveQueries = 2048
	// attendedRows is the number of queries whose outputs are computed at once: whole tiles of products on
	// every instruction set.
	attendedRows = 72
	// chosenRows is the largest number of queries whose products with a cluster are computed at once.
	chosenRows = 64
	// chosenKeys is the largest number of keys of a cluster that are multiplied at once.
	chosenKeys = 256
	// maxSquare bounds squares of channels of queries, whose products with variances are finite.
	maxSquare = 0x1p80
	// leastSpread is the least Σ|k-c̄|² in units of a group whose dipole is used. Gradients, which are
	// divided by it, are finite.
	leastSpread = 0x1p-100
	// keyShare times tol is a share of the denominator. A cluster whose mean weighs less is near if one
	// of its keys may weigh more.
	keyShare = 2
	// safeExcess is how far a score may lie above the score that weights are relative to.
	safeExcess = 8
)

// inputPass is Forward or Backward of one head with centres=input.
type inputPass struct {
	*multipoleAttention
	h      *headwise.Head
	memory *arena.Arena // of the far field, and of blocks that have none of their own
	owned  bool         // blocks have memory of their own
	scale  float
	// Keys before first and from last on are near to all queries. In causal calls so are the keys
	// lo ≤ j < hi of the open span. All other keys are in blocks.
	first, last, lo, hi int

	open   kernel.Panels[float] // if many queries follow: keys of the open span, as columns
	blocks []keyBlock           // the last of them was made last
	ahead  keyBlock             // of an index: a block that the next span needs, if it is made
	far    farField

	// The choices of a wave of queries.
	queries []int32
	picks   []int32 // clusters of the far field that queries chose, query after query
	ends    []int32 // where the picks of each query end

	sums, tops []float // [N] sums of weights relative to the exponentials of tops
	pairs      float64 // pairs of queries and keys of clusters that they chose

	grads inputGrads // of Backward
}

// begin sets the pass to a head without blocks. Blocks take memory from ar.
func (p *inputPass) begin(x *multipoleAttention, h *headwise.Head, ar *arena.Arena) {
	*p = inputPass{multipoleAttention: x, h: h, memory: ar, scale: x.factor(h.Q.Cols), blocks: p.blocks[:0], picks: p.picks[:0], queries: p.queries[:0], ends: p.ends[:0]}
	p.first, p.last = x.innerKeys(h)
	p.lo, p.hi = p.first, p.first
}

// cover makes blocks cover the keys before span number b: the largest blocks of firstSpans
// times a power of spanRadix spans that begin at multiples of their length, in order, single spans, and the
// last span by itself. So the keys of the next joined block are known a span before it is needed.
func (p *inputPass) cover(b int) {
	at, i := 0, 0
	for at < b {
		length := spansFrom(at, b-1)
		j0, j1 := p.keysOf(at, at+length)
		if i < len(p.blocks) && (p.blocks[i].j0 != j0 || p.blocks[i].j1 != j1) {
			p.drop(i)
		}
		if i == len(p.blocks) {
			p.push(j0, j1)
		}
		at, i = at+length, i+1
	}
	p.drop(i)
}

// spansFrom returns the number of spans of the block that begins at span number at, if blocks of several
// spans end before number end.
func spansFrom(at, end int) int {
	length, next := 1, firstSpans
	for next <= end-at && at%next == 0 {
		length, next = next, next*spanRadix
	}
	return length
}

// keysOf returns the keys j0 ≤ j < j1 of the spans from number at on, before number end.
func (p *inputPass) keysOf(at, end int) (j0, j1 int) {
	j0, j1 = min(max(at*p.span, p.first), p.last), min(end*p.span, p.last)
	return j0, max(j0, j1)
}

// push appends a block of the keys j0 ≤ j < j1: the one that was made ahead, if it has the same keys.
func (p *inputPass) push(j0, j1 int) {
	if b := &p.ahead; b.holds(j0, j1) {
		p.blocks = append(p.blocks, *b)
		*b = keyBlock{}
		return
	}
	p.blocks = append(p.blocks, p.newBlock(j0, j1))
	if b := &p.blocks[len(p.blocks)-1]; p.grads.Grads != nil {
		b.grads = p.newBlockGrads(b)
	}
}

// newBlock returns a block of the keys j0 ≤ j < j1.
func (p *inputPass) newBlock(j0, j1 int) (b keyBlock) {
	ar := p.memory
	if p.owned {
		ar = nil
	}
	b.set(p.multipoleAttention, p.h, ar, j0, j1)
	return b
}

// drop removes the blocks from number i on. In Backward it first adds their gradients to those of
// their keys and values.
func (p *inputPass) drop(i int) {
	for len(p.blocks) > i {
		b := &p.blocks[len(p.blocks)-1]
		if p.grads.Grads != nil {
			p.pullBlock(b)
		}
		b.memory.Reset(b.mark)
		*b = keyBlock{} // free the memory
		p.blocks = p.blocks[:len(p.blocks)-1]
	}
}

// eachSpan calls f with each range of queries that have the same blocks before them, and g as eachChosen
// does: before a block that queries chose from is dropped.
func (p *inputPass) eachSpan(f func(i0, i1 int), g func(c int, queries []int32)) {
	h := p.h
	if !h.Causal {
		p.push(p.first, p.last)
		p.setFar()
		f(0, h.Q.Rows)
		p.eachChosen(g)
		p.drop(0)
		return
	}
	for b := floorDiv(h.Shift, p.span); b*p.span < h.Shift+h.Q.Rows; b++ {
		p.cover(max(b, 0))
		p.setOpen(b)
		mark := p.memory.Mark()
		i0, i1 := max(b*p.span-h.Shift, 0), min((b+1)*p.span-h.Shift, h.Q.Rows)
		p.packOpen(i1 - i0)
		p.setFar()
		f(i0, i1)
		if j0, j1 := p.nextJoin(b); j0 < j1 || i1 == h.Q.Rows {
			p.eachChosen(g) // clusters of blocks that stay keep their numbers
		}
		p.memory.Reset(mark)
	}
	p.drop(0)
}

// setOpen makes b the open span of a causal call.
func (p *inputPass) setOpen(b int) {
	inner := func(j int) int { return min(max(j, p.first), p.last) }
	p.lo, p.hi = inner(b*p.span), inner((b+1)*p.span)
}

// packOpen packs the keys of the open span, if there are enough queries to be worth it.
func (p *inputPass) packOpen(queries int) {
	p.open = kernel.Panels[float]{}
	n, d := p.hi-p.lo, p.h.K.Cols
	if queries <= multipoleRows || n == 0 {
		return
	}
	p.open = kernel.NewPanels(p.h.Table, n, d, arena.Take[float](p.memory, kernel.PanelsSize(n, d)))
	for piece := range p.open.Pieces() {
		p.open.Pack(piece, true, p.h.K.Data[p.lo*p.h.K.Stride:], p.h.K.Stride)
	}
}

// inputTile holds the scores or weights of n queries from i0 on.
type inputTile struct {
	i0, n   int
	q       tensor.Mat // scaled queries [n,D]
	steps   tensor.Mat // q times the unit of the far field
	squares tensor.Mat // squares of steps
	near    tensor.Mat // of near keys, segment after segment
	spreads tensor.Mat // [n,groups]: Σ n·h over the clusters of a group
	most    []float    // [n] tol·Z
	exps    tensor.Mat // [n,clusters]: exp(s q·c̄)
	far     tensor.Mat // [n,clusters]: exp(s q·c̄)·(1 + h)
}

// segments returns the ranges of keys that are near to queries i < i1 without their choice.
func (p *inputPass) segments(i1 int) [3][2]int {
	hi := p.hi
	if p.h.Causal {
		hi = max(min(hi, i1+p.h.Shift), p.lo)
	}
	return [3][2]int{{0, p.first}, {p.lo, hi}, {p.last, p.h.K.Rows}}
}

// eachSegment calls f with columns of a matrix of near keys and their range of keys.
func (p *inputPass) eachSegment(x *inputTile, f func(part tensor.Mat, j0, j1 int)) {
	at := 0
	for _, s := range p.segments(x.i0 + x.n) {
		for j := s[0]; j < s[1]; j += nearColumns {
			n := min(nearColumns, s[1]-j)
			f(entry.SliceColumns(x.near, at, at+n), j, j+n)
			at += n
		}
	}
}

// scores returns the scores of queries i0 ≤ i < i1, -Inf where a query does not see a key. exps
// holds the scores s q·c̄ of clusters and far their h; weigh turns both into weights.
func (p *inputPass) scores(i0, i1 int) inputTile {
	h, f, t := p.h, &p.far, p.h.Table
	columns := 0
	for _, s := range p.segments(i1) {
		columns += s[1] - s[0]
	}
	d, width, stride := h.Q.Cols, kernel.Pad(f.clusters), kernel.Stride(f.clusters)
	x := inputTile{i0: i0, n: i1 - i0, q: h.TakeScratch(i1-i0, d), steps: h.TakeScratch(i1-i0, d), squares: h.TakeScratch(i1-i0, d), near: h.TakeScratch(i1-i0, columns)}
	for r := range x.n {
		t.Scale(x.q.Row(r), p.scale, h.Q.Row(i0+r))
	}
	p.eachSegment(&x, func(part tensor.Mat, j0, j1 int) {
		if p.open.N > 0 && p.lo <= j0 && j1 <= p.hi {
			mark := h.Scratch.Mark()
			p.open.Multiply(false, x.n, x.q.Data, x.q.Stride, j0-p.lo, j1-p.lo, false, part.Data, part.Stride, nil, arena.Take[float](h.Scratch, kernel.MultiplyScratch(x.n, x.q.Cols)), nil)
			h.Scratch.Reset(mark)
		} else {
			h.Multiply(part, x.q, h.K.Slice(j0, j1), false, true, false)
		}
		for r := range part.Rows {
			row := part.Row(r)
			if h.Causal {
				for j := seenOf(h, i0+r, j0, len(row)); j < len(row); j++ {
					row[j] = float(math.Inf(-1))
				}
			}
			if h.Mask == nil {
				continue
			}
			for j := range row {
				if !h.Mask[j0+j] {
					row[j] = float(math.Inf(-1))
				}
			}
		}
	})
	if f.clusters == 0 {
		return x
	}
	t.Scale(x.steps.Data, f.unit, x.q.Data)
	t.Mul(x.squares.Data, x.steps.Data, x.steps.Data)
	if !(t.Max(x.squares.Data) <= maxSquare) {
		for i, y := range x.squares.Data {
			x.squares.Data[i] = min(y, maxSquare)
		}
	}
	take := func() tensor.Mat {
		return tensor.Mat{Data: arena.Take[float](h.Scratch, x.n*stride), Rows: x.n, Cols: f.clusters, Stride: stride}
	}
	x.exps, x.far, x.most = take(), take(), arena.Take[float](h.Scratch, x.n)
	x.spreads = tensor.Mat{Data: arena.Take[float](h.Scratch, x.n*kernel.Pad(f.groups)), Rows: x.n, Cols: f.groups, Stride: kernel.Pad(f.groups)}
	t.Block(x.n, x.spreads.Stride, d, x.squares.Data, d, 1, f.spreads, x.spreads.Stride, x.spreads.Data, x.spreads.Stride, false)
	t.Block(x.n, width, d, x.q.Data, d, 1, f.means, f.stride, x.exps.Data, stride, false)
	t.Block(x.n, width, d, x.squares.Data, d, 1, f.halves, f.stride, x.far.Data, stride, false)
	return x
}

// weigh replaces the scores of a tile by weights relative to the exponentials of tops, chooses
// near clusters, whose weights become 0, and sets sums to the sums of the weights of the other near
// keys. tops [n] is set to the largest score of each query.
func (p *inputPass) weigh(x *inputTile, tops, sums []float) {
	h, t, f := p.h, p.h.Table, &p.far
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	errors, reach, gap := arena.Take[float](h.Scratch, f.clusters), arena.Take[float](h.Scratch, f.clusters), arena.Take[float](h.Scratch, f.clusters)
	for r := range x.n {
		near := x.near.Row(r)
		if f.clusters == 0 {
			tops[r] = t.Max(near)
			sums[r] = t.Exp(near, near, tops[r])
			continue
		}
		exps, far := x.exps.Row(r), x.far.Row(r)
		tops[r] = max(t.Max(near), t.Max(exps))
		sums[r] = t.Exp(near, near, tops[r])
		t.Scale(gap, -1, exps)
		t.Mul(reach, far, f.tails)
		t.Exp(exps, exps, tops[r])
		t.Mul(far, far, exps)
		t.Mul(errors, far, exps)
		t.Add(far, far, exps)
		most := float(p.tol) * (sums[r] + t.Dot(far, f.counts))
		// reach becomes the square of how far the score of a key may lie above the score of the mean,
		// minus the square of how far it would have to lie above it to reach the share of keyShare. One
		// of n keys lies at most √(n-1) standard deviations from their mean; n counts as at most 16. 4h
		// is twice the variance of the scores by h: if the query resembles one of n keys in unrelated
		// directions, the variances of channels show about half of the variance.
		if most > 0 {
			t.Axpy(gap, tops[r]+float(math.Log(keyShare*float64(most))), f.ones)
			t.Mul(gap, gap, gap)
			t.Axpy(reach, -1, gap)
		} // else every cluster of unlike keys is near
		p.choose(x, r, errors, most*most/(2*f.keys), reach)
		x.most[r] = most
	}
}

// choose adds the clusters with errors above most or reach above 0 to the picks of query r of the
// tile, and sets their weights in the tile to 0.
func (p *inputPass) choose(x *inputTile, r int, errors []float, most float, reach []float) {
	hasNear := func(c0, c1 int) bool {
		return !(p.h.Table.Max(errors[c0:c1]) <= most && p.h.Table.Max(reach[c0:c1]) <= 0)
	}
	exps, far := x.exps.Row(r), x.far.Row(r)
	if n := len(errors); hasNear(0, n) { // which few queries have
		for c0 := 0; c0 < n; c0 += nearestRun {
			c1 := min(c0+nearestRun, n)
			if !hasNear(c0, c1) {
				continue
			}
			for c := c0; c < c1; c++ {
				if !(errors[c] <= most) || reach[c] > 0 {
					p.picks = append(p.picks, int32(c))
					p.pairs += float64(p.far.counts[c])
					exps[c], far[c] = 0, 0
				}
			}
		}
	}
	p.queries, p.ends = append(p.queries, int32(x.i0+r)), append(p.ends, int32(len(p.picks)))
}

// attend sets the sums of weights of a tile of scores, and the outputs before the division by
// them, both without the clusters that queries chose. It overwrites the tile.
func (p *inputPass) attend(x inputTile) {
	h, t, f := p.h, p.h.Table, &p.far
	tops, sums := p.tops[x.i0:x.i0+x.n], p.sums[x.i0:x.i0+x.n]
	p.weigh(&x, tops, sums)
	out, acc := h.Out.Slice(x.i0, x.i0+x.n), false
	p.eachSegment(&x, func(part tensor.Mat, j0, j1 int) {
		addSeen(h, out, part, h.V, x.i0, j0, acc)
		acc = true
	})
	if f.clusters == 0 {
		return
	}
	y, weights := p.farSums(&x)
	d, dv := h.Q.Cols, h.V.Cols
	features := p.groupFeatures(&x, weights)
	t.Block(x.n, f.dipoles.Stride, f.groups*d, features.Data, features.Stride, 1, f.dipoles.Data, f.dipoles.Stride, y.Data, y.Stride, true)
	for r := range x.n {
		sums[r] += t.Dot(x.far.Row(r), f.counts)
		if row := out.Row(r); acc {
			t.Add(row, row, y.Row(r)[:dv])
		} else {
			copy(row, y.Row(r))
		}
	}
}

// farSums returns y [n,Dv…], the products of far weights and values, and the weights [n,groups] of the
// dipoles of groups. A weight is 0 where the dipole of the whole group may add an error above the
// tolerance.
func (p *inputPass) farSums(x *inputTile) (y, weights tensor.Mat) {
	f, h := &p.far, p.h
	y = tensor.Mat{Data: arena.Take[float](h.Scratch, x.n*f.values.Stride), Rows: x.n, Cols: f.values.Cols, Stride: f.values.Stride}
	weights = entry.SliceColumns(y, f.dv, f.dv+f.groups)
	width := y.Stride
	if f.groups == 1 {
		width = kernel.Pad(f.dv) // a product of its own costs less than more columns
	}
	h.Table.Block(x.n, width, f.clusters, x.far.Data, x.far.Stride, 1, f.values.Data, f.values.Stride, y.Data, y.Stride, false)
	for r := 0; r < x.n && f.groups == 1; r++ {
		weights.Row(r)[0] = h.Table.Dot(x.far.Row(r), f.shares)
	}
	for r, most := range x.most {
		row := weights.Row(r)
		for g, spread := range x.spreads.Row(r) {
			if 2*row[g]*row[g]*spread > most*most {
				row[g] = 0 // clusters of the group differ too much in weight
			}
		}
	}
	return y, weights
}

// groupFeatures returns the products [n,groups·D] of the weights of dipoles and the steps of queries.
func (p *inputPass) groupFeatures(x *inputTile, weights tensor.Mat) tensor.Mat {
	h, f, d := p.h, &p.far, p.h.Q.Cols
	features := h.TakeScratch(x.n, f.groups*d)
	column := arena.Take[float](h.Scratch, x.n)
	for g := range f.groups {
		for r := range column {
			column[r] = weights.Row(r)[g]
		}
		h.Table.ScaleRows(features.Data[g*d:], features.Stride, x.steps.Data, x.steps.Stride, d, column)
	}
	return features
}

// fits reports whether a tile of queries fits in the wave.
func (p *inputPass) fits(queries int) bool { return len(p.queries)+queries <= waveQueries }

// attendSpan sets the outputs of queries i0 ≤ i < i1, which have the same blocks before them.
func (p *inputPass) attendSpan(i0, i1 int) {
	for ; i0 < i1; i0 += attendedRows {
		rows := min(attendedRows, i1-i0)
		if !p.fits(rows) {
			p.eachChosen(p.attendCluster)
		}
		mark := p.h.Scratch.Mark()
		p.attend(p.scores(i0, i0+rows))
		p.h.Scratch.Reset(mark)
	}
}

// forward saves the logarithm of the denominator of each query.
func (m *inputMultipole) forward(h *headwise.Head) {
	n := h.Q.Rows
	lse := h.SaveBuffer(n)
	p := m.passes.get()
	defer m.passes.put(p)
	p.begin(m.x, h, h.Scratch)
	p.tops, p.sums = arena.Take[float](h.Scratch, n), arena.Take[float](h.Scratch, n)
	p.eachSpan(p.attendSpan, p.attendCluster)
	p.divide(lse)
	h.ExactShare = p.exactShare()
}

// divide divides the outputs by the sums of weights, and sets lse to the logarithms of these.
func (p *inputPass) divide(lse []float) {
	for i, sum := range p.sums {
		out := p.h.Out.Row(i)
		p.h.Table.Scale(out, 1/sum, out)
		lse[i] = p.tops[i] + float(math.Log(float64(sum)))
	}
}

// eachChosen calls f with the clusters that queries of the wave chose, in their order, and
// those queries, at most chosenRows at a time. It ends the wave.
func (p *inputPass) eachChosen(f func(c int, queries []int32)) {
	ar := p.h.Scratch
	mark := ar.Mark()
	defer ar.Reset(mark)
	places, begin := entry.SortGroups(ar, p.picks, p.far.clusters)
	of, at := arena.Take[int32](ar, len(p.picks)), 0 // the query of each pick
	for r, end := range p.ends {
		for ; at < int(end); at++ {
			of[at] = p.queries[r]
		}
	}
	for i, place := range places {
		places[i] = of[place]
	}
	for c := range p.far.clusters {
		for queries := places[begin[c]:begin[c+1]]; len(queries) > 0; {
			n := min(chosenRows, len(queries))
			f(c, queries[:n])
			queries = queries[n:]
		}
	}
	p.queries, p.picks, p.ends = p.queries[:0], p.picks[:0], p.ends[:0]
}

// gather returns rows of y, padded for products, times factor.
func (p *inputPass) gather(y tensor.Mat, rows []int32, factor float) tensor.Mat {
	width := kernel.Pad(y.Cols)
	z := tensor.Mat{Data: arena.Take[float](p.h.Scratch, len(rows)*width), Rows: len(rows), Cols: y.Cols, Stride: width}
	for r, i := range rows {
		p.h.Table.Scale(z.Row(r), factor, y.Row(int(i)))
		clear(z.Data[r*width+y.Cols : (r+1)*width])
	}
	return z
}

// clusterTile holds scores or weights of queries for some keys of a cluster.
type clusterTile struct {
	w    tensor.Mat // [queries, keys], rows padded
	k, v tensor.Mat
	keys []int32
}

// eachClusterTile calls f with the scores of scaled queries q for the keys of cluster c.
func (p *inputPass) eachClusterTile(c int, q tensor.Mat, f func(x clusterTile)) {
	b, ar := &p.blocks[p.far.blocks[c]], p.h.Scratch
	c -= int(p.far.first[c])
	begin, size := int(b.begin[c]), b.size(c)
	for j0 := 0; j0 < size; j0 += chosenKeys {
		mark := ar.Mark()
		n := min(chosenKeys, size-j0)
		width := kernel.Pad(n)
		i0, i1 := begin+j0, begin+j0+n
		tile := clusterTile{k: b.k.Slice(i0, i1), v: b.v.Slice(i0, i1), keys: b.order[i0:i1],
			w: tensor.Mat{Data: arena.Take[float](ar, q.Rows*width), Rows: q.Rows, Cols: n, Stride: width}}
		p.h.Table.Block(q.Rows, width, p.h.Q.Cols, q.Data, q.Stride, 1, b.columns[int(b.offsets[c])+j0:], kernel.Pad(size), tile.w.Data, width, false)
		f(tile)
		ar.Reset(mark)
	}
}

// attendCluster adds the keys of cluster c to the outputs and sums of the queries that chose it.
func (p *inputPass) attendCluster(c int, queries []int32) {
	h, t := p.h, p.h.Table
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	q := p.gather(h.Q, queries, p.scale)
	width := kernel.Pad(h.V.Cols)
	out := arena.Take[float](h.Scratch, len(queries)*width)
	p.eachClusterTile(c, q, func(tile clusterTile) {
		for r, i := range queries {
			row := tile.w.Row(r)
			p.raise(int(i), t.Max(row))
			p.sums[i] += t.Exp(row, row, p.tops[i])
		}
		t.Block(len(queries), width, tile.w.Cols, tile.w.Data, tile.w.Stride, 1, tile.v.Data, tile.v.Stride, out, width, false)
		for r, i := range queries {
			row := h.Out.Row(int(i))
			t.Add(row, row, out[r*width:])
		}
	})
}

// raise makes score the reference of query i and rescales its output and sum, if score lies more
// than safeExcess above the present reference.
func (p *inputPass) raise(i int, score float) {
	t := p.h.Table
	if score-p.tops[i] <= safeExcess {
		return
	}
	fade := float(math.Exp(float64(p.tops[i] - score)))
	t.Scale(p.h.Out.Row(i), fade, p.h.Out.Row(i))
	p.sums[i] *= fade
	p.tops[i] = score
}

// exactShare returns the share of visible pairs of query and key whose weights were computed
// pair by pair.
func (p *inputPass) exactShare() float64 {
	h := p.h
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	queries, each := h.Q.Rows, 1.0
	if !h.Causal { // all see the same keys
		queries, each = min(queries, 1), float64(queries)
	}
	before := arena.Take[int32](h.Scratch, h.K.Rows+1) // unmasked keys before each key
	before[0] = 0
	for j := range h.K.Rows {
		before[j+1] = before[j]
		if h.IsUnmasked(j) {
			before[j+1]++
		}
	}
	exact, all := p.pairs, 0.0
	for i := range queries {
		seen := h.VisibleKeys(i)
		all += each * float64(before[seen])
		lo, hi := p.first, p.first
		if h.Causal {
			b := floorDiv(i+h.Shift, p.span)
			lo, hi = min(max(b*p.span, p.first), p.last), min(max((b+1)*p.span, p.first), p.last)
		}
		for _, s := range [3][2]int{{0, p.first}, {lo, hi}, {p.last, h.K.Rows}} {
			if end := min(s[1], seen); end > s[0] {
				exact += each * float64(before[end]-before[s[0]])
			}
		}
	}
	return exact / all
}

// inputMultipole is multipole with centres=input. States hold all keys, with a multipoleIndex.
type inputMultipole struct {
	x      *multipoleAttention
	passes inputPasses
}

// inputPasses are passes for reuse, without references to heads.
type inputPasses struct{ pool sync.Pool }

func (s *inputPasses) get() *inputPass {
	if p, ok := s.pool.Get().(*inputPass); ok {
		return p
	}
	return new(inputPass)
}

func (s *inputPasses) put(p *inputPass) {
	clear(p.blocks[:cap(p.blocks)])
	*p = inputPass{blocks: p.blocks[:0], queries: p.queries[:0], picks: p.picks[:0], ends: p.ends[:0]}
	s.pool.Put(p)
}

// newMultipoleInput returns multipole with centres=input, given the settings that it shares
// with codebooks.
func newMultipoleInput(r *reader, x *multipoleAttention) (headwise.Function, error) {
	if x.order > 0 {
		return nil, r.Refuse("centres", "order 0")
	}
	tol, err := strconv.ParseFloat(r.Text("tol"), 64)
	if err != nil || !(tol >= 0 && tol <= 1) {
		return nil, r.Refuse("tol", "a number from 0 to 1")
	}
	x.tol = tol
	if x.size, err = r.Integer("size", 0, entry.MaxSettingTokens); err != nil {
		return nil, err
	}
	if x.span, err = r.Integer("span", 1, entry.MaxSettingTokens); err != nil {
		return nil, err
	}
	if x.least, err = r.Integer("least", 0, entry.MaxSettingTokens); err != nil {
		return nil, err
	}
	x.softmax = &headwise.PatternSoftmax{Scale: x.scale}
	x.setting = fmt.Sprintf("multipole centres=input tol=%s size=%d least=%d span=%d sinks=%d ends=%d scale=%s",
		strconv.FormatFloat(tol, 'g', -1, 64), x.size, x.least, x.span, x.sinks, x.ends, entry.FormatScale(x.scale))
	return &inputMultipole{x: x}, nil
}

func (m *inputMultipole) Traits() attention.Traits {
	return attention.Traits{Name: multipole.Name, Causal: true}
}

func (m *inputMultipole) Setting() string               { return m.x.setting }
func (m *inputMultipole) Params() *param.Set            { return nil }
func (m *inputMultipole) Constants() *param.Set         { return nil }
func (m *inputMultipole) Check(c *attention.Call) error { return nil }

// isSoftmax reports whether all keys of a head are near because they are few.
func (m *inputMultipole) isSoftmax(h *headwise.Head) bool {
	return !h.Causal && h.CountUnmasked() <= m.x.least
}

// allPairs returns the pattern of all queries and keys.
func allPairs(h *headwise.Head) *headwise.Pattern {
	pairs := headwise.NewPattern()
	lo, hi := pairs.AddPart(headwise.Range(0, h.Q.Rows), headwise.Range(0, h.K.Rows))
	for i := range lo {
		lo[i], hi[i] = 0, int32(h.K.Rows)
	}
	return pairs
}

func (m *inputMultipole) Forward(h *headwise.Head) {
	defer restorePadding(h, dropPadding(h))
	if !m.isSoftmax(h) {
		m.forward(h)
		return
	}
	pairs := allPairs(h)
	m.x.softmax.Forward(h, h.SaveBuffer(h.Q.Rows), pairs)
	pairs.Release()
	h.ExactShare = 1
}

func (m *inputMultipole) Backward(h *headwise.Head, g *headwise.Grads) {
	g.Clear()
	defer restorePadding(h, dropPadding(h))
	if !m.isSoftmax(h) {
		m.backward(h, g)
		return
	}
	pairs := allPairs(h)
	m.x.softmax.Backward(h, g, h.Out, g.DOut, h.Saved, pairs)
	pairs.Release()
}

// nearShare is the share of pairs in chosen clusters that Cost assumes. In a trained sentence
// encoder it is 0.01 to 0.02 with the default tol.
const nearShare = 0.015

func (m *inputMultipole) Cost(s attention.Shape) headwise.Cost {
	x, n, keys, d, dv := m.x, float64(s.N), float64(s.M), float64(s.D), float64(s.Dv)
	if !s.Causal && s.M <= x.least {
		return headwise.Cost{FLOPs: 2 * n * keys * (d + dv), Bytes: entry.ElementBytes() * (n + chosenRows*(chosenKeys+dv))}
	}
	near := min(float64(x.sinks+x.ends), keys)
	clusters, groups, passes, share := float64(x.clustersOf(s.M)), float64(groupsOf(s.M, x.clustersOf(s.M))), 1.0, 1.0
	if s.Causal {
		// On average half the keys are in blocks: half of those that become one, of each length, and one of a span.
		near = min(float64(x.span)/2+float64(x.sinks), keys)
		clusters, groups, passes, share = float64(x.clustersOf(x.span)), 1, 0, 0.5
		for length, joined := x.span, firstSpans; length < s.M; length, joined = length*joined, spanRadix {
			clusters += min(float64(joined-1), keys/float64(length)) / 2 * float64(x.clustersOf(length))
			passes++
			if length > s.M/joined {
				break
			}
		}
	}
	centres := (1 + lloydSteps) * 2 * math.Sqrt(clusters) // that a key is compared with
	picks := min(waveQueries, n) * clusters
	return headwise.Cost{
		FLOPs: 2*keys*passes*(centres*d+d*dv) + 2*n*((near+nearShare*share*keys)*(d+dv)+clusters*(2*d+dv+groups)+groups*d*dv),
		Bytes: entry.ElementBytes()*(3*n+keys*2*(d+dv)+clusters*(5*d+2*dv)+2*groups*d*dv+attendedRows*(near+2*clusters+groups*d)) + 4*(2*keys+picks),
	}
}

// UntrainedWith returns Untrained for a mechanism with the settings of set. It returns "" if they
// choose a function without parameters or constants.
func (r *Row) UntrainedWith(set map[string]string) string {
	if r.Name == multipole.Name && set["centres"] == "input" {
		return ""
	}
	return r.Untrained
}
