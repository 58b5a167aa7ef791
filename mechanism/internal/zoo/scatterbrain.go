package zoo

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// scatterChunk is the number of queries computed at once, and of tokens that enter sums
// together.
const scatterChunk = 64

// scatterAttention uses exact weights for near pairs of query and key, and products of
// random features of exp(q·k·scale) for the others (Chen et al. 2021, section 4).
type scatterAttention struct {
	setting         string
	window, cluster int     // the one that is not used is 0
	rootScale       float64 // √scale
	w, alpha        *param.Param
	constants       param.Set
}

func NewScatterbrain(r *entry.Reader) (headwise.Function, error) {
	d := r.ParamWidth()
	x := new(scatterAttention)
	support, err := r.Choice("support", "local", "lsh")
	if err != nil {
		return nil, err
	}
	if x.window, err = r.Integer("window", 1, entry.MaxSettingTokens); err != nil {
		return nil, err
	}
	if x.cluster, err = r.Integer("cluster", 1, 1<<16); err != nil {
		return nil, err
	}
	rows := max(1, int(float64(d)*math.Log(float64(d))))
	if r.Text("features") != "D·ln(D)" {
		if rows, err = r.Integer("features", 1, 1<<14); err != nil {
			return nil, err
		}
	}
	projection, err := r.Choice("projection", "orthogonal", "iid")
	if err != nil {
		return nil, err
	}
	scale, err := r.SoftmaxScale()
	if err != nil {
		return nil, err
	}
	key, err := r.Key()
	if err != nil {
		return nil, err
	}
	x.rootScale = math.Sqrt(scale)
	if scale == 0 {
		x.rootScale = math.Pow(float64(d), -0.25)
	}
	if err := r.Room("projection", max(rows, d), d); err != nil { // drawn in squares
		return nil, err
	}
	x.w = x.constants.New("projection", false, rows, d)
	DrawProjection(x.w.Data, rows, d, projection == "orthogonal", false, key.Fold(1))
	if support == "local" {
		x.cluster = 0
	} else {
		x.window = 0
		x.alpha = x.constants.New("alpha", false, d+2)
		for i := range x.alpha.Data {
			x.alpha.Data[i] = float(float32(key.Fold(2).Normal(uint64(i)))) // the same in both precisions
		}
	}
	x.setting = fmt.Sprintf("scatterbrain window=%d cluster=%d features=%d scale=%s", x.window, x.cluster, rows, entry.FormatScale(scale))
	return x, nil
}

func (x *scatterAttention) Traits() attention.Traits {
	t := attention.Traits{Name: "scatterbrain", Positive: true, Causal: x.window > 0, PlacedQueries: true, MixedQueries: x.cluster > 0}
	if !t.Causal {
		t.NoCausal = "sorting puts tokens into blocks by later ones, too"
	}
	return t
}

func (x *scatterAttention) Setting() string       { return x.setting }
func (x *scatterAttention) Params() *param.Set    { return nil }
func (x *scatterAttention) Constants() *param.Set { return &x.constants }

func (x *scatterAttention) Check(c *attention.Call) error {
	if d := x.w.Shape[1]; c.Q.D != d {
		return fmt.Errorf("q: has width %d, rows of the projection have %d", c.Q.D, d)
	}
	return nil
}

// Forward saves the logarithm of the sum of weights of each query.
func (x *scatterAttention) Forward(h *headwise.Head) {
	lse := h.SaveBuffer(h.Q.Rows)
	p := x.newPass(h)
	o := h.TakeScratch(p.q.Rows, p.v.Cols) // and sums of weights, over e^top
	clear(o.Data)
	top := arena.Take[float](h.Scratch, o.Rows)
	for i := range top {
		top[i] = float(math.Inf(-1))
	}
	raise := func(i int, to float) {
		if to > top[i] {
			h.Table.Scale(o.Row(i), expFloat(top[i]-to), o.Row(i))
			top[i] = to
		}
	}
	for b := range p.blocks {
		mark := h.Scratch.Mark()
		blk := p.nearBlock(b)
		s, y := p.blockScores(blk)
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
				from, to, _ := p.nearKeys(blk, i)
				scaleFarWeights(h, row, y.Row(r), from, to)
			}
		}
		h.Multiply(o.Slice(blk.q0, blk.q1), s, p.v.Slice(blk.k0, blk.k1), false, false, true)
		h.Scratch.Reset(mark)
	}
	p.forEachFarSum(func(blk nearBlock) {
		mark := h.Scratch.Mark()
		part := h.TakeScratch(blk.q1-blk.q0, p.v.Cols)
		h.Multiply(part, p.fq.Slice(blk.q0, blk.q1), p.sum, false, false, false)
		for i := blk.q0; i < blk.q1; i++ {
			raise(i, p.gq[i]+p.sumExp)
			h.Table.Axpy(o.Row(i), expFloat(p.gq[i]+p.sumExp-top[i]), part.Row(i-blk.q0))
		}
		h.Scratch.Reset(mark)
	})
	h.UnseenQueries = 0
	for i := range o.Rows {
		row, den := o.Row(i)[:h.V.Cols], float64(o.Row(i)[h.V.Cols])
		to := h.Out.Row(p.queryRow(i))
		switch {
		case den == 0 && math.IsInf(float64(top[i]), -1): // its scores have overflowed
			den = math.NaN()
		case den == 0:
			clear(to)
			lse[i] = float(math.Inf(1)) // no weights
			h.CountIllConditioned(p.queryRow(i))
			continue
		}
		h.Table.Scale(to, float(1/den), row)
		lse[i] = float(float64(top[i]) + math.Log(den))
	}
}

// queryRow returns the row of the head that row i of the sorted queries comes from.
func (p *scatterPass) queryRow(i int) int {
	if p.queries == nil {
		return i
	}
	return int(p.queries[i])
}

func (x *scatterAttention) Backward(h *headwise.Head, g *headwise.Grads) {
	p, lse := x.newPass(h), h.Saved
	n, m, dv := p.q.Rows, p.k.Rows, h.V.Cols
	// The gradient of a weight is do_i·v_j - do_i·o_i, the product of u_i and [v_j, 1].
	do, along := h.TakeScratch(n, dv), arena.Take[float](h.Scratch, n)
	for i := range n {
		row := p.queryRow(i)
		copy(do.Row(i), g.DOut.Row(row))
		along[i] = -h.Table.Dot(g.DOut.Row(row), h.Out.Row(row))
	}
	u := p.withColumn(do, along)
	dq, dk, dval := h.TakeScratch(n, h.Q.Cols), h.TakeScratch(m, h.Q.Cols), h.TakeScratch(m, dv)
	// Gradients of features, divided by the features.
	eq, ek := h.TakeScratch(n, p.fq.Cols), h.TakeScratch(m, p.fk.Cols)
	for _, y := range [5]tensor.Mat{dq, dk, dval, eq, ek} {
		clear(y.Data)
	}
	for b := range p.blocks {
		mark := h.Scratch.Mark()
		p.nearGrad(p.nearBlock(b), lse, u, dq, dk, dval, eq, ek)
		h.Scratch.Reset(mark)
	}
	p.forEachFarSum(func(blk nearBlock) {
		mark := h.Scratch.Mark()
		part := h.TakeScratch(blk.q1-blk.q0, eq.Cols)
		h.Multiply(part, u.Slice(blk.q0, blk.q1), p.sum, false, true, false)
		for i := blk.q0; i < blk.q1; i++ {
			h.Table.Axpy(eq.Row(i), expFloat(p.gq[i]+p.sumExp-lse[i]), part.Row(i-blk.q0))
		}
		h.Scratch.Reset(mark)
	})
	p.addKeySumGrads(lse, u, dval, ek)
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

// nearGrad adds the gradients of the pairs of a block. eq and ek are gradients of
// features divided by the features.
func (p *scatterPass) nearGrad(x nearBlock, lse []float, u, dq, dk, dv, eq, ek tensor.Mat) {
	h := p.h
	a, y := p.blockScores(x)
	da, b := h.TakeScratch(a.Rows, a.Cols), h.TakeScratch(a.Rows, a.Cols)
	h.Multiply(da, u.Slice(x.q0, x.q1), p.v.Slice(x.k0, x.k1), false, true, false)
	for r := range a.Rows {
		i, row, d := x.q0+r, a.Row(r), da.Row(r)
		from, to, _ := p.nearKeys(x, i)
		h.Table.Exp(row, row, lse[i])
		if p.window > 0 {
			h.Table.Mul(b.Row(r), row, d)
			clear(b.Row(r)[from:to])
			scaleFarWeights(h, row, y.Row(r), from, to)
		}
		h.Table.Mul(d[from:to], d[from:to], row[from:to])
		h.Table.Scale(d[from:to], p.scale, d[from:to])
		clear(d[:from])
		clear(d[to:])
	}
	q, k := p.q.Slice(x.q0, x.q1), p.k.Slice(x.k0, x.k1)
	h.Multiply(dv.Slice(x.k0, x.k1), a, dropLastColumn(u.Slice(x.q0, x.q1)), true, false, true)
	h.Multiply(dq.Slice(x.q0, x.q1), da, k, false, false, true)
	h.Multiply(dk.Slice(x.k0, x.k1), da, q, true, false, true)
	if p.window > 0 {
		h.Multiply(eq.Slice(x.q0, x.q1), b, p.fk.Slice(x.k0, x.k1), false, false, true)
		h.Multiply(ek.Slice(x.k0, x.k1), b, p.fq.Slice(x.q0, x.q1), true, false, true)
	}
}

// addKeySumGrads adds to dv and ek the gradients from queries that meet keys in sums.
func (p *scatterPass) addKeySumGrads(lse []float, u, dv, ek tensor.Mat) {
	h, g := p.h, arena.Take[float](p.h.Scratch, p.q.Rows)
	for i := range g {
		g[i] = p.gq[i] - lse[i]
	}
	read := func(j0, j1 int) {
		for ; j0 < j1 && !p.isSumEmpty(); j0 += scatterChunk {
			mark := h.Scratch.Mark()
			end := min(j0+scatterChunk, j1)
			de, o := h.TakeScratch(end-j0, ek.Cols), h.TakeScratch(end-j0, p.v.Cols)
			h.Multiply(de, p.v.Slice(j0, end), p.sum, false, true, false)
			h.Multiply(o, p.fk.Slice(j0, end), p.sum, false, false, false)
			for j := j0; j < end; j++ {
				part := expFloat(p.gk[j] + p.sumExp)
				h.Table.Axpy(ek.Row(j), part, de.Row(j-j0))
				h.Table.Axpy(dv.Row(j), part, o.Row(j - j0)[:dv.Cols])
			}
			h.Scratch.Reset(mark)
		}
	}
	p.clearSum()
	for b := p.blocks - 1; b >= 0; b-- { // of queries after the keys
		x, from := p.nearBlock(b), 0
		if b > 0 {
			from = p.nearBlock(b - 1).k0
		}
		p.addRows(p.fq, g, u, x.q0, x.q1)
		read(from, x.k0)
	}
	if h.Causal {
		return
	}
	p.clearSum()
	for b := range p.blocks { // and before them
		x, end := p.nearBlock(b), p.k.Rows
		if b+1 < p.blocks {
			end = p.nearBlock(b + 1).k1
		}
		p.addRows(p.fq, g, u, x.q0, x.q1)
		read(x.k1, end)
	}
}

// featuresGrad adds to dx [n, D] the gradient through features f, from the gradient e∘f
// of their logarithms. It overwrites e.
func (p *scatterPass) featuresGrad(dx, x, f, e tensor.Mat) {
	h, rows := p.h, p.w.Shape[0]
	for i := range e.Rows {
		row := e.Row(i)
		h.Table.Mul(row, row, f.Row(i))
		h.Table.Axpy(dx.Row(i), float(-p.rootScale*p.rootScale)*h.Table.Sum(row), x.Row(i))
		h.Table.Axpy(row[:rows], -1, row[rows:])
		h.Table.Scale(row[:rows], float(p.rootScale), row[:rows])
	}
	du := e
	du.Cols = rows
	h.Multiply(dx, du, tensor.Mat{Data: p.w.Data, Rows: rows, Cols: x.Cols, Stride: x.Cols}, false, false, true)
}

func (x *scatterAttention) Cost(s attention.Shape) headwise.Cost {
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
	return headwise.Cost{
		FLOPs: 2*(n+m)*rows*d + 2*n*near*(products+dv) + sides*2*(n+m)*2*rows*(dv+1),
		Bytes: entry.ElementBytes() * ((n+m)*(2*rows+d+1) + n*(dv+2) + m*(dv+1) + 2*rows*(dv+1) + 2*scatterChunk*near),
	}
}
