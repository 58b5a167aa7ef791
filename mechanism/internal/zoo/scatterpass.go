package zoo

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// nearBlock holds queries q0 ≤ i < q1 and the keys k0 ≤ j < k1 that they meet pair by
// pair. All other keys they meet in sums.
type nearBlock struct{ q0, q1, k0, k1 int }

// scatterPass holds a head in the order of its blocks.
type scatterPass struct {
	*scatterAttention
	h                *headwise.Head
	queries, keys    []int32 // sorted indices of rows; nil: in their own order
	q, k, v          tensor.Mat
	mask             []bool
	blocks           int
	perQuery         int // queries of a block of sorted keys
	piecesPerCluster int // pieces in which these queries are computed
	scale            float
	fq, fk           tensor.Mat // features over the largest of their row
	gq, gk           []float    // logarithms of their factors; -Inf: masked key
	sum              tensor.Mat // Σ φ(k)·[v, 1], or Σ φ(q)·u in Backward, over e^sumExp
	sumExp           float      // exponent of the factor of sum
	scaledRows       tensor.Mat // rows scaled for their addition to sum
}

// newPass sorts the tokens of h and computes their features.
func (x *scatterAttention) newPass(h *headwise.Head) scatterPass {
	p := scatterPass{scatterAttention: x, h: h, q: h.Q, k: h.K, v: h.V, mask: h.Mask, scale: float(x.rootScale * x.rootScale)}
	if x.window > 0 {
		first, last := h.Offset/scatterChunk, (h.Offset+h.Q.Rows-1)/scatterChunk
		p.blocks = last - first + 1
	} else {
		p.sortTokens()
	}
	p.fq, p.gq = p.randomFeatures(p.q, nil)
	p.fk, p.gk = p.randomFeatures(p.k, p.mask)
	width := p.v.Cols + 1
	p.sum = h.TakeScratch(p.fq.Cols, width)
	p.scaledRows = h.TakeScratch(scatterChunk, width)
	p.v = p.withColumn(p.v, nil)
	return p
}

// withColumn returns x with one more column: ones, or column.
func (p *scatterPass) withColumn(x tensor.Mat, column []float) tensor.Mat {
	y := p.h.TakeScratch(x.Rows, x.Cols+1)
	for i := range x.Rows {
		copy(y.Row(i), x.Row(i))
		if y.Row(i)[x.Cols] = 1; column != nil {
			y.Row(i)[x.Cols] = column[i]
		}
	}
	return y
}

// dropLastColumn returns x without its last column.
func dropLastColumn(x tensor.Mat) tensor.Mat {
	x.Cols--
	return x
}

// sortTokens sorts queries and unmasked keys by their projections on alpha. Two more
// channels give all rows the same length (Daras et al. 2020, SMYRF, arXiv 2010.05315,
// eq. 8).
func (p *scatterPass) sortTokens() {
	h, ar := p.h, p.h.Scratch
	p.queries, p.keys = arena.Take[int32](ar, h.Q.Rows), arena.Take[int32](ar, h.K.Rows)[:0]
	for i := range p.queries {
		p.queries[i] = int32(i)
	}
	for j := range h.K.Rows {
		if h.IsUnmasked(j) {
			p.keys = append(p.keys, int32(j))
		}
	}
	along := arena.Take[float64](ar, h.Q.Rows+h.K.Rows)
	longest := p.maxSquaredLength(h.Q, p.queries) + p.maxSquaredLength(h.K, p.keys)
	p.projectOnAlpha(along, h.Q, p.queries, longest, 1)
	p.projectOnAlpha(along[h.Q.Rows:], h.K, p.keys, longest, 0)
	sortByProjection(p.queries, along)
	sortByProjection(p.keys, along[h.Q.Rows:])
	gathered := func(x tensor.Mat, rows []int32) tensor.Mat {
		y := h.TakeScratch(len(rows), x.Cols)
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

// maxSquaredLength returns the largest squared length of the given rows of x.
func (p *scatterPass) maxSquaredLength(x tensor.Mat, rows []int32) (most float64) {
	for _, i := range rows {
		length := scratch.Norm2(x.Row(int(i)))
		most = max(most, length*length)
	}
	return most
}

// projectOnAlpha sets along to the projections on alpha of the given rows of x. Channel
// D + place of a row brings its squared length to square.
func (p *scatterPass) projectOnAlpha(along []float64, x tensor.Mat, rows []int32, square float64, place int) {
	for _, i := range rows {
		var sum, own float64
		for c, v := range x.Row(int(i)) {
			sum += float64(v) * float64(p.alpha.Data[c])
			own += float64(v) * float64(v)
		}
		along[i] = sum + math.Sqrt(max(square-own, 0))*float64(p.alpha.Data[x.Cols+place])
	}
}

// sortByProjection sorts places by their projections, and equal ones by place.
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

// randomFeatures returns the features exp(±w·x√scale) over the largest of each row
// [rows, features], and the logarithms g [rows] of the factors that complete them: the
// largest, -|x|²·scale/2, and the number of features.
func (p *scatterPass) randomFeatures(x tensor.Mat, mask []bool) (f tensor.Mat, g []float) {
	h, rows, d := p.h, p.w.Shape[0], x.Cols
	f, g = h.TakeScratch(x.Rows, 2*rows), arena.Take[float](h.Scratch, x.Rows)
	left := f
	left.Cols = rows
	h.Multiply(left, x, tensor.Mat{Data: p.w.Data, Rows: rows, Cols: d, Stride: d}, false, true, false)
	least := math.Log(float64(2*rows)) / 2
	for i := range x.Rows {
		row := f.Row(i)
		plus, minus := row[:rows], row[rows:]
		h.Table.Scale(plus, float(p.rootScale), plus)
		h.Table.Scale(minus, -1, plus)
		top := h.Table.Max(row)
		h.Table.Exp(row, row, top)
		length := scratch.Norm2(x.Row(i)) * p.rootScale
		if g[i] = float(float64(top) - length*length/2 - least); mask != nil && !mask[i] {
			g[i] = float(math.Inf(-1))
		}
	}
	return f, g
}

// nearBlock returns block number b.
func (p *scatterPass) nearBlock(b int) nearBlock {
	n, m, off := p.q.Rows, p.k.Rows, p.h.Offset
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

// nearKeys returns the keys of x that query i sees exactly, and the end of the keys
// that it sees, counted from the first key of x.
func (p *scatterPass) nearKeys(x nearBlock, i int) (from, to, end int) {
	columns := x.k1 - x.k0
	if p.window == 0 {
		return 0, columns, columns
	}
	at := i + p.h.Offset - x.k0
	if end = columns; p.h.Causal {
		end = min(max(at+1, 0), columns)
	}
	to = min(max(at+(p.window+1)/2, 0), end)
	return min(max(at-p.window/2, 0), to), to, end
}

// clearSum starts a sum.
func (p *scatterPass) clearSum() {
	clear(p.sum.Data)
	p.sumExp = float(math.Inf(-1))
}

// addRows adds to the sum fᵀ·(e^g∘y) for the features f of rows i0 ≤ i < i1.
func (p *scatterPass) addRows(f tensor.Mat, g []float, y tensor.Mat, i0, i1 int) {
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
		p.h.Multiply(p.sum, f.Slice(i0, end), p.scaledRows.Slice(0, end-i0), true, false, true)
	}
}

// expFloat returns exp(x).
func expFloat(x float) float { return float(math.Exp(float64(x))) }

// isSumEmpty reports whether the sum has no terms.
func (p *scatterPass) isSumEmpty() bool { return math.IsInf(float64(p.sumExp), -1) }

// forEachFarSum calls read for each block with the sum of the keys before the block,
// then with the sum of the keys after it. It leaves out empty sums.
func (p *scatterPass) forEachFarSum(read func(x nearBlock)) {
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

// blockScores returns matrices [queries, keys] of a block. s has scores of near pairs,
// logarithms of the factors of feature products for other pairs, and -Inf for pairs
// that do not meet; y has the feature products.
func (p *scatterPass) blockScores(x nearBlock) (s, y tensor.Mat) {
	h, rows, columns := p.h, x.q1-x.q0, x.k1-x.k0
	s, y = h.TakeScratch(rows, columns), h.TakeScratch(rows, columns)
	h.Multiply(s, p.q.Slice(x.q0, x.q1), p.k.Slice(x.k0, x.k1), false, true, false)
	if p.window > 0 {
		h.Multiply(y, p.fq.Slice(x.q0, x.q1), p.fk.Slice(x.k0, x.k1), false, true, false)
	}
	hidden := float(math.Inf(-1))
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

// scaleFarWeights multiplies a row of weights by the feature products y of pairs that
// are not near.
func scaleFarWeights(h *headwise.Head, row, y []float, from, to int) {
	h.Table.Mul(row[:from], row[:from], y)
	h.Table.Mul(row[to:], row[to:], y[to:])
}
