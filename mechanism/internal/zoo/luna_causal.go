package zoo

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Pack is the causal attention of Luna (Ma et al. 2021, arXiv 2106.01540, section 3.3).
// Keys and values are packed into L rows by learned queries p_l: key j enters row l with
// the weight a_jl = ω(s·k_j·p_l). With sums over the t keys that query i sees,
//
//	u_i = softmax over l of s/t·Σ_j (q_i·k_j) a_jl      o_i = 1/t·Σ_j (u_i·a_j) v_j
//
// The state is therefore two sums, Σ k⊗a [D,L] and Σ a⊗v [L,Dv]. The weights (u_i·a_j)/t
// do not sum to 1, so an output is not an average of values.
type Pack struct {
	name, setting string
	positive      bool
	p             *param.Param // [H,L,D], or [1,L,D] for all heads
	params        *param.Set
	omega         PackMap
	scale         float64 // s; 0: 1/√D
}

// PackMap is the function ω of Pack, applied to each element.
type PackMap interface {
	Map(dst, x []tensor.Float)     // dst may be x
	Grad(dx, dy, x []tensor.Float) // sets dx, which may be dy
	Positive() bool                // reports whether ω is never negative
}

// NewPack returns a Pack whose learned queries are the parameter p [H,L,D], or [1,L,D] for
// all heads. Traits and Setting report name and setting. scale is s; 0 means 1/√D.
func NewPack(name, setting string, p *param.Param, omega PackMap, scale float64) *Pack {
	set := new(param.Set)
	set.Add(p)
	return &Pack{name, setting, omega.Positive(), p, set, omega, scale}
}

// Traits returns the traits of the mechanism.
func (p *Pack) Traits() attention.Traits {
	return attention.Traits{Name: p.name, Positive: p.positive, Causal: true, Streaming: true}
}

// Setting returns the setting of the mechanism.
func (p *Pack) Setting() string { return p.setting }

// Params returns the learned parameters.
func (p *Pack) Params() *param.Set { return p.params }

// Constants returns nil: a Pack has no random numbers.
func (p *Pack) Constants() *param.Set { return nil }

// Check returns an error if the heads or the width of c do not fit the parameter.
func (p *Pack) Check(c *attention.Call) error { return p.fits(c.Q.H, c.Q.D) }

// fits returns an error if the parameter does not fit heads query heads of width d.
func (p *Pack) fits(heads, d int) error {
	switch s := p.p.Shape; {
	case s[0] != 1 && s[0] != heads:
		return fmt.Errorf("q: has %d heads, %s of %s is of %d", heads, p.p.Name, p.name, s[0])
	case s[2] != d:
		return fmt.Errorf("q: D is %d, %s of %s is of %d", d, p.p.Name, p.name, s[2])
	}
	return nil
}

func (p *Pack) factor() float {
	if p.scale != 0 {
		return float(p.scale)
	}
	return float(1 / math.Sqrt(float64(p.p.Shape[2])))
}

// learned returns the learned queries [L,D] of a head, and the index of their first
// element in the parameter.
func (p *Pack) learned(head int) (rows tensor.Mat, at int) {
	l, d := p.p.Shape[1], p.p.Shape[2]
	at = min(head, p.p.Shape[0]-1) * l * d
	return tensor.Mat{Data: p.p.Data[at:][:l*d], Rows: l, Cols: d, Stride: d}, at
}

// packBlock is the number of queries that are computed at once.
const packBlock = 64

// packPass holds the intermediate values of one head.
type packPass struct {
	*Pack
	h        *headwise.Head
	x, a     tensor.Mat // s·k·p, and ω of it; a is 0 for masked keys
	u        tensor.Mat // [n,L]
	rcp      []float    // 1/t of each query
	s1, s2   tensor.Mat // sums of k⊗a and a⊗v over the keys before a block
	w        tensor.Mat // products of the pairs of a block
	keyCount int        // keys in the sums
}

func (p *Pack) open(h *headwise.Head, u []float) packPass {
	l, d, dv := p.p.Shape[1], h.K.Cols, h.V.Cols
	x := packPass{Pack: p, h: h, x: h.TakeScratch(h.K.Rows, l), a: h.TakeScratch(h.K.Rows, l),
		u:   tensor.Mat{Data: u, Rows: h.Q.Rows, Cols: l, Stride: l},
		rcp: arena.Take[float](h.Scratch, h.Q.Rows),
		s1:  scratch.ZeroMat(h.Scratch, d, l), s2: scratch.ZeroMat(h.Scratch, l, dv),
	}
	rows, _ := p.learned(h.Head)
	h.Multiply(x.x, h.K, rows, false, true, false)
	h.Table.Scale(x.x.Data, p.factor(), x.x.Data)
	p.omega.Map(x.a.Data, x.x.Data)
	for j := range h.Mask {
		if !h.Mask[j] {
			clear(x.a.Row(j))
		}
	}
	seen, j := 0, 0
	for i := range x.rcp {
		for ; j < h.VisibleKeys(i); j++ {
			if h.IsUnmasked(j) {
				seen++
			}
		}
		x.rcp[i] = 1 / float(seen)
	}
	x.w = h.TakeScratch(min(packBlock, h.Q.Rows), packBlock)
	return x
}

// packRange holds the queries i0 ≤ i < i1 of a block. All of them see the keys before j0,
// some of them the keys j0 ≤ j < j1.
type packRange struct{ i0, i1, j0, j1 int }

func (x *packPass) block(i0 int) packRange {
	i1 := min(i0+packBlock, x.h.Q.Rows)
	return packRange{i0, i1, x.h.VisibleKeys(i0), x.h.VisibleKeys(i1 - 1)}
}

// reach adds the keys before j to the sums, except those that they hold already.
func (x *packPass) reach(j int) {
	if j > x.keyCount {
		k, a, v := x.h.K.Slice(x.keyCount, j), x.a.Slice(x.keyCount, j), x.h.V.Slice(x.keyCount, j)
		x.h.Multiply(x.s1, k, a, true, false, true)
		x.h.Multiply(x.s2, a, v, true, false, true)
		x.keyCount = j
	}
}

// pairs returns the products a·bᵀ of rows for the queries and for the keys of a block, with
// 0 where a query does not see the key. It overwrites the result of the call before.
func (x *packPass) pairs(r packRange, a, b tensor.Mat) tensor.Mat {
	w := tensor.Mat{Data: x.w.Data, Rows: r.i1 - r.i0, Cols: r.j1 - r.j0, Stride: r.j1 - r.j0}
	x.h.Multiply(w, a, b, false, true, false)
	for i := range w.Rows {
		clear(w.Row(i)[x.h.VisibleKeys(r.i0+i)-r.j0:])
	}
	return w
}

// divide multiplies each row of y by f/t. Row i is that of query i0+i.
func (x *packPass) divide(y tensor.Mat, i0 int, f float) {
	for i := range y.Rows {
		x.h.Table.Scale(y.Row(i), f*x.rcp[i0+i], y.Row(i))
	}
}

// Forward sets h.Out and saves u [queries,L] for Backward.
func (p *Pack) Forward(h *headwise.Head) {
	l := p.p.Shape[1]
	x := p.open(h, h.SaveBuffer(h.Q.Rows*l))
	for i0 := 0; i0 < h.Q.Rows; i0 += packBlock {
		r := x.block(i0)
		x.reach(r.j0)
		q, u, out := h.Q.Slice(r.i0, r.i1), x.u.Slice(r.i0, r.i1), h.Out.Slice(r.i0, r.i1)
		k, a, v := h.K.Slice(r.j0, r.j1), x.a.Slice(r.j0, r.j1), h.V.Slice(r.j0, r.j1)
		h.Multiply(u, q, x.s1, false, false, false)
		if r.j1 > r.j0 {
			h.Multiply(u, x.pairs(r, q, k), a, false, false, true)
		}
		x.divide(u, r.i0, p.factor())
		h.SoftmaxRows(u)
		h.Multiply(out, u, x.s2, false, false, false)
		if r.j1 > r.j0 {
			h.Multiply(out, x.pairs(r, u, a), v, false, false, true)
		}
		x.divide(out, r.i0, 1)
	}
}

// Backward sets the gradients of queries, keys and values, and adds to the gradient of the
// parameter. A first pass over the queries, forward, gives the gradients of queries; a second
// one, backward, gives those of the keys and values that they see.
func (p *Pack) Backward(h *headwise.Head, g *headwise.Grads) {
	l, d, dv := p.p.Shape[1], h.K.Cols, h.V.Cols
	x := p.open(h, h.Saved)
	n, m := h.Q.Rows, h.K.Rows
	do := h.TakeScratch(n, dv) // gradient of the output, divided by t
	copy(do.Data, g.DOut.Data[:n*dv])
	x.divide(do, 0, 1)
	ds := h.TakeScratch(n, l) // the gradient of Σ (q·k) a
	for i0 := 0; i0 < n; i0 += packBlock {
		r := x.block(i0)
		x.reach(r.j0)
		k, a, v := h.K.Slice(r.j0, r.j1), x.a.Slice(r.j0, r.j1), h.V.Slice(r.j0, r.j1)
		y, dq := ds.Slice(r.i0, r.i1), g.DQ.Slice(r.i0, r.i1)
		h.Multiply(y, do.Slice(r.i0, r.i1), x.s2, false, true, false)
		if r.j1 > r.j0 {
			h.Multiply(y, x.pairs(r, do.Slice(r.i0, r.i1), v), a, false, false, true)
		}
		h.SoftmaxRowsGrad(y, x.u.Slice(r.i0, r.i1))
		x.divide(y, r.i0, p.factor())
		h.Multiply(dq, y, x.s1, false, true, false)
		if r.j1 > r.j0 {
			h.Multiply(dq, x.pairs(r, y, a), k, false, false, true)
		}
	}

	r1, r2 := scratch.ZeroMat(h.Scratch, d, l), scratch.ZeroMat(h.Scratch, l, dv) // sums of q⊗ds and u⊗do
	da := h.TakeScratch(m, l)
	later := func(j0, j1 int) { // gradients of keys j0 ≤ j < j1 from the queries in r1 and r2
		if j1 <= j0 {
			return
		}
		k, a, v, da := h.K.Slice(j0, j1), x.a.Slice(j0, j1), h.V.Slice(j0, j1), da.Slice(j0, j1)
		h.Multiply(g.DK.Slice(j0, j1), a, r1, false, true, false)
		h.Multiply(g.DV.Slice(j0, j1), a, r2, false, false, false)
		h.Multiply(da, k, r1, false, false, false)
		h.Multiply(da, v, r2, false, true, true)
	}
	end := m
	for i0 := (n - 1) / packBlock * packBlock; i0 >= 0; i0 -= packBlock {
		r := x.block(i0)
		later(r.j0, end)
		end = r.j0
		q, u := h.Q.Slice(r.i0, r.i1), x.u.Slice(r.i0, r.i1)
		y, o := ds.Slice(r.i0, r.i1), do.Slice(r.i0, r.i1)
		if r.j1 > r.j0 {
			k, a, v, da := h.K.Slice(r.j0, r.j1), x.a.Slice(r.j0, r.j1), h.V.Slice(r.j0, r.j1), da.Slice(r.j0, r.j1)
			h.Multiply(g.DK.Slice(r.j0, r.j1), x.pairs(r, y, a), q, true, false, true)
			h.Multiply(g.DV.Slice(r.j0, r.j1), x.pairs(r, u, a), o, true, false, true)
			h.Multiply(da, x.pairs(r, q, k), y, true, false, true)
			h.Multiply(da, x.pairs(r, o, v), u, true, false, true)
		}
		h.Multiply(r1, q, y, true, false, true)
		h.Multiply(r2, u, o, true, false, true)
	}
	later(0, end)

	p.omega.Grad(da.Data, da.Data, x.x.Data)
	for j := range h.Mask {
		if !h.Mask[j] {
			clear(da.Row(j))
		}
	}
	h.Table.Scale(da.Data, p.factor(), da.Data)
	rows, at := p.learned(h.Head)
	h.Multiply(g.DK, da, rows, false, false, true)
	dp := tensor.Mat{Data: g.Params[0][at:][:l*d], Rows: l, Cols: d, Stride: d}
	h.Multiply(dp, da, h.K, true, false, true)
}

// Cost returns the cost of one head of a sequence.
func (p *Pack) Cost(s attention.Shape) headwise.Cost {
	n, m, d, dv, l := float64(s.N), float64(s.M), float64(s.D), float64(s.Dv), float64(p.p.Shape[1])
	products := m*l*d + (n+m)*l*(d+dv)
	if s.Causal {
		products += n * packBlock * (d + 2*l + dv)
	}
	return headwise.Cost{FLOPs: 2 * products, Bytes: float64(scratch.ElementSize[float]()) * (2*m*l + n*(l+1) + l*(d+dv) + packBlock*packBlock)}
}
