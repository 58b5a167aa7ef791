package mechanism

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// nearBlock is queries q0 ≤ i < q1 with the keys k0 ≤ j < k1 that they meet one by
// one. All others they meet by sums.
type nearBlock struct{ q0, q1, k0, k1 int }

// scatterPass is a head in the order in which its blocks lie.
type scatterPass[T tensor.Float] struct {
	*scatterAttention[T]
	h                *attention.Head[T]
	queries, keys    []int32 // places of rows, sorted; nil: as they are
	q, k, v          tensor.Mat[T]
	mask             []bool
	blocks           int
	perQuery         int // queries that a block of sorted keys has
	piecesPerCluster int // in which these are computed
	scale            T
	fq, fk           tensor.Mat[T] // features over the largest of their row
	gq, gk           []T           // whose logarithms these are; -Inf: no key
	sum              tensor.Mat[T] // of features and what goes with them
	sumExp           T             // over e to this
	scaledRows       tensor.Mat[T] // of rows that enter it
}

// newPass sorts and maps the tokens of h.
func (x *scatterAttention[T]) newPass(h *attention.Head[T]) scatterPass[T] {
	p := scatterPass[T]{scatterAttention: x, h: h, q: h.Q, k: h.K, v: h.V, mask: h.Mask, scale: T(x.rootScale * x.rootScale)}
	if x.window > 0 {
		first, last := h.Off/scatterChunk, (h.Off+h.Q.Rows-1)/scatterChunk
		p.blocks = last - first + 1
	} else {
		p.sortTokens()
	}
	p.fq, p.gq = p.randomFeatures(p.q, nil)
	p.fk, p.gk = p.randomFeatures(p.k, p.mask)
	width := p.v.Cols + 1
	p.sum = h.Take(p.fq.Cols, width)
	p.scaledRows = h.Take(scatterChunk, width)
	p.v = p.withColumn(p.v, nil)
	return p
}

// withColumn returns x with a column more: ones, or column.
func (p *scatterPass[T]) withColumn(x tensor.Mat[T], column []T) tensor.Mat[T] {
	y := p.h.Take(x.Rows, x.Cols+1)
	for i := range x.Rows {
		copy(y.Row(i), x.Row(i))
		if y.Row(i)[x.Cols] = 1; column != nil {
			y.Row(i)[x.Cols] = column[i]
		}
	}
	return y
}

// dropLastColumn returns the columns of x but the last one.
func dropLastColumn[T tensor.Float](x tensor.Mat[T]) tensor.Mat[T] {
	x.Cols--
	return x
}

// sortTokens brings queries, and keys that exist, into the order of their projections
// on alpha, each with two numbers more that make all of them as long (Daras et
// al. 2020, SMYRF, arXiv 2010.05315, eq. 8).
func (p *scatterPass[T]) sortTokens() {
	h, ar := p.h, p.h.Scratch
	p.queries, p.keys = arena.Take[int32](ar, h.Q.Rows), arena.Take[int32](ar, h.K.Rows)[:0]
	for i := range p.queries {
		p.queries[i] = int32(i)
	}
	for j := range h.K.Rows {
		if h.Exists(j) {
			p.keys = append(p.keys, int32(j))
		}
	}
	along := arena.Take[float64](ar, h.Q.Rows+h.K.Rows)
	longest := p.maxSquaredLength(h.Q, p.queries) + p.maxSquaredLength(h.K, p.keys)
	p.projectOnAlpha(along, h.Q, p.queries, longest, 1)
	p.projectOnAlpha(along[h.Q.Rows:], h.K, p.keys, longest, 0)
	sortByProjection(p.queries, along)
	sortByProjection(p.keys, along[h.Q.Rows:])
	gathered := func(x tensor.Mat[T], rows []int32) tensor.Mat[T] {
		y := h.Take(len(rows), x.Cols)
		for i, r := range rows {
			copy(y.Row(i), x.Row(int(r)))
		}
		return y
	}
	p.q, p.k, p.v, p.mask = gathered(h.Q, p.queries), gathered(h.K, p.keys), gathered(h.V, p.keys), nil
	clusters := (len(p.keys) + p.cluster - 1) / p.cluster
	p.perQuery = (len(p.queries) + clusters - 1) / clusters
	p.piecesPerCluster = (p.perQuery + scatterChunk - 1) / scatterChunk
	p.blocks = clusters * p.piecesPerCluster
}

// maxSquaredLength returns the largest square of a length of those rows of x.
func (p *scatterPass[T]) maxSquaredLength(x tensor.Mat[T], rows []int32) (most float64) {
	for _, i := range rows {
		length := euclideanNorm(x.Row(int(i)))
		most = max(most, length*length)
	}
	return most
}

// projectOnAlpha sets along to the projections on alpha of rows of x, each with what its
// square lacks to square in one of two places behind it.
func (p *scatterPass[T]) projectOnAlpha(along []float64, x tensor.Mat[T], rows []int32, square float64, place int) {
	for _, i := range rows {
		var sum, own float64
		for c, v := range x.Row(int(i)) {
			sum += float64(v) * float64(p.alpha.Data[c])
			own += float64(v) * float64(v)
		}
		along[i] = sum + math.Sqrt(max(square-own, 0))*float64(p.alpha.Data[x.Cols+place])
	}
}

// sortByProjection sorts places by their projections, equal ones by themselves.
func sortByProjection(places []int32, along []float64) {
	slices.SortFunc(places, func(a, b int32) int {
		switch {
		case along[a] < along[b]:
			return -1
		case along[a] > along[b]:
			return 1
		}
		return int(a - b)
	})
}

// randomFeatures returns e to ±w·x√scale over the largest of these of each row, and the
// logarithm of what they are to be multiplied by: with -|x|²·scale/2, and what
// their number makes.
func (p *scatterPass[T]) randomFeatures(x tensor.Mat[T], mask []bool) (f tensor.Mat[T], g []T) {
	h, rows, d := p.h, p.w.Shape[0], x.Cols
	f, g = h.Take(x.Rows, 2*rows), arena.Take[T](h.Scratch, x.Rows)
	left := f
	left.Cols = rows
	h.Product(left, x, tensor.Mat[T]{Data: p.w.Data, Rows: rows, Cols: d, Stride: d}, false, true, false)
	least := math.Log(float64(2*rows)) / 2
	for i := range x.Rows {
		row := f.Row(i)
		plus, minus := row[:rows], row[rows:]
		h.Table.Scale(plus, T(p.rootScale), plus)
		h.Table.Scale(minus, -1, plus)
		top := h.Table.Max(row)
		h.Table.Exp(row, row, top)
		length := euclideanNorm(x.Row(i)) * p.rootScale
		if g[i] = T(float64(top) - length*length/2 - least); mask != nil && !mask[i] {
			g[i] = T(math.Inf(-1))
		}
	}
	return f, g
}

// nearBlock returns block number b.
func (p *scatterPass[T]) nearBlock(b int) nearBlock {
	n, m, off := p.q.Rows, p.k.Rows, p.h.Off
	if p.window == 0 {
		c, piece := b/p.piecesPerCluster, b%p.piecesPerCluster
		q0 := c*p.perQuery + piece*scatterChunk
		return nearBlock{min(q0, n), min(q0+scatterChunk, (c+1)*p.perQuery, n), c * p.cluster, min((c+1)*p.cluster, m)}
	}
	at := (off/scatterChunk + b) * scatterChunk // place of the first query, or before it
	x := nearBlock{q0: max(at-off, 0), q1: min(at+scatterChunk-off, n)}
	x.k0 = min(max(at-p.window/2, 0)/scatterChunk*scatterChunk, m)
	end := at + scatterChunk
	if !p.h.Causal {
		end += (p.window + 1) / 2
		end = (end + scatterChunk - 1) / scatterChunk * scatterChunk
	}
	x.k1 = max(min(end, m), x.k0)
	return x
}

// nearKeys returns which keys of x query i sees exactly, and the end of those that it
// sees at all, all counted from the first of x.
func (p *scatterPass[T]) nearKeys(x nearBlock, i int) (from, to, end int) {
	columns := x.k1 - x.k0
	if p.window == 0 {
		return 0, columns, columns
	}
	at := i + p.h.Off - x.k0
	if end = columns; p.h.Causal {
		end = min(max(at+1, 0), columns)
	}
	to = min(max(at+(p.window+1)/2, 0), end)
	return min(max(at-p.window/2, 0), to), to, end
}

// clearSum begins a sum.
func (p *scatterPass[T]) clearSum() {
	clear(p.sum.Data)
	p.sumExp = T(math.Inf(-1))
}

// addRows adds to the sum the features f of rows i0 ≤ i < i1 times what goes with them,
// e^g·y.
func (p *scatterPass[T]) addRows(f tensor.Mat[T], g []T, y tensor.Mat[T], i0, i1 int) {
	for ; i0 < i1; i0 += p.scaledRows.Rows {
		end := min(i0+p.scaledRows.Rows, i1)
		top := max(p.sumExp, p.h.Table.Max(g[i0:end]))
		if math.IsInf(float64(top), -1) {
			continue
		}
		if top > p.sumExp {
			p.h.Table.Scale(p.sum.Data, expFloat(p.sumExp-top), p.sum.Data)
			p.sumExp = top
		}
		for i := i0; i < end; i++ {
			p.h.Table.Scale(p.scaledRows.Row(i-i0), expFloat(g[i]-top), y.Row(i))
		}
		p.h.Product(p.sum, f.Slice(i0, end), p.scaledRows.Slice(0, end-i0), true, false, true)
	}
}

func expFloat[T tensor.Float](x T) T { return T(math.Exp(float64(x))) }

// isSumEmpty reports that nothing has been added to the sum.
func (p *scatterPass[T]) isSumEmpty() bool { return math.IsInf(float64(p.sumExp), -1) }

// forEachFarSum calls read for each block when the sum is that of the keys before those
// that it meets one by one, and again when it is that of the keys behind them;
// not where there are none.
func (p *scatterPass[T]) forEachFarSum(read func(x nearBlock)) {
	p.clearSum()
	done := 0
	for b := range p.blocks {
		x := p.nearBlock(b)
		p.addRows(p.fk, p.gk, p.v, done, x.k0)
		done = max(done, x.k0)
		if !p.isSumEmpty() {
			read(x)
		}
	}
	if p.h.Causal {
		return
	}
	p.clearSum()
	done = p.k.Rows
	for b := p.blocks - 1; b >= 0; b-- {
		x := p.nearBlock(b)
		p.addRows(p.fk, p.gk, p.v, x.k1, done)
		done = min(done, x.k1)
		if !p.isSumEmpty() {
			read(x)
		}
	}
}

// blockScores returns for the pairs of a block the scores of those that are near, the
// logarithms of what products of features are to be multiplied by for others, -Inf
// for those that do not meet; and the products.
func (p *scatterPass[T]) blockScores(x nearBlock) (s, y tensor.Mat[T]) {
	h, rows, columns := p.h, x.q1-x.q0, x.k1-x.k0
	s, y = h.Take(rows, columns), h.Take(rows, columns)
	h.Product(s, p.q.Slice(x.q0, x.q1), p.k.Slice(x.k0, x.k1), false, true, false)
	if p.window > 0 {
		h.Product(y, p.fq.Slice(x.q0, x.q1), p.fk.Slice(x.k0, x.k1), false, true, false)
	}
	hidden := T(math.Inf(-1))
	for r := range rows {
		i, row := x.q0+r, s.Row(r)
		from, to, end := p.nearKeys(x, i)
		h.Table.Scale(row[from:to], p.scale, row[from:to])
		for c := range row {
			switch {
			case c >= end || p.mask != nil && !p.mask[x.k0+c]:
				row[c] = hidden
			case c < from || c >= to:
				row[c] = p.gq[i] + p.gk[x.k0+c]
			}
		}
	}
	return s, y
}

// scaleFarWeights multiplies a row of weights by the products y of those pairs that are not
// near.
func scaleFarWeights[T tensor.Float](h *attention.Head[T], row, y []T, from, to int) {
	h.Table.Mul(row[:from], row[:from], y)
	h.Table.Mul(row[to:], row[to:], y[to:])
}
