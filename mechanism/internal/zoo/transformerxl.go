package zoo

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// relativeDistances is softmax of scale·((q+u)·k + (q+vb)·r_x), x = i-j ≥ 0 (Dai et al.
// 2019, section 3.3).
type relativeDistances struct {
	sparseSoftmax
	params   *param.Set
	r, u, vb *param.Param
	heads    int
	width    int // width of rows; narrower heads use the first channels
}

func NewTransformerXL(r *entry.Reader) (headwise.Function, error) {
	scale, err := r.SoftmaxScale()
	if err != nil {
		return nil, err
	}
	length, err := r.Integer("memory", 1, 1<<20)
	if err != nil {
		return nil, err
	}
	if r.Width == 0 {
		return nil, fmt.Errorf("%s: the width D is not known", r.Name)
	}
	x := &relativeDistances{params: new(param.Set), heads: max(r.Heads, 1), width: r.Width}
	if err := r.Room("r", x.heads, length, x.width); err != nil {
		return nil, err
	}
	x.sparseSoftmax = sparseSoftmax{
		name: r.Name, setting: fmt.Sprintf("transformer-xl memory=%d scale=%s", length, entry.FormatScale(scale)),
		rule: recentTokens(length), window: length, period: 1,
	}
	x.softmax = &headwise.PatternSoftmax{Scale: scale, Bias: x}
	x.r = x.params.New("r", true, x.heads, length, x.width)
	x.u, x.vb = x.params.New("u", false, x.heads, x.width), x.params.New("vb", false, x.heads, x.width)
	for h := range x.heads {
		for at := range length {
			setSinusoid(x.r.Data[(h*length+at)*x.width:][:x.width], at)
		}
	}
	return x, nil
}

// setSinusoid sets row [D] to the sines and then the cosines of a position, at the
// frequencies 10000^(-2c/D) (section 3.3; Vaswani et al. 2017).
func setSinusoid(row []float, place int) {
	half := (len(row) + 1) / 2
	for c := range row {
		angle := float64(place) * math.Pow(10000, -2*float64(c%half)/float64(len(row)))
		if row[c] = float(math.Sin(angle)); c >= half {
			row[c] = float(math.Cos(angle))
		}
	}
}

// recentTokens is the rule of a memory: a query sees its own token and the tokens
// before it, at most recentTokens in all.
type recentTokens int

func (n recentTokens) addPairs(p *headwise.Pattern, s headGeometry) {
	lo, hi := p.AddPart(headwise.Range(0, s.n), headwise.Range(0, s.m))
	for i := range lo {
		at := s.offset + i
		lo[i], hi[i] = int32(at-int(n)+1), int32(min(at+1, s.m))
	}
}

func (x *relativeDistances) Params() *param.Set { return x.params }

func (x *relativeDistances) Check(c *attention.Call) error {
	switch {
	case c.Q.D > x.width:
		return fmt.Errorf("q: D is %d, r has %d", c.Q.D, x.width)
	case x.heads > 1 && c.Q.H > x.heads:
		return fmt.Errorf("q: has %d heads, r has %d", c.Q.H, x.heads)
	}
	return nil
}

func (x *relativeDistances) Cost(s attention.Shape) headwise.Cost {
	c := x.sparseSoftmax.Cost(s)
	// Each tile of rows meets the distances of its pairs beside its keys.
	c.FLOPs += 2 * float64(s.D) * float64(min(s.N, s.M)) * float64(min(x.window, s.M)+64)
	return c
}

// headRow returns row i of a parameter p [heads, rows, width] for a head, cut to its D.
func (x *relativeDistances) headRow(p []float, h *headwise.Head, rows, i int) []float {
	return p[(min(h.Head, x.heads-1)*rows+i)*x.width:][:h.Q.Cols]
}

// distanceStrip holds the rows of a tile that depend on distances. Column e is distance
// maxDistance-e; column c of row r of the tile is column Rows-1-r+c of the strip.
type distanceStrip struct {
	n, maxDistance int
	r, q           tensor.Mat // rows of r, backwards, and of queries plus vb; padded
}

// newDistanceStrip gathers the distances and queries of a tile.
func (x *relativeDistances) newDistanceStrip(t *headwise.PatternTile) distanceStrip {
	s := distanceStrip{n: t.Rows + t.Columns - 1, maxDistance: t.Query(t.Rows-1) + t.Head.Offset - t.Key(0)}
	width := kernel.Pad(t.Head.Q.Cols)
	s.r, s.q = t.Head.TakeScratch(s.n, width), t.Head.TakeScratch(t.Rows, width)
	for e := range s.n {
		row := s.r.Row(e)
		clear(row)
		if at := s.maxDistance - e; at >= 0 && at < x.window {
			copy(row, x.headRow(x.r.Data, t.Head, x.window, at))
		}
	}
	vb := x.headRow(x.vb.Data, t.Head, 1, 0)
	for r := range t.Rows {
		row := s.q.Row(r)
		clear(row)
		t.Head.Table.Add(row[:len(vb)], t.Head.Q.Row(t.Query(r)), vb)
	}
	return s
}

// Add adds u·k and (q+vb)·r to the scores of a tile.
func (x *relativeDistances) Add(t *headwise.PatternTile) {
	h, table, d := t.Head, t.Head.Table, t.Head.Q.Cols
	s := x.newDistanceStrip(t)
	width := kernel.Pad(s.n)
	rt, p := h.TakeScratch(d, width), h.TakeScratch(t.Rows, width)
	table.Transpose(rt.Data, width, s.r.Data, s.r.Stride, s.n, d)
	table.Block(t.Rows, width, d, s.q.Data, s.q.Stride, 1, rt.Data, width, p.Data, width, false)
	common := h.TakeScratch(1, t.Columns).Data
	table.Dots(common, h.K.Data[t.Key(0)*h.K.Stride:], h.K.Stride, x.headRow(x.u.Data, h, 1, 0))
	for r := range t.Rows {
		from, end := t.Visible(r)
		row := t.S[r*t.LD:][from:end]
		table.Add(row, row, p.Row(r)[t.Rows-1-r+from:])
		table.Add(row, row, common[from:end])
	}
}

// Grad adds the gradients of q, k and the parameters through u·k and (q+vb)·r.
func (x *relativeDistances) Grad(t *headwise.PatternTile, g *headwise.Grads) {
	h, table := t.Head, t.Head.Table
	s := x.newDistanceStrip(t)
	width := kernel.Pad(h.Q.Cols)
	p, sum := h.TakeScratch(t.Rows, s.n), h.TakeScratch(1, t.Columns).Data
	clear(p.Data)
	clear(sum)
	for r := range t.Rows {
		from, end := t.Visible(r)
		row := t.S[r*t.LD:][from:end]
		copy(p.Row(r)[t.Rows-1-r+from:], row)
		table.Add(sum[from:end], sum[from:end], row)
	}
	du, u := x.headRow(g.Params[1], h, 1, 0), x.headRow(x.u.Data, h, 1, 0)
	for c, d := range sum {
		table.Axpy(du, d*t.Scale, h.K.Row(t.Key(c)))
		table.Axpy(g.DK.Row(t.Key(c)), d*t.Scale, u)
	}
	dq, dr := h.TakeScratch(t.Rows, width), h.TakeScratch(s.n, width)
	table.Block(t.Rows, width, s.n, p.Data, p.Stride, 1, s.r.Data, s.r.Stride, dq.Data, width, false)
	table.Block(s.n, width, t.Rows, p.Data, 1, p.Stride, s.q.Data, s.q.Stride, dr.Data, width, false)
	dvb := x.headRow(g.Params[2], h, 1, 0)
	for r := range t.Rows {
		table.Axpy(g.DQ.Row(t.Query(r)), t.Scale, dq.Row(r))
		table.Axpy(dvb, t.Scale, dq.Row(r))
	}
	for e := range s.n {
		if at := s.maxDistance - e; at >= 0 && at < x.window {
			table.Axpy(x.headRow(g.Params[0], h, x.window, at), t.Scale, dr.Row(e))
		}
	}
}
