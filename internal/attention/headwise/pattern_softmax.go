package headwise

import (
	"math"
	"sync"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/rowscale"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// PatternSoftmax is softmax attention over the pairs of a Pattern: weights are exp(scale·q·k +
// bias), divided by their sum. It may be used concurrently.
//
// Scores are computed in tiles of up to pairQueries queries and pairKeys keys and are not kept.
// Only visible parts of a tile are computed. Tiles start at multiples of pairKeys among the
// keys of a part, so that the order in which a query's sums are added depends only on the keys
// that it sees.
type PatternSoftmax struct {
	Scale float64  // 0: 1/√D
	Bias  PairBias // nil: none
	// Cap c replaces the scores s = scale·q·k + bias by c·tanh(s/c); 0: no cap.
	Cap float64
	// IsWindow promises that patterns have one part, with all queries and keys, whose bounds
	// never decrease from one query to the next. It cannot be combined with Bias or Cap.
	IsWindow bool

	passes sync.Pool // of *pairPass
}

// PairBias is a bias that depends on the pair of query and key.
type PairBias interface {
	// Add adds the bias to the scores of a tile.
	Add(t *PatternTile)
	// Grad adds the gradient of the bias to g. t holds the gradients of the scores.
	Grad(t *PatternTile, g *Grads)
}

const (
	pairQueries = 64
	pairKeys    = 128
)

// PatternTile is a tile of scores: some queries of a part and a range of its keys.
type PatternTile struct {
	Head *Head
	// Scale is the factor of q·k. Add is called before the scores are multiplied by it.
	Scale             tensor.Float
	S                 []tensor.Float // scores [Rows, LD]
	Rows, Columns, LD int

	queries, keys *RowSet
	query, key    int     // numbers of the first query and key
	lo, hi        []int32 // bounds of all queries of the part
	border        int     // border of tiles, at or before the first key
	end           int     // end of the keys that some row sees
}

// Query returns the index of row r among the head's queries.
func (t *PatternTile) Query(r int) int { return t.queries.RowAt(t.query + r) }

// Key returns the index of column c among the head's keys.
func (t *PatternTile) Key(c int) int { return t.keys.RowAt(t.key + c) }

// Visible returns the columns from ≤ c < end that row r sees, masked keys included.
func (t *PatternTile) Visible(r int) (from, end int) {
	from = min(max(int(t.lo[t.query+r])-t.key, 0), t.Columns)
	return from, max(min(int(t.hi[t.query+r])-t.key, t.Columns), from)
}

// begin sets t before the first tile of n queries of a part from number a on.
func (t *PatternTile) begin(p *Pattern, x *patch, a, n int) {
	t.queries, t.keys, t.query, t.Rows = &x.queries, &x.keys, a, n
	t.lo, t.hi = p.boundsOf(x)
	from, end := x.keys.N, 0
	for r := a; r < a+n; r++ {
		if lo, hi := max(int(t.lo[r]), 0), min(int(t.hi[r]), x.keys.N); lo < hi {
			from, end = min(from, lo), max(end, hi)
		}
	}
	t.key, t.end, t.Columns = from-from%kernel.Lanes, end, 0
	t.border = t.key - t.key%pairKeys - pairKeys
}

// next moves to the next tile and reports whether there is one.
func (t *PatternTile) next() bool {
	t.border += pairKeys
	t.key = max(t.key, t.border)
	t.Columns = min(t.border+pairKeys, t.end) - t.key
	return t.Columns > 0
}

// pairPass is Forward or Backward of a head over its pairs.
type pairPass struct {
	PatternTile
	h     *Head
	t     *kernel.Table[float]
	bias  PairBias
	cap   float64 // of scores before scale; 0: none
	log   float   // factor that turns scores into exponents of 2
	d, dv int
	pad   int     // elements of a padded key
	padv  int     // and value
	bt    []float // keys, transposed [d, LD]
	// For the queries of a tile: base and top, the powers of 2 that divide weights;
	// sums of weights, in the tile and in total; outputs [Rows, padv].
	base, top, sum, den, o []float
	overflowed             []int32 // of all queries: 1 where some of its scores have overflowed
}

func (s *PatternSoftmax) pass(h *Head) *pairPass {
	scale := s.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(h.Q.Cols))
	}
	p, _ := s.passes.Get().(*pairPass)
	if p == nil {
		p = new(pairPass)
	}
	ar, ld := h.Scratch, scratch.Stride[float](pairKeys)
	*p = pairPass{
		PatternTile: PatternTile{Head: h, Scale: float(scale), S: arena.Take[float](ar, pairQueries*ld), LD: ld},
		h:           h, t: h.Table, bias: s.Bias, cap: s.Cap / scale, log: float(scale * math.Log2E),
		d: h.Q.Cols, dv: h.V.Cols, pad: kernel.Pad(h.Q.Cols), padv: kernel.Pad(h.V.Cols),
	}
	p.bt = arena.Take[float](ar, p.d*ld)
	p.base = arena.Take[float](ar, pairQueries)
	p.top, p.sum, p.den = arena.Take[float](ar, pairQueries), arena.Take[float](ar, pairQueries), arena.Take[float](ar, pairQueries)
	p.o = arena.Take[float](ar, pairQueries*p.padv)
	return p
}

func (s *PatternSoftmax) release(p *pairPass) {
	*p = pairPass{}
	s.passes.Put(p)
}

// Forward sets h.Out [n,dv], h.UnseenQueries and lse [n], which Backward reads. lse
// holds the logarithms to base 2 of the sums of weights, -Inf for queries without a
// visible key.
func (s *PatternSoftmax) Forward(h *Head, lse []tensor.Float, pairs *Pattern) {
	if s.IsWindow {
		s.windowForward(h, lse, pairs)
		return
	}
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	p := s.pass(h)
	defer s.release(p)
	n := h.Q.Rows
	den, base, top := arena.TakeZeros[float](h.Scratch, n), arena.TakeZeros[float](h.Scratch, n), arena.TakeZeros[float](h.Scratch, n)
	p.overflowed = arena.TakeZeros[int32](h.Scratch, n)
	for i := range pairs.patches {
		x := &pairs.patches[i]
		for a := 0; a < x.queries.N; a += pairQueries {
			p.begin(pairs, x, a, min(pairQueries, x.queries.N-a))
			p.attend()
			p.gather(den, base, top)
		}
	}
	h.UnseenQueries = 0
	for i, sum := range den {
		row := h.Out.Row(i)
		if sum == 0 && p.overflowed[i] != 0 {
			h.Table.Scale(row, float(math.NaN()), row)
			lse[i] = float(math.NaN())
			continue
		}
		if sum == 0 {
			clear(row)
			lse[i] = float(math.Inf(-1))
			h.UnseenQueries++
			continue
		}
		h.Table.Scale(row, float(1/float64(sum)), row)
		lse[i] = float(float64(base[i])*float64(p.log) + float64(top[i]) + math.Log2(float64(sum)))
	}
}

// attend sets o, den, base and top from the visible keys of a part's queries.
func (p *pairPass) attend() {
	ar := p.h.Scratch
	clear(p.den[:p.Rows])
	clear(p.base[:p.Rows])
	clear(p.top[:p.Rows])
	mark := ar.Mark()
	defer ar.Reset(mark)
	q, ldq := p.rowsOf(p.h.Q, p.queries, p.query, p.Rows)
	for first := true; p.next(); first = false {
		mark := ar.Mark()
		p.scores(q, ldq)
		for r := range p.Rows {
			p.weigh(r)
		}
		v, ldv := p.padded(p.h.V, p.keys, p.key, p.Columns)
		p.product(p.S, v, ldv, p.padv, p.o, !first)
		ar.Reset(mark)
	}
}

// rowsOf returns n rows of x from number i on, where they are or copied.
func (p *pairPass) rowsOf(x tensor.Mat, at *RowSet, i, n int) (rows []float, ld int) {
	if step, even := at.rowStep(); even {
		return x.Data[at.RowAt(i)*x.Stride:], step * x.Stride
	}
	return p.padded(x, at, i, n)
}

// padded returns n rows of x from number i on, padded with zeros to whole vectors for products.
func (p *pairPass) padded(x tensor.Mat, at *RowSet, i, n int) (rows []float, ld int) {
	ld = kernel.Pad(x.Cols)
	if step, even := at.rowStep(); even && ld == x.Cols {
		return x.Data[at.RowAt(i)*x.Stride:], step * x.Stride
	}
	rows = arena.Take[float](p.h.Scratch, n*ld)
	for r := range n {
		row := rows[r*ld:][:ld]
		clear(row[copy(row, x.Row(at.RowAt(i+r))):])
	}
	return rows, ld
}

// scores sets S to the scores of queries q.
func (p *pairPass) scores(q []float, ldq int) {
	k, ldk := p.rowsOf(p.h.K, p.keys, p.key, p.Columns)
	p.t.Transpose(p.bt, p.LD, k, ldk, p.Columns, p.d)
	p.t.Block(p.Rows, kernel.Pad(p.Columns), p.d, q, ldq, 1, p.bt, p.LD, p.S, p.LD, false)
	if p.bias != nil {
		p.bias.Add(&p.PatternTile)
	}
	for r := 0; r < p.Rows && p.cap > 0; r++ {
		row := p.S[r*p.LD:][:p.Columns]
		kernel.Cap(row, row, p.cap)
	}
}

// hide sets the columns of a row from start on that the row does not see to x.
func (p *pairPass) hide(row []float, start, from, end int, x float) {
	for c := start; c < from; c++ {
		row[c] = x
	}
	if p.h.Mask == nil {
		return
	}
	for c := from; c < end; c++ {
		if !p.h.Mask[p.Key(c)] {
			row[c] = x
		}
	}
}

// weigh turns the scores of row r into weights relative to the row's power and adds
// them to den. The power is 0 or the largest score so far, rounded up. The outputs of
// the row in o are rescaled to it.
func (p *pairPass) weigh(r int) {
	row := p.S[r*p.LD:][:p.Columns]
	from, end := p.Visible(r)
	if from == end {
		clear(row)
		return
	}
	// The sum begins at a multiple of Lanes for any beginning of the tile.
	start := from - from%kernel.Lanes
	least := float(math.Inf(-1))
	p.hide(row, start, from, end, least)
	clear(row[:start])
	clear(row[end:])
	most := p.t.Max(row[from:end])
	if most == least {
		clear(row)
		if p.overflows(r, from, end) {
			p.overflowed[p.Query(r)] = 1
		}
		return
	}
	power := rowscale.PowerOf(most, p.log, 0)
	by := power.Exceed(rowscale.Power{Base: p.base[r], Top: p.top[r]}, p.log)
	switch {
	case p.den[r] == 0:
		p.base[r], p.top[r] = power.Base, power.Top
	case !(by <= 0):
		fade := float(math.Exp2(-by))
		p.den[r] *= fade
		out := p.o[r*p.padv:][:p.padv]
		p.t.Scale(out, fade, out)
		p.base[r], p.top[r] = power.Base, power.Top
	}
	rowscale.Lower(row[start:end], p.base[r])
	sum := p.sum[r : r+1]
	clear(sum)
	p.t.ExpRows(row[start:], p.LD, end-start, p.log, p.top[r:][:1], sum)
	p.den[r] += sum[0]
}

// overflows reports whether a score of row r with a key from ≤ c < end overflows the element
// type.
func (p *pairPass) overflows(r, from, end int) bool {
	q := p.h.Q.Row(p.Query(r))
	for c := from; c < end; c++ {
		if !p.h.IsUnmasked(p.Key(c)) {
			continue
		}
		var score float64
		for i, x := range p.h.K.Row(p.Key(c)) {
			score += float64(q[i]) * float64(x)
		}
		if y := float(score); y-y != 0 {
			return true
		}
	}
	return false
}

// product adds w [Rows, Columns], in rows of S, times x to o, or sets o to it.
// A row of x that is not finite is added only to the rows that see it, since
// 0·∞ is not 0.
func (p *pairPass) product(w, x []float, ldx, width int, o []float, acc bool) {
	ar := p.h.Scratch
	zeros, none := arena.Take[float](ar, p.Columns), arena.TakeZeros[float](ar, width)
	p.t.Dots(zeros, x, ldx, none)
	finite := true
	for _, z := range zeros {
		finite = finite && z == 0
	}
	if finite {
		p.t.Block(p.Rows, width, p.Columns, w, p.LD, 1, x, ldx, o, width, acc)
		return
	}
	tame := arena.Take[float](ar, p.Columns*width)
	for c, z := range zeros {
		row := tame[c*width:][:width]
		if clear(row); z == 0 {
			copy(row, x[c*ldx:])
		}
	}
	p.t.Block(p.Rows, width, p.Columns, w, p.LD, 1, tame, width, o, width, acc)
	for r := range p.Rows {
		from, end := p.Visible(r)
		for c := from; c < end; c++ {
			if zeros[c] != 0 {
				p.t.Axpy(o[r*width:][:width], w[r*p.LD+c], x[c*ldx:])
			}
		}
	}
}

// gather adds the outputs of a part's queries, before division, to the head's outputs,
// and their denominators to den, relative to the powers base and top.
func (p *pairPass) gather(den, base, top []float) {
	for r := range p.Rows {
		sum := p.den[r]
		if sum == 0 {
			continue
		}
		i := p.Query(r)
		row, o := p.h.Out.Row(i), p.o[r*p.padv:][:p.dv]
		power := rowscale.Power{Base: p.base[r], Top: p.top[r]}
		by := power.Exceed(rowscale.Power{Base: base[i], Top: top[i]}, p.log)
		switch {
		case den[i] == 0:
			copy(row, o)
			den[i], base[i], top[i] = sum, power.Base, power.Top
		case by <= 0:
			fade := float(math.Exp2(by))
			p.t.Axpy(row, fade, o)
			den[i] += fade * sum
		default:
			fade := float(math.Exp2(-by))
			p.t.Scale(row, fade, row)
			p.t.Add(row, row, o)
			den[i], base[i], top[i] = fade*den[i]+sum, power.Base, power.Top
		}
	}
}

// Backward adds the gradients through the pairs to g.DQ, g.DK and g.DV. lse [n] is the result
// of Forward, out [n,dv] holds its outputs, and dout [n,dv] their gradient.
func (s *PatternSoftmax) Backward(h *Head, g *Grads, out, dout tensor.Mat, lse []tensor.Float, pairs *Pattern) {
	if s.IsWindow {
		s.windowBackward(h, g, out, dout, lse, pairs)
		return
	}
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	p := s.pass(h)
	defer s.release(p)
	delta := arena.Take[float](h.Scratch, out.Rows)
	for i := range delta {
		delta[i] = -h.Table.Dot(dout.Row(i), out.Row(i))
	}
	power := arena.Take[float](h.Scratch, len(lse))
	copy(power, lse)
	base := p.findFar(pairs, power)
	for i := range pairs.patches {
		x := &pairs.patches[i]
		for a := 0; a < x.queries.N; a += pairQueries {
			p.begin(pairs, x, a, min(pairQueries, x.queries.N-a))
			p.attendGrad(g, dout, base, power, delta)
		}
	}
}

// findFar returns the base of each query's scores, nil if all bases are 0. It subtracts the
// bases from lse.
func (p *pairPass) findFar(pairs *Pattern, lse []float) (base []float) {
	ar := p.h.Scratch
	far := rowscale.FarRowsOf(ar, lse)
	if far == nil {
		return nil
	}
	for i := range pairs.patches {
		x := &pairs.patches[i]
		for a := 0; a < x.queries.N; a += pairQueries {
			p.begin(pairs, x, a, min(pairQueries, x.queries.N-a))
			mark := ar.Mark()
			q, ldq := p.rowsOf(p.h.Q, p.queries, p.query, p.Rows)
			for p.next() {
				mark := ar.Mark()
				p.scores(q, ldq)
				for r := range p.Rows {
					row := p.S[r*p.LD:][:p.Columns]
					from, end := p.Visible(r)
					p.hide(row, from, from, end, float(math.Inf(-1)))
					far.Add(p.t, p.Query(r), row[from:end], p.log, 0)
				}
				ar.Reset(mark)
			}
			ar.Reset(mark)
		}
	}
	far.Finish()
	return far.Base
}

// attendGrad adds the gradients of the queries of a part. With weights W over
// their sum and W' = do·Vᵀ: dS = W∘(W' - do·o), dq += scale·dS·K,
// dk += scale·dSᵀ·Q, dv += Wᵀ·do.
func (p *pairPass) attendGrad(g *Grads, dout tensor.Mat, base, lse, delta []float) {
	ar := p.h.Scratch
	mark := ar.Mark()
	defer ar.Reset(mark)
	q, ldq := p.padded(p.h.Q, p.queries, p.query, p.Rows)
	do, ldo := p.padded(dout, p.queries, p.query, p.Rows)
	top, add := arena.Take[float](ar, p.Rows), arena.Take[float](ar, p.Rows)
	sum := arena.TakeZeros[float](ar, p.Rows)
	for r := range p.Rows {
		// A query without visible keys has no weights relative to any power of 2.
		top[r], add[r] = max(lse[p.Query(r)], -math.MaxFloat32), delta[p.Query(r)]
	}
	vt, ds := arena.Take[float](ar, p.dv*p.LD), arena.Take[float](ar, pairQueries*p.LD)
	dq := arena.Take[float](ar, p.Rows*p.pad)
	dk, dv := arena.Take[float](ar, pairKeys*p.pad), arena.Take[float](ar, pairKeys*p.padv)
	var slopes []float // of capped scores
	if p.cap > 0 {
		slopes = arena.Take[float](ar, pairQueries*p.LD)
	}
	first := true
	for ; p.next(); first = false {
		mark := ar.Mark()
		p.scores(q, ldq)
		for r := 0; r < p.Rows && p.cap > 0; r++ {
			kernel.CapSlope(slopes[r*p.LD:][:p.Columns], p.S[r*p.LD:][:p.Columns], p.cap)
		}
		least := float(math.Inf(-1))
		for r := range p.Rows {
			row := p.S[r*p.LD:][:p.Columns]
			from, end := p.Visible(r)
			p.hide(row, 0, from, end, least)
			for c := end; c < p.Columns; c++ {
				row[c] = least
			}
			if base != nil {
				rowscale.Lower(row, base[p.Query(r)])
			}
		}
		p.t.ExpRows(p.S, p.LD, p.Columns, p.log, top, sum)
		v, ldv := p.rowsOf(p.h.V, p.keys, p.key, p.Columns)
		p.t.Transpose(vt, p.LD, v, ldv, p.Columns, p.dv)
		p.t.Block(p.Rows, kernel.Pad(p.Columns), p.dv, do, ldo, 1, vt, p.LD, ds, p.LD, false)
		p.t.MulRows(ds, p.S, p.LD, p.Columns, add)
		for r := range p.Rows {
			row := ds[r*p.LD:][:p.Columns]
			if p.cap > 0 {
				p.t.Mul(row, row, slopes[r*p.LD:][:p.Columns])
			}
			from, end := p.Visible(r)
			p.hide(row, 0, from, end, 0)
			clear(row[end:])
		}
		p.t.Block(p.Columns, p.padv, p.Rows, p.S, 1, p.LD, do, ldo, dv, p.padv, false)
		p.t.Block(p.Columns, p.pad, p.Rows, ds, 1, p.LD, q, ldq, dk, p.pad, false)
		for c := range p.Columns {
			j := p.Key(c)
			p.t.Add(g.DV.Row(j), g.DV.Row(j), dv[c*p.padv:])
			p.t.Axpy(g.DK.Row(j), p.Scale, dk[c*p.pad:])
		}
		k, ldk := p.padded(p.h.K, p.keys, p.key, p.Columns)
		p.product(ds, k, ldk, p.pad, dq, !first)
		if p.bias != nil {
			s := p.S
			p.S = ds
			p.bias.Grad(&p.PatternTile, g)
			p.S = s
		}
		ar.Reset(mark)
	}
	for r := 0; r < p.Rows && !first; r++ {
		p.t.Axpy(g.DQ.Row(p.Query(r)), p.Scale, dq[r*p.pad:])
	}
}
