package mechanism

import (
	"fmt"
	"math"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// With centres=input the cells are clusters of the keys of a call, and clusters whose estimated
// error is large for a query are near to it. Products of near clusters are computed cluster by
// cluster, for all queries of a wave that chose it: tiles over contiguous rows of sorted keys.

const (
	// lloydSteps is the number of Lloyd steps of each of the two levels of clusters.
	lloydSteps = 2
	// waveQueries is the number of queries whose choices are collected before their near
	// clusters are computed.
	waveQueries = 1024
	// chosenRows and chosenKeys are the sides of a tile of chosen queries and keys of a cluster.
	chosenRows = 64
	chosenKeys = 128
	// leastShare is the exponent of 2 below which shares of errors are not told apart.
	leastShare = -63
	// safeExcess is how far a score may lie above the estimate that weights are relative to.
	safeExcess = 40
)

// clusterCall sets cells [M] to the number of the cluster of each key, -1 for keys in none.
// The inner keys of a call that is not causal are clustered together, those of a causal call
// span by span, so that no cluster depends on a later span.
func (x *multipoleAttention[T]) clusterCall(h *headwise.Head[T], cells []T) {
	for j := range cells {
		cells[j] = -1
	}
	first, last := x.innerKeys(h)
	if !h.Causal {
		x.clusterKeys(h, cells, first, last, 0)
		return
	}
	// Spans from that of the last query on are near to all queries that see them.
	open := min(floorDiv(h.Shift+h.Q.Rows-1, x.span)*x.span, last)
	number := 0
	for j := 0; j < open; j += x.span {
		number = x.clusterKeys(h, cells, max(j, first), min(j+x.span, last), number)
	}
}

// clusterKeys clusters the unmasked keys j0 ≤ j < j1 in two levels, numbers the clusters from
// number on and returns the number after the last one.
func (x *multipoleAttention[T]) clusterKeys(h *headwise.Head[T], cells []T, j0, j1, number int) int {
	ar := h.Scratch
	mark := ar.Mark()
	defer ar.Reset(mark)
	keys := arena.Take[int32](ar, max(j1-j0, 0))[:0]
	for j := j0; j < j1; j++ {
		if h.IsUnmasked(j) {
			keys = append(keys, int32(j))
		}
	}
	n := len(keys)
	if n == 0 {
		return number
	}
	// In units of the largest number, products stay in the range of T.
	rows := h.TakeScratch(n, h.K.Cols)
	for i, j := range keys {
		copy(rows.Row(i), h.K.Row(int(j)))
	}
	room := arena.Take[T](ar, len(rows.Data))
	h.Table.Scale(rows.Data, 1/unitOf(h.Table, rows.Data, room), rows.Data)
	count := x.clustersOf(n, h.Causal)
	coarse := int(math.Round(math.Sqrt(float64(count))))
	of := arena.Take[int32](ar, n)
	lloyd(h, of, rows, coarse)
	order, begin := SortGroups(ar, of, coarse)
	for c := range coarse {
		members := order[begin[c]:begin[c+1]]
		if len(members) == 0 {
			continue
		}
		mark := ar.Mark()
		own := h.TakeScratch(len(members), h.K.Cols)
		for i, at := range members {
			copy(own.Row(i), rows.Row(int(at)))
		}
		fine := max((2*count*len(members)+n)/(2*n), 1)
		lloyd(h, of, own, fine)
		for i, at := range members {
			cells[keys[at]] = T(number + int(of[i]))
		}
		number += fine
		ar.Reset(mark)
	}
	return number
}

// clustersOf returns into how many clusters n keys are divided.
func (x *multipoleAttention[T]) clustersOf(n int, causal bool) int {
	size := x.size
	switch {
	case size > 0:
	case causal:
		size = 32
	default:
		size = max(int(math.Sqrt(float64(n))/2), 8)
	}
	return (n + size - 1) / size
}

// lloyd sets of [keys] to the nearest of count centres of each key. Centres begin at keys that
// lie evenly apart and move to the means of their keys lloydSteps times.
func lloyd[T tensor.Float](h *headwise.Head[T], of []int32, keys tensor.Mat[T], count int) {
	ar, t, d, n := h.Scratch, h.Table, keys.Cols, keys.Rows
	if count == 1 {
		clear(of[:n])
		return
	}
	mark := ar.Mark()
	defer ar.Reset(mark)
	centres, halves := h.TakeScratch(count, d), arena.Take[T](ar, count)
	for c := range count {
		copy(centres.Row(c), keys.Row(c*n/count))
	}
	width, sizes := kernel.Pad(count), arena.Take[int32](ar, count)
	columns := arena.TakeZeros[T](ar, d*width)
	products := h.TakeScratch(min(assignedKeys, n), width)
	for step := 0; ; step++ {
		for c := range count {
			halves[c] = t.Dot(centres.Row(c), centres.Row(c)) / 2
		}
		t.Transpose(columns, width, centres.Data, d, count, d)
		for i0 := 0; i0 < n; i0 += assignedKeys {
			m := min(assignedKeys, n-i0)
			t.Block(m, width, d, keys.Data[i0*d:], d, 1, columns, width, products.Data, width, false)
			for r := range m {
				row := products.Row(r)[:count]
				best, most := 0, row[0]-halves[0]
				for c, y := range row {
					if y -= halves[c]; y > most {
						best, most = c, y
					}
				}
				of[i0+r] = int32(best)
			}
		}
		if step == lloydSteps {
			return
		}
		clear(sizes)
		for i, c := range of[:n] {
			if sizes[c]++; sizes[c] == 1 {
				copy(centres.Row(int(c)), keys.Row(i))
			} else {
				t.Add(centres.Row(int(c)), centres.Row(int(c)), keys.Row(i))
			}
		}
		for c, size := range sizes {
			if size > 0 {
				t.Scale(centres.Row(c), 1/T(size), centres.Row(c))
			}
		}
	}
}

// keyClusters holds the keys of a head sorted by cluster, and what the choice of near
// clusters takes.
type keyClusters[T tensor.Float] struct {
	order, begin []int32 // keys by cluster, in their order
	// Keys of each cluster as columns [D, Pad(keys)], and rows of keys and values of padded width.
	columns []T
	offsets []uint64 // of each cluster in columns
	k, v    tensor.Mat[T]
	// Variances of the keys of each cluster as columns [D,stride], and the largest distance of
	// a key from their mean, in units of the cluster, whose squares are in the range of T.
	variances     []T
	stride        int
	units, radius []T

	// The choices of a wave of queries.
	queries []int32
	picks   []int32 // clusters that queries chose, query after query
	ends    []int32 // where the picks of each query end
	wild    []int32 // [clusters] 1: a score may exceed the reference of its query by safeExcess

	sums, tops []T     // [N] sums of weights relative to the exponentials of tops
	pairs      float64 // pairs of queries and keys of clusters that they chose
}

// sortKeys sets the clusters of the pass.
func (p *multipolePass[T]) sortKeys() {
	h, ar, t := p.h, p.h.Scratch, p.h.Table
	d, dv := h.K.Cols, h.V.Cols
	of := arena.Take[int32](ar, len(p.cells))
	for j, c := range p.cells {
		if of[j] = c; c < 0 {
			of[j] = int32(p.count)
		}
	}
	x := &p.clusters
	x.order, x.begin = SortGroups(ar, of, p.count+1)
	n := int(x.begin[p.count])
	x.k, x.v = p.takePadded(n, d), p.takePadded(n, dv)
	for i, j := range x.order[:n] {
		copy(x.k.Row(i), h.K.Row(int(j)))
		copy(x.v.Row(i), h.V.Row(int(j)))
	}
	x.offsets = arena.Take[uint64](ar, p.count)
	size := 0
	for c := range p.count {
		x.offsets[c] = uint64(size)
		size += d * kernel.Pad(x.size(c))
	}
	x.columns, x.stride = arena.TakeZeros[T](ar, size), kernel.Stride(p.count)
	x.variances, x.units, x.radius = arena.TakeZeros[T](ar, d*x.stride), arena.Take[T](ar, p.count), arena.Take[T](ar, p.count)
	for c := range p.count {
		i0, n := int(x.begin[c]), x.size(c)
		t.Transpose(x.columns[x.offsets[c]:], kernel.Pad(n), x.k.Data[i0*x.k.Stride:], x.k.Stride, n, d)
		p.measure(c, x.k.Slice(i0, i0+n))
	}
	queries := min(waveQueries, h.Q.Rows)
	x.queries, x.ends = arena.Take[int32](ar, queries)[:0], arena.Take[int32](ar, queries)[:0]
	x.picks = arena.Take[int32](ar, queries*p.count)[:0]
	x.wild = arena.TakeZeros[int32](ar, p.count)
	x.sums, x.tops = arena.Take[T](ar, h.Q.Rows), arena.Take[T](ar, h.Q.Rows)
}

// measure sets the variances, the unit and the radius of cluster c of keys.
func (p *multipolePass[T]) measure(c int, keys tensor.Mat[T]) {
	h, t, x := p.h, p.h.Table, &p.clusters
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	d, n := keys.Cols, T(keys.Rows)
	from, mean, square := h.TakeScratch(keys.Rows, d), arena.TakeZeros[T](h.Scratch, d), arena.TakeZeros[T](h.Scratch, d)
	for i := range keys.Rows {
		t.Add(mean, mean, keys.Row(i))
	}
	t.Scale(mean, 1/n, mean)
	for i := range keys.Rows {
		copy(from.Row(i), keys.Row(i))
		t.Axpy(from.Row(i), -1, mean)
	}
	x.units[c] = unitOf(t, from.Data, from.Data)
	t.Scale(from.Data, 1/x.units[c], from.Data)
	var most T
	for i := range keys.Rows {
		t.MulAdd(square, from.Row(i), from.Row(i))
		most = max(most, t.Dot(from.Row(i), from.Row(i)))
	}
	x.radius[c] = T(math.Sqrt(float64(most)))
	for a, y := range square {
		x.variances[a*x.stride+c] = y / n
	}
}

// unitOf returns the power of 2 at or below the largest absolute value in x, 1 if that is 0 or
// not finite. room has the length of x and may be x: then signs of x change.
func unitOf[T tensor.Float](t *kernel.Table[T], x, room []T) T {
	most := t.Max(x)
	t.Scale(room, -1, x)
	most = max(most, t.Max(room))
	if !(most > 0 && float64(most) <= math.MaxFloat32) {
		return 1
	}
	_, exponent := math.Frexp(float64(most))
	return T(math.Ldexp(1, max(exponent-1, -100)))
}

// exactShare returns the share of the pairs that see each other whose weights were computed
// one by one.
func (p *multipolePass[T]) exactShare() float64 {
	h := p.h
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	before := arena.Take[int32](h.Scratch, h.K.Rows+1) // unmasked keys before each key
	before[0] = 0
	for j := range h.K.Rows {
		before[j+1] = before[j]
		if h.IsUnmasked(j) {
			before[j+1]++
		}
	}
	exact, all := p.clusters.pairs, 0.0
	for i := range h.Q.Rows {
		seen := h.VisibleKeys(i)
		all += float64(before[seen])
		lo, hi := p.nearRange(floorDiv(i+h.Shift, p.length))
		for _, s := range [3][2]int{{0, p.first}, {lo, hi}, {p.last, h.K.Rows}} {
			if end := min(s[1], seen); end > s[0] {
				exact += float64(before[end] - before[s[0]])
			}
		}
	}
	return exact / all
}

// takePadded returns a matrix of zeros whose rows are padded for products.
func (p *multipolePass[T]) takePadded(rows, cols int) tensor.Mat[T] {
	width := kernel.Pad(cols)
	return tensor.Mat[T]{Data: arena.TakeZeros[T](p.h.Scratch, rows*width), Rows: rows, Cols: cols, Stride: width}
}

// size returns the number of keys of cluster c.
func (x *keyClusters[T]) size(c int) int { return int(x.begin[c+1] - x.begin[c]) }

// choose makes near the clusters of largest estimated error for each query of a tile of
// weights: it sets their far weights to 0 and
// notes them. near [n] are the sums of the weights of near keys.
//
// The error of a cluster is its weight, as a share of the denominator, times ½ s² qᵀΣq, Σ
// the variances of its keys. Far remain the clusters with less error for each of their keys
// than a power of 2: the largest up to 1 below which errors add up to tol at most.
func (p *multipolePass[T]) choose(q *queryTile[T], near []T) {
	h, t, x, used := p.h, p.h.Table, &p.clusters, p.used
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	width := kernel.Pad(used)
	squares, errors := h.TakeScratch(q.n, h.Q.Cols), h.TakeScratch(q.n, width)
	units, shares, reach := arena.Take[T](h.Scratch, q.n), arena.Take[T](h.Scratch, used), arena.Take[T](h.Scratch, used)
	for r := range q.n {
		row := squares.Row(r)
		units[r] = unitOf(t, q.q.Row(r), row)
		t.Scale(row, 1/units[r], q.q.Row(r))
		t.Mul(row, row, row)
	}
	if used > 0 {
		t.Block(q.n, width, h.Q.Cols, squares.Data, squares.Stride, 1, x.variances, x.stride, errors.Data, width, false)
	}
	for r := range q.n {
		far := q.far.Row(r)
		total := near[r] + t.Dot(far, p.tile.counts[:used])
		t.Scale(shares, 0.5/total, far)
		t.Scale(reach, units[r], x.units[:used])
		t.Mul(shares, shares, reach)
		t.Mul(shares, shares, reach)
		t.Mul(shares, shares, errors.Row(r)[:used])
		least := nearThreshold(shares, p.tile.counts, p.tol)
		norm := T(math.Sqrt(float64(t.Sum(squares.Row(r)))))
		for c, share := range shares {
			if exponentOf(share) < least || share == 0 || far[c] == 0 {
				continue
			}
			x.picks = append(x.picks, int32(c))
			x.pairs += float64(p.tile.counts[c])
			// far[c] is e^(score - top), and keys lie at most twice the radius from a mean of some of them.
			if !(T(math.Log(float64(far[c])))+2*norm*reach[c]*x.radius[c] <= safeExcess) {
				x.wild[c] = 1
			}
			far[c] = 0
		}
		x.queries, x.ends = append(x.queries, int32(q.i0+r)), append(x.ends, int32(len(x.picks)))
	}
}

// exponentOf returns the exponent of 2 of x ≥ 0 between leastShare and 0. That of NaN and of
// infinity is 0.
func exponentOf[T tensor.Float](x T) int {
	return min(max(int(math.Float64bits(float64(x))>>52&0x7ff)-1023, leastShare), 0)
}

// nearThreshold returns the exponent of 2 from which on clusters are near, given the error of
// each cluster for each of its keys and the numbers of keys.
func nearThreshold[T tensor.Float](errors, counts []T, tol float64) int {
	var sums [1 - leastShare]float64
	for c, e := range errors {
		sums[exponentOf(e)-leastShare] += float64(e * counts[c])
	}
	below := 0.0
	for i, sum := range sums[:len(sums)-1] {
		if below += sum; below > tol {
			return i + leastShare
		}
	}
	return 0
}

// fits reports whether a tile of queries fits in the wave.
func (x *keyClusters[T]) fits(queries int) bool { return len(x.queries)+queries <= cap(x.queries) }

// flush adds to the outputs of the wave what their near clusters bring, and divides them.
func (p *multipolePass[T]) flush(lse []T) {
	x, t := &p.clusters, p.h.Table
	p.eachChosen(p.attendCluster)
	for _, i := range x.queries {
		out := p.h.Out.Row(int(i))
		t.Scale(out, 1/x.sums[i], out)
		lse[i] = x.tops[i] + T(math.Log(float64(x.sums[i])))
	}
	x.endWave()
}

// endWave forgets the choices of the wave.
func (x *keyClusters[T]) endWave() {
	x.queries, x.picks, x.ends = x.queries[:0], x.picks[:0], x.ends[:0]
	clear(x.wild)
}

// eachChosen calls f with the clusters that queries of the wave chose, in their order, and
// those queries, at most chosenRows at a time.
func (p *multipolePass[T]) eachChosen(f func(c int, queries []int32)) {
	x, ar := &p.clusters, p.h.Scratch
	mark := ar.Mark()
	defer ar.Reset(mark)
	places, begin := SortGroups(ar, x.picks, p.count)
	of, at := arena.Take[int32](ar, len(x.picks)), 0 // the query of each pick
	for r, end := range x.ends {
		for ; at < int(end); at++ {
			of[at] = x.queries[r]
		}
	}
	for i, place := range places {
		places[i] = of[place]
	}
	for c := range p.count {
		for queries := places[begin[c]:begin[c+1]]; len(queries) > 0; {
			n := min(chosenRows, len(queries))
			f(c, queries[:n])
			queries = queries[n:]
		}
	}
}

// gather returns rows of y, padded for products, times factor.
func (p *multipolePass[T]) gather(y tensor.Mat[T], rows []int32, factor T) tensor.Mat[T] {
	z := p.takePadded(len(rows), y.Cols)
	for r, i := range rows {
		p.h.Table.Scale(z.Row(r), factor, y.Row(int(i)))
	}
	return z
}

// clusterTile holds scores or weights of queries for some keys of a cluster.
type clusterTile[T tensor.Float] struct {
	w    tensor.Mat[T] // [queries, keys], rows padded
	k, v tensor.Mat[T]
	keys []int32
}

// eachClusterTile calls f with the scores of scaled queries q for the keys of cluster c, -Inf
// for keys that are near to a query without its choice.
func (p *multipolePass[T]) eachClusterTile(c int, queries []int32, q tensor.Mat[T], f func(x clusterTile[T])) {
	x, ar := &p.clusters, p.h.Scratch
	begin, ld := int(x.begin[c]), kernel.Pad(x.size(c))
	for j0 := 0; j0 < x.size(c); j0 += chosenKeys {
		mark := ar.Mark()
		n := min(chosenKeys, x.size(c)-j0)
		width := kernel.Pad(n)
		i0, i1 := begin+j0, begin+j0+n
		tile := clusterTile[T]{k: x.k.Slice(i0, i1), v: x.v.Slice(i0, i1), keys: x.order[i0:i1],
			w: tensor.Mat[T]{Data: arena.Take[T](ar, len(queries)*width), Rows: len(queries), Cols: n, Stride: width}}
		p.h.Table.Block(len(queries), width, p.h.Q.Cols, q.Data, q.Stride, 1, x.columns[int(x.offsets[c])+j0:], ld, tile.w.Data, width, false)
		for r, i := range queries {
			lo, hi := p.lo, p.hi
			if !p.sameBlock {
				lo, hi = p.nearRange(floorDiv(int(i)+p.h.Shift, p.length))
			}
			if int(tile.keys[n-1]) < lo || int(tile.keys[0]) >= hi {
				continue
			}
			for j, key := range tile.keys {
				if lo <= int(key) && int(key) < hi {
					tile.w.Row(r)[j] = T(math.Inf(-1))
				}
			}
		}
		f(tile)
		ar.Reset(mark)
	}
}

// attendCluster adds to outputs and sums what a cluster brings to queries that chose it.
func (p *multipolePass[T]) attendCluster(c int, queries []int32) {
	h, t, x := p.h, p.h.Table, &p.clusters
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	q := p.gather(h.Q, queries, p.scale)
	out := p.takePadded(len(queries), h.V.Cols)
	p.eachClusterTile(c, queries, q, func(tile clusterTile[T]) {
		for r, i := range queries {
			if x.wild[c] != 0 {
				p.raise(int(i), t.Max(tile.w.Row(r)))
			}
			x.sums[i] += t.Exp(tile.w.Row(r), tile.w.Row(r), x.tops[i])
		}
		t.Block(len(queries), out.Stride, tile.w.Cols, tile.w.Data, tile.w.Stride, 1, tile.v.Data, tile.v.Stride, out.Data, out.Stride, false)
		for r, i := range queries {
			row := h.Out.Row(int(i))
			t.Add(row, row, out.Row(r))
		}
	})
}

// raise makes the output and the sum of query i relative to the exponential of a score that is
// far above the present reference.
func (p *multipolePass[T]) raise(i int, score T) {
	x, t := &p.clusters, p.h.Table
	if score-x.tops[i] <= safeExcess {
		return
	}
	fade := T(math.Exp(float64(x.tops[i] - score)))
	t.Scale(p.h.Out.Row(i), fade, p.h.Out.Row(i))
	x.sums[i] *= fade
	x.tops[i] = score
}

// flushGrad adds the gradients through the near clusters of the wave.
func (p *multipolePass[T]) flushGrad() {
	p.eachChosen(p.backCluster)
	p.clusters.endWave()
}

// backCluster adds the gradients through a cluster and queries that chose it.
func (p *multipolePass[T]) backCluster(c int, queries []int32) {
	h, t, g := p.h, p.h.Table, &p.grads
	ar := h.Scratch
	mark := ar.Mark()
	defer ar.Reset(mark)
	m := len(queries)
	q, dout := p.gather(h.Q, queries, p.scale), p.gather(g.DOut, queries, 1)
	minus := arena.Take[T](ar, m)
	for r, i := range queries {
		minus[r] = -g.delta[i]
	}
	dq := p.takePadded(m, h.Q.Cols)
	p.eachClusterTile(c, queries, q, func(tile clusterTile[T]) {
		w, n := tile.w, tile.w.Cols
		for r, i := range queries {
			t.Exp(w.Row(r), w.Row(r), h.Saved[i])
		}
		columns, ds := arena.TakeZeros[T](ar, h.V.Cols*w.Stride), arena.Take[T](ar, m*w.Stride)
		t.Transpose(columns, w.Stride, tile.v.Data, tile.v.Stride, n, h.V.Cols)
		t.Block(m, w.Stride, h.V.Cols, dout.Data, dout.Stride, 1, columns, w.Stride, ds, w.Stride, false)
		t.MulRows(ds, w.Data, w.Stride, n, minus)
		t.Block(m, dq.Stride, n, ds, w.Stride, 1, tile.k.Data, tile.k.Stride, dq.Data, dq.Stride, false)
		for r, i := range queries {
			t.Axpy(g.DQ.Row(int(i)), p.scale, dq.Row(r))
		}
		dk, dv := p.takePadded(n, h.K.Cols), p.takePadded(n, h.V.Cols)
		t.Block(n, dk.Stride, m, ds, 1, w.Stride, q.Data, q.Stride, dk.Data, dk.Stride, false)
		t.Block(n, dv.Stride, m, w.Data, 1, w.Stride, dout.Data, dout.Stride, dv.Data, dv.Stride, false)
		for r, j := range tile.keys {
			t.Add(g.DK.Row(int(j)), g.DK.Row(int(j)), dk.Row(r))
			t.Add(g.DV.Row(int(j)), g.DV.Row(int(j)), dv.Row(r))
		}
	})
}

// inputMultipole is multipole with centres=input. States hold all keys, with a multipoleIndex.
type inputMultipole[T tensor.Float] struct{ x *multipoleAttention[T] }

// newMultipoleInput returns multipole with centres=input, given the settings that it shares
// with codebooks.
func newMultipoleInput[T tensor.Float](r *reader, x *multipoleAttention[T]) (headwise.Function[T], error) {
	x.input = true
	tol, err := strconv.ParseFloat(r.Text("tol"), 64)
	if err != nil || !(tol >= 0 && tol <= 1) {
		return nil, r.Refuse("tol", "a number from 0 to 1")
	}
	x.tol = tol
	if x.size, err = r.Integer("size", 0, maxSettingTokens); err != nil {
		return nil, err
	}
	if x.span, err = r.Integer("span", 1, maxSettingTokens); err != nil {
		return nil, err
	}
	if x.least, err = r.Integer("least", 0, maxSettingTokens); err != nil {
		return nil, err
	}
	x.softmax = &headwise.PatternSoftmax[T]{Scale: x.scale}
	x.setting = fmt.Sprintf("multipole centres=input order=%d tol=%s size=%d least=%d span=%d window=%d sinks=%d ends=%d scale=%s",
		x.order, strconv.FormatFloat(tol, 'g', -1, 64), x.size, x.least, x.span, x.window, x.sinks, x.ends, formatScale(x.scale))
	return &inputMultipole[T]{x}, nil
}

func (m *inputMultipole[T]) Traits() attention.Traits {
	return attention.Traits{Name: multipole.Name, Positive: m.x.order != 1, Causal: true}
}

func (m *inputMultipole[T]) Setting() string                  { return m.x.setting }
func (m *inputMultipole[T]) Params() *param.Set[T]            { return nil }
func (m *inputMultipole[T]) Constants() *param.Set[T]         { return nil }
func (m *inputMultipole[T]) Check(c *attention.Call[T]) error { return nil }

// isSoftmax reports whether all keys of a head are near because they are few.
func (m *inputMultipole[T]) isSoftmax(h *headwise.Head[T]) bool {
	return !h.Causal && h.K.Rows <= m.x.least
}

// allPairs returns the pattern of all queries and keys.
func allPairs[T tensor.Float](h *headwise.Head[T]) *headwise.Pattern {
	pairs := headwise.NewPattern()
	lo, hi := pairs.AddPart(headwise.Range(0, h.Q.Rows), headwise.Range(0, h.K.Rows))
	for i := range lo {
		lo[i], hi[i] = 0, int32(h.K.Rows)
	}
	return pairs
}

func (m *inputMultipole[T]) Forward(h *headwise.Head[T]) {
	if !m.isSoftmax(h) {
		m.x.Forward(h)
		return
	}
	pairs := allPairs(h)
	m.x.softmax.Forward(h, h.SaveBuffer(h.Q.Rows), pairs)
	pairs.Release()
	h.ExactShare = 1
}

func (m *inputMultipole[T]) Backward(h *headwise.Head[T], g *headwise.Grads[T]) {
	if !m.isSoftmax(h) {
		m.x.Backward(h, g)
		return
	}
	g.Clear()
	pairs := allPairs(h)
	m.x.softmax.Backward(h, g, h.Out, g.DOut, h.Saved, pairs)
	pairs.Release()
}

// nearShare is the share of pairs that Cost takes to be in chosen clusters: that of keys of a
// trained encoder of sentences at 2048 tokens with the default tol.
const nearShare = 0.08

func (m *inputMultipole[T]) Cost(s attention.Shape) headwise.Cost {
	x, n, keys, d, dv := m.x, float64(s.N), float64(s.M), float64(s.D), float64(s.Dv)
	if !s.Causal && s.M <= x.least {
		return headwise.Cost{FLOPs: 2 * n * keys * (d + dv), Bytes: elementBytes[T]() * (n + chosenRows*(chosenKeys+dv))}
	}
	near := min(float64(x.sinks+x.ends), keys)
	cells, seen, each := float64(x.clustersOf(max(s.M, 1), s.Causal)), keys, keys
	if s.Causal {
		near = min(float64(x.span)/2+float64(x.window+x.sinks), keys)
		seen, each = keys/2, min(keys, float64(x.span))
	}
	l := newMomentLayout(x.order, s.D, s.Dv)
	width, features := float64(l.width), float64(l.features)
	centres := (1 + lloydSteps) * 2 * math.Sqrt(max(each*cells/max(keys, 1), 1)) // that a key is compared with
	far := cells * seen / max(keys, 1)
	picks := min(float64(waveQueries), n) * cells
	return headwise.Cost{
		FLOPs: 2*keys*centres*d + 2*n*(near+nearShare*seen)*(d+dv) + 2*n*far*(2*d+features*dv) + 6*keys*width,
		Bytes: elementBytes[T]()*(3*n+keys*(1+2*d+2*dv)+cells*(3*width+4*d+features*dv)+multipoleRows*(near+3*cells)) + 4*(2*keys+picks),
	}
}

// UntrainedWith returns Untrained for a mechanism with the settings given: "" if they choose a
// function without numbers that need training.
func (r *Row) UntrainedWith(set map[string]string) string {
	if r.Name == multipole.Name && set["centres"] == "input" {
		return ""
	}
	return r.Untrained
}
