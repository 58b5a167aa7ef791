package mechanism

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

var scatterbrain = Row{
	Name:   "scatterbrain",
	Doc:    "exp(q·k/√D) of near keys, in a window or by hashes, φ(q)·φ(k) of all others: sparse and low-rank attention",
	Source: "Chen et al. 2021, Scatterbrain, arXiv 2110.15343, section 4",
	Traits: "positive weights; linear in the tokens; causal with a window, where the state is a cache that grows",
	Linear: true,
	Settings: []Setting{
		{"support", "local", "what is near: local (a window) or lsh (the same block when sorted by a hash)"},
		{"window", "128", "w of support=local: a query sees keys -⌊w/2⌋ ≤ j-i < ⌈w/2⌉ exactly, of which a causal one has the left half"},
		{"cluster", "64", "keys of a block of support=lsh"},
		{"features", "D·ln(D)", "rows w of the projection, each for the features of ±w: a whole number, or D·ln(D)"},
		{"projection", "orthogonal", "rows within a block of D: orthogonal, or iid"},
		softmaxScale,
		seed,
	},
	Constants: []Param{
		{"projection", "(M, D)", "rows w of the projection, the same for all heads"},
		{"alpha", "(D+2)", "with support=lsh: the direction by which tokens are sorted"},
	},
	fit: func(o *Options, shapes map[string][]int) {
		if projection := shapes["projection"]; len(projection) == 2 {
			o.say("features", strconv.Itoa(projection[0]))
		}
		if shapes["alpha"] != nil {
			o.say("support", "lsh")
		}
	},
	f32: headwise(scatterbrainHead[float32]),
	f64: headwise(scatterbrainHead[float64]),
}

// scatterChunk is the number of queries that are computed at a time, and of tokens
// that enter sums together.
const scatterChunk = 64

// scatter is the sum of exact weights where a query is near a key, and of the
// products of random features of exp(q·k·scale) elsewhere.
type scatter[T tensor.Float] struct {
	setting         string
	window, cluster int     // the one that is not used is 0
	root            float64 // √scale
	w, alpha        *param.Param[T]
	constants       param.Set[T]
}

func scatterbrainHead[T tensor.Float](r *reader) (attention.Headwise[T], error) {
	d := r.width()
	x := new(scatter[T])
	support, err := r.choice("support", "local", "lsh")
	if err != nil {
		return nil, err
	}
	if x.window, err = r.whole("window", 1, largest); err != nil {
		return nil, err
	}
	if x.cluster, err = r.whole("cluster", 1, 1<<16); err != nil {
		return nil, err
	}
	rows := max(1, int(float64(d)*math.Log(float64(d))))
	if r.value("features") != "D·ln(D)" {
		if rows, err = r.whole("features", 1, 1<<14); err != nil {
			return nil, err
		}
	}
	projection, err := r.choice("projection", "orthogonal", "iid")
	if err != nil {
		return nil, err
	}
	scale, err := r.softmaxScale()
	if err != nil {
		return nil, err
	}
	key, err := r.key()
	if err != nil {
		return nil, err
	}
	x.root = math.Sqrt(scale)
	if scale == 0 {
		x.root = math.Pow(float64(d), -0.25)
	}
	x.w = x.constants.New("projection", false, rows, d)
	drawProjection(x.w.Data, rows, d, projection == "orthogonal", false, key.Fold(1))
	if support == "local" {
		x.cluster = 0
	} else {
		x.window = 0
		x.alpha = x.constants.New("alpha", false, d+2)
		for i := range x.alpha.Data {
			x.alpha.Data[i] = T(float32(key.Fold(2).Normal(uint64(i)))) // the same in both precisions
		}
	}
	x.setting = fmt.Sprintf("scatterbrain window=%d cluster=%d features=%d scale=%s", x.window, x.cluster, rows, scaleText(scale))
	return x, nil
}

func (x *scatter[T]) Traits() attention.Traits {
	t := attention.Traits{Name: "scatterbrain", Positive: true, Causal: x.window > 0}
	if !t.Causal {
		t.NoCausal = "sorting puts tokens into blocks by later ones, too"
	}
	return t
}

func (x *scatter[T]) Setting() string          { return x.setting }
func (x *scatter[T]) Params() *param.Set[T]    { return nil }
func (x *scatter[T]) Constants() *param.Set[T] { return &x.constants }

func (x *scatter[T]) Check(c *attention.Call[T]) error {
	if d := x.w.Shape[1]; c.Q.D != d {
		return fmt.Errorf("q: has width %d, rows of the projection have %d", c.Q.D, d)
	}
	return nil
}

// nearBlock is queries q0 ≤ i < q1 with the keys k0 ≤ j < k1 that they meet one by
// one. All others they meet by sums.
type nearBlock struct{ q0, q1, k0, k1 int }

// scatterPass is a head in the order in which its blocks lie.
type scatterPass[T tensor.Float] struct {
	*scatter[T]
	h             *attention.Head[T]
	queries, keys []int32 // places of rows, sorted; nil: as they are
	q, k, v       tensor.Mat[T]
	mask          []bool
	blocks        int
	perQuery      int // queries that a block of sorted keys has
	pieces        int // in which these are computed
	scale         T
	fq, fk        tensor.Mat[T] // features over the largest of their row
	gq, gk        []T           // whose logarithms these are; -Inf: no key
	sum           tensor.Mat[T] // of features and what goes with them
	sumExp        T             // over e to this
	room          tensor.Mat[T] // of rows that enter it
}

// open sorts and maps the tokens of h.
func (x *scatter[T]) open(h *attention.Head[T]) scatterPass[T] {
	p := scatterPass[T]{scatter: x, h: h, q: h.Q, k: h.K, v: h.V, mask: h.Mask, scale: T(x.root * x.root)}
	if x.window > 0 {
		first, last := h.Off/scatterChunk, (h.Off+h.Q.Rows-1)/scatterChunk
		p.blocks = last - first + 1
	} else {
		p.sort()
	}
	p.fq, p.gq = p.features(p.q, nil)
	p.fk, p.gk = p.features(p.k, p.mask)
	width := p.v.Cols + 1
	p.sum = h.Take(p.fq.Cols, width)
	p.room = h.Take(scatterChunk, width)
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

// first returns the columns of x but the last one.
func first[T tensor.Float](x tensor.Mat[T]) tensor.Mat[T] {
	x.Cols--
	return x
}

// sort brings queries, and keys that exist, into the order of their projections
// on alpha, each with two numbers more that make all of them as long (Daras et
// al. 2020, SMYRF, arXiv 2010.05315, eq. 8).
func (p *scatterPass[T]) sort() {
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
	longest := p.longest(h.Q, p.queries) + p.longest(h.K, p.keys)
	p.project(along, h.Q, p.queries, longest, 1)
	p.project(along[h.Q.Rows:], h.K, p.keys, longest, 0)
	byProjection(p.queries, along)
	byProjection(p.keys, along[h.Q.Rows:])
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
	p.pieces = (p.perQuery + scatterChunk - 1) / scatterChunk
	p.blocks = clusters * p.pieces
}

// longest returns the largest square of a length of those rows of x.
func (p *scatterPass[T]) longest(x tensor.Mat[T], rows []int32) (most float64) {
	for _, i := range rows {
		length := norm(x.Row(int(i)))
		most = max(most, length*length)
	}
	return most
}

// project sets along to the projections on alpha of rows of x, each with what its
// square lacks to square in one of two places behind it.
func (p *scatterPass[T]) project(along []float64, x tensor.Mat[T], rows []int32, square float64, place int) {
	for _, i := range rows {
		var sum, own float64
		for c, v := range x.Row(int(i)) {
			sum += float64(v) * float64(p.alpha.Data[c])
			own += float64(v) * float64(v)
		}
		along[i] = sum + math.Sqrt(max(square-own, 0))*float64(p.alpha.Data[x.Cols+place])
	}
}

// byProjection sorts places by their projections, equal ones by themselves.
func byProjection(places []int32, along []float64) {
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

// features returns e to ±w·x√scale over the largest of these of each row, and the
// logarithm of what they are to be multiplied by: with -|x|²·scale/2, and what
// their number makes.
func (p *scatterPass[T]) features(x tensor.Mat[T], mask []bool) (f tensor.Mat[T], g []T) {
	h, rows, d := p.h, p.w.Shape[0], x.Cols
	f, g = h.Take(x.Rows, 2*rows), arena.Take[T](h.Scratch, x.Rows)
	left := f
	left.Cols = rows
	h.Product(left, x, tensor.Mat[T]{Data: p.w.Data, Rows: rows, Cols: d, Stride: d}, false, true, false)
	least := math.Log(float64(2*rows)) / 2
	for i := range x.Rows {
		row := f.Row(i)
		plus, minus := row[:rows], row[rows:]
		h.Table.Scale(plus, T(p.root), plus)
		h.Table.Scale(minus, -1, plus)
		top := h.Table.Max(row)
		h.Table.Exp(row, row, top)
		length := norm(x.Row(i)) * p.root
		if g[i] = T(float64(top) - length*length/2 - least); mask != nil && !mask[i] {
			g[i] = T(math.Inf(-1))
		}
	}
	return f, g
}

// block returns block number b.
func (p *scatterPass[T]) block(b int) nearBlock {
	n, m, off := p.q.Rows, p.k.Rows, p.h.Off
	if p.window == 0 {
		c, piece := b/p.pieces, b%p.pieces
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

// near returns which keys of x query i sees exactly, and the end of those that it
// sees at all, all counted from the first of x.
func (p *scatterPass[T]) near(x nearBlock, i int) (from, to, end int) {
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

// add adds to the sum the features f of rows i0 ≤ i < i1 times what goes with them,
// e^g·y.
func (p *scatterPass[T]) add(f tensor.Mat[T], g []T, y tensor.Mat[T], i0, i1 int) {
	for ; i0 < i1; i0 += p.room.Rows {
		end := min(i0+p.room.Rows, i1)
		top := max(p.sumExp, p.h.Table.Max(g[i0:end]))
		if math.IsInf(float64(top), -1) {
			continue
		}
		if top > p.sumExp {
			p.h.Table.Scale(p.sum.Data, exp(p.sumExp-top), p.sum.Data)
			p.sumExp = top
		}
		for i := i0; i < end; i++ {
			p.h.Table.Scale(p.room.Row(i-i0), exp(g[i]-top), y.Row(i))
		}
		p.h.Product(p.sum, f.Slice(i0, end), p.room.Slice(0, end-i0), true, false, true)
	}
}

func exp[T tensor.Float](x T) T { return T(math.Exp(float64(x))) }

// empty reports that nothing has been added to the sum.
func (p *scatterPass[T]) empty() bool { return math.IsInf(float64(p.sumExp), -1) }

// sums calls read for each block when the sum is that of the keys before those
// that it meets one by one, and again when it is that of the keys behind them;
// not where there are none.
func (p *scatterPass[T]) sums(read func(x nearBlock)) {
	p.clearSum()
	done := 0
	for b := range p.blocks {
		x := p.block(b)
		p.add(p.fk, p.gk, p.v, done, x.k0)
		done = max(done, x.k0)
		if !p.empty() {
			read(x)
		}
	}
	if p.h.Causal {
		return
	}
	p.clearSum()
	done = p.k.Rows
	for b := p.blocks - 1; b >= 0; b-- {
		x := p.block(b)
		p.add(p.fk, p.gk, p.v, x.k1, done)
		done = min(done, x.k1)
		if !p.empty() {
			read(x)
		}
	}
}

// logits returns for the pairs of a block the scores of those that are near, the
// logarithms of what products of features are to be multiplied by for others, -Inf
// for those that do not meet; and the products.
func (p *scatterPass[T]) logits(x nearBlock) (s, y tensor.Mat[T]) {
	h, rows, columns := p.h, x.q1-x.q0, x.k1-x.k0
	s, y = h.Take(rows, columns), h.Take(rows, columns)
	h.Product(s, p.q.Slice(x.q0, x.q1), p.k.Slice(x.k0, x.k1), false, true, false)
	if p.window > 0 {
		h.Product(y, p.fq.Slice(x.q0, x.q1), p.fk.Slice(x.k0, x.k1), false, true, false)
	}
	hidden := T(math.Inf(-1))
	for r := range rows {
		i, row := x.q0+r, s.Row(r)
		from, to, end := p.near(x, i)
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

// far multiplies a row of weights by the products y of those pairs that are not
// near.
func far[T tensor.Float](h *attention.Head[T], row, y []T, from, to int) {
	h.Table.Mul(row[:from], row[:from], y)
	h.Table.Mul(row[to:], row[to:], y[to:])
}

// Forward keeps the logarithm of each query's sum of weights.
func (x *scatter[T]) Forward(h *attention.Head[T]) {
	lse := h.Save(h.Q.Rows)
	p := x.open(h)
	o := h.Take(p.q.Rows, p.v.Cols) // and sums of weights, over e^top
	clear(o.Data)
	top := arena.Take[T](h.Scratch, o.Rows)
	for i := range top {
		top[i] = T(math.Inf(-1))
	}
	raise := func(i int, to T) {
		if to > top[i] {
			h.Table.Scale(o.Row(i), exp(top[i]-to), o.Row(i))
			top[i] = to
		}
	}
	for b := range p.blocks {
		mark := h.Scratch.Mark()
		blk := p.block(b)
		s, y := p.logits(blk)
		for r := range s.Rows {
			i, row := blk.q0+r, s.Row(r)
			most := h.Table.Max(row)
			if len(row) == 0 || math.IsInf(float64(most), -1) {
				clear(row)
				continue
			}
			raise(i, most)
			h.Table.Exp(row, row, top[i])
			if p.window > 0 {
				from, to, _ := p.near(blk, i)
				far(h, row, y.Row(r), from, to)
			}
		}
		h.Product(o.Slice(blk.q0, blk.q1), s, p.v.Slice(blk.k0, blk.k1), false, false, true)
		h.Scratch.Reset(mark)
	}
	p.sums(func(blk nearBlock) {
		mark := h.Scratch.Mark()
		part := h.Take(blk.q1-blk.q0, p.v.Cols)
		h.Product(part, p.fq.Slice(blk.q0, blk.q1), p.sum, false, false, false)
		for i := blk.q0; i < blk.q1; i++ {
			raise(i, p.gq[i]+p.sumExp)
			h.Table.Axpy(o.Row(i), exp(p.gq[i]+p.sumExp-top[i]), part.Row(i-blk.q0))
		}
		h.Scratch.Reset(mark)
	})
	h.Unseen = 0
	for i := range o.Rows {
		row, den := o.Row(i)[:h.V.Cols], float64(o.Row(i)[h.V.Cols])
		to := h.Out.Row(p.place(i))
		if !(den > 0) {
			clear(to)
			lse[i] = T(math.Inf(1)) // no weights
			h.Unseen++
			continue
		}
		h.Table.Scale(to, T(1/den), row)
		lse[i] = T(float64(top[i]) + math.Log(den))
	}
}

// place returns where row i of the queries lies in the head.
func (p *scatterPass[T]) place(i int) int {
	if p.queries == nil {
		return i
	}
	return int(p.queries[i])
}

func (x *scatter[T]) Backward(h *attention.Head[T], g *attention.HeadGrads[T]) {
	p, lse := x.open(h), h.Saved
	n, m, dv := p.q.Rows, p.k.Rows, h.V.Cols
	// What comes to weights: do_i·v_j - do_i·o_i, the products of u_i and [v_j, 1].
	do, along := h.Take(n, dv), arena.Take[T](h.Scratch, n)
	for i := range n {
		row := p.place(i)
		copy(do.Row(i), g.DOut.Row(row))
		along[i] = -h.Table.Dot(g.DOut.Row(row), h.Out.Row(row))
	}
	u := p.withColumn(do, along)
	dq, dk, dval := h.Take(n, h.Q.Cols), h.Take(m, h.Q.Cols), h.Take(m, dv)
	// Gradients of features, but for a factor: the features themselves.
	eq, ek := h.Take(n, p.fq.Cols), h.Take(m, p.fk.Cols)
	for _, y := range [5]tensor.Mat[T]{dq, dk, dval, eq, ek} {
		clear(y.Data)
	}
	for b := range p.blocks {
		mark := h.Scratch.Mark()
		p.nearGrad(p.block(b), lse, u, dq, dk, dval, eq, ek)
		h.Scratch.Reset(mark)
	}
	p.sums(func(blk nearBlock) {
		mark := h.Scratch.Mark()
		part := h.Take(blk.q1-blk.q0, eq.Cols)
		h.Product(part, u.Slice(blk.q0, blk.q1), p.sum, false, true, false)
		for i := blk.q0; i < blk.q1; i++ {
			h.Table.Axpy(eq.Row(i), exp(p.gq[i]+p.sumExp-lse[i]), part.Row(i-blk.q0))
		}
		h.Scratch.Reset(mark)
	})
	p.keySums(lse, u, dval, ek)
	p.featuresGrad(dq, p.q, p.fq, eq)
	p.featuresGrad(dk, p.k, p.fk, ek)
	if p.queries == nil {
		copy(g.DQ.Data, dq.Data)
		copy(g.DK.Data, dk.Data)
		copy(g.DV.Data, dval.Data)
		return
	}
	g.Clear()
	for i, row := range p.queries {
		copy(g.DQ.Row(int(row)), dq.Row(i))
	}
	for j, row := range p.keys {
		copy(g.DK.Row(int(row)), dk.Row(j))
		copy(g.DV.Row(int(row)), dval.Row(j))
	}
}

// nearGrad adds the gradients that come through the pairs of a block.
func (p *scatterPass[T]) nearGrad(x nearBlock, lse []T, u, dq, dk, dv, eq, ek tensor.Mat[T]) {
	h := p.h
	a, y := p.logits(x)
	da, b := h.Take(a.Rows, a.Cols), h.Take(a.Rows, a.Cols)
	h.Product(da, u.Slice(x.q0, x.q1), p.v.Slice(x.k0, x.k1), false, true, false)
	for r := range a.Rows {
		i, row, d := x.q0+r, a.Row(r), da.Row(r)
		from, to, _ := p.near(x, i)
		h.Table.Exp(row, row, lse[i])
		if p.window > 0 {
			h.Table.Mul(b.Row(r), row, d)
			clear(b.Row(r)[from:to])
			far(h, row, y.Row(r), from, to)
		}
		h.Table.Mul(d[from:to], d[from:to], row[from:to])
		h.Table.Scale(d[from:to], p.scale, d[from:to])
		clear(d[:from])
		clear(d[to:])
	}
	q, k := p.q.Slice(x.q0, x.q1), p.k.Slice(x.k0, x.k1)
	h.Product(dv.Slice(x.k0, x.k1), a, first(u.Slice(x.q0, x.q1)), true, false, true)
	h.Product(dq.Slice(x.q0, x.q1), da, k, false, false, true)
	h.Product(dk.Slice(x.k0, x.k1), da, q, true, false, true)
	if p.window > 0 {
		h.Product(eq.Slice(x.q0, x.q1), b, p.fk.Slice(x.k0, x.k1), false, false, true)
		h.Product(ek.Slice(x.k0, x.k1), b, p.fq.Slice(x.q0, x.q1), true, false, true)
	}
}

// keySums adds the gradients of values and of keys' features that come from
// queries that meet them in sums.
func (p *scatterPass[T]) keySums(lse []T, u, dv, ek tensor.Mat[T]) {
	h, g := p.h, arena.Take[T](p.h.Scratch, p.q.Rows)
	for i := range g {
		g[i] = p.gq[i] - lse[i]
	}
	read := func(j0, j1 int) {
		for ; j0 < j1 && !p.empty(); j0 += scatterChunk {
			mark := h.Scratch.Mark()
			end := min(j0+scatterChunk, j1)
			de, o := h.Take(end-j0, ek.Cols), h.Take(end-j0, p.v.Cols)
			h.Product(de, p.v.Slice(j0, end), p.sum, false, true, false)
			h.Product(o, p.fk.Slice(j0, end), p.sum, false, false, false)
			for j := j0; j < end; j++ {
				part := exp(p.gk[j] + p.sumExp)
				h.Table.Axpy(ek.Row(j), part, de.Row(j-j0))
				h.Table.Axpy(dv.Row(j), part, o.Row(j - j0)[:dv.Cols])
			}
			h.Scratch.Reset(mark)
		}
	}
	p.clearSum()
	for b := p.blocks - 1; b >= 0; b-- { // of queries after the keys
		x, from := p.block(b), 0
		if b > 0 {
			from = p.block(b - 1).k0
		}
		p.add(p.fq, g, u, x.q0, x.q1)
		read(from, x.k0)
	}
	if h.Causal {
		return
	}
	p.clearSum()
	for b := range p.blocks { // and before them
		x, end := p.block(b), p.k.Rows
		if b+1 < p.blocks {
			end = p.block(b + 1).k1
		}
		p.add(p.fq, g, u, x.q0, x.q1)
		read(x.k1, end)
	}
}

// featuresGrad adds to dx what comes through features f: of their logarithms, e∘f.
func (p *scatterPass[T]) featuresGrad(dx, x, f, e tensor.Mat[T]) {
	h, rows := p.h, p.w.Shape[0]
	for i := range e.Rows {
		row := e.Row(i)
		h.Table.Mul(row, row, f.Row(i))
		h.Table.Axpy(dx.Row(i), T(-p.root*p.root)*h.Table.Sum(row), x.Row(i))
		h.Table.Axpy(row[:rows], -1, row[rows:])
		h.Table.Scale(row[:rows], T(p.root), row[:rows])
	}
	du := e
	du.Cols = rows
	h.Product(dx, du, tensor.Mat[T]{Data: p.w.Data, Rows: rows, Cols: x.Cols, Stride: x.Cols}, false, false, true)
}

func (x *scatter[T]) Cost(s attention.Shape) attention.Cost {
	n, m, d, dv := float64(s.N), float64(s.M), float64(s.D), float64(s.Dv)
	rows, sides := float64(x.w.Shape[0]), 2.0
	near, products := float64(x.cluster), d
	if x.window > 0 {
		near, products = float64(x.window+2*scatterChunk), d+2*rows
	}
	if s.Causal {
		sides, near = 1, near/2
	}
	near = min(near, m)
	return attention.Cost{
		FLOPs: 2*(n+m)*rows*d + 2*n*near*(products+dv) + sides*2*(n+m)*2*rows*(dv+1),
		Bytes: sizeOf[T]() * ((n+m)*(2*rows+d+1) + n*(dv+2) + m*(dv+1) + 2*rows*(dv+1) + 2*scatterChunk*near),
	}
}
