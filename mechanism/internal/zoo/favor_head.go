package zoo

import (
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/tensor"
)

// favorHead computes performer with form=code, as published programs do. It sees a head
// as a whole, since exponents are reduced by a maximum over its tokens.
//
//	softmax     exp(w·x - |x|²/2 - c) + 1e-4, with c the largest w·x of the query, or of
//	            all keys (performer-pytorch); c counts as a constant in gradients
//	hyperbolic  [exp(w·x - |x|²/2 - c), exp(-w·x - |x|²/2 - c)]/√(2m), with c the largest
//	            |x|² of all queries, or keys, and 1e-6 added to the sum of weights
//	            (fast-transformers, stabilize=True)
//
// Features are computed for favorChunk tokens at a time, and recomputed in Backward.
type favorHead struct {
	*favorFeatures
}

// favorChunk is the number of tokens whose features are computed at once.
const favorChunk = 64

func (x *favorHead) Traits() attention.Traits {
	return attention.Traits{Name: "performer", Positive: true, MixedQueries: x.kernel == "hyperbolic",
		NoCausal: "form=code takes from the features of each key the largest of all keys, so that later ones change what a query has " +
			"seen before; form=paper has a causal form"}
}

func (x *favorHead) Setting() string { return x.setting }

func (x *favorHead) Check(c *attention.Call) error {
	return x.favorFeatures.Check(c.Q.H, c.K.H, c.Q.D)
}

// favorPass holds the unmasked keys of a head and the sums over them.
type favorPass struct {
	*favorHead
	h                 *headwise.Head
	k, v              tensor.Mat // v has a last column of ones
	cq, ck            float      // subtracted from exponents; in softmax each query has its own
	longestRow        [2]int     // query and key of the largest |x|², in hyperbolic
	sums, featureRows tensor.Mat // Σ φ(k)·[v, 1]; features of some tokens
}

// newPass computes the offsets of the exponents and the sums over all keys of a head.
func (x *favorHead) newPass(h *headwise.Head) favorPass {
	p := favorPass{favorHead: x, h: h, k: h.GatherUnmasked(h.K), featureRows: h.TakeScratch(favorChunk, x.Dim(0))}
	v := h.GatherUnmasked(h.V)
	p.v = h.TakeScratch(v.Rows, v.Cols+1)
	for j := range v.Rows {
		copy(p.v.Row(j), v.Row(j))
		p.v.Row(j)[v.Cols] = 1
	}
	if x.kernel == "hyperbolic" {
		p.cq, p.longestRow[0] = x.maxSquaredLength(h.Q)
		p.ck, p.longestRow[1] = x.maxSquaredLength(p.k)
	} else {
		p.ck = float(math.Inf(-1))
		for i0 := 0; i0 < p.k.Rows; i0 += favorChunk {
			i1 := min(i0+favorChunk, p.k.Rows)
			u := p.projectRows(p.k.Slice(i0, i1))
			for r := range u.Rows {
				p.ck = max(p.ck, float(x.rootScale)*h.Table.Max(u.Row(r)))
			}
		}
	}
	p.sums = h.TakeScratch(p.featureRows.Cols, p.v.Cols)
	clear(p.sums.Data)
	for i0 := 0; i0 < p.k.Rows; i0 += favorChunk {
		i1 := min(i0+favorChunk, p.k.Rows)
		h.Multiply(p.sums, p.computeFeatures(p.k.Slice(i0, i1), true), p.v.Slice(i0, i1), true, false, true)
	}
	return p
}

// maxSquaredLength returns the largest |x|²·scale of rows [n, D], and its first row.
func (x *favorHead) maxSquaredLength(rows tensor.Mat) (most float, first int) {
	for i := range rows.Rows {
		length := scratch.Norm2(rows.Row(i)) * x.rootScale
		if square := float(length * length); i == 0 || square > most {
			most, first = square, i
		}
	}
	return most, first
}

// projectRows sets the first columns of featureRows to w·x, for rows x [n, D].
func (p *favorPass) projectRows(x tensor.Mat) tensor.Mat {
	u := p.featureRows.Slice(0, x.Rows)
	u.Cols = p.rows
	w := tensor.Mat{Data: p.w.Data, Rows: p.rows, Cols: p.d, Stride: p.d}
	p.h.Multiply(u, x, w, false, true, false)
	return u
}

// computeFeatures sets featureRows to the features of rows x [n, D].
func (p *favorPass) computeFeatures(x tensor.Mat, keys bool) tensor.Mat {
	t := p.h.Table
	u := p.projectRows(x)
	y := p.featureRows.Slice(0, x.Rows)
	for i := range x.Rows {
		row := u.Row(i)
		t.Scale(row, float(p.rootScale), row)
		length := scratch.Norm2(x.Row(i)) * p.rootScale
		off := float(length * length / 2)
		switch {
		case p.kernel == "hyperbolic":
			off += float(math.Log(float64(y.Cols)) / 2)
			if keys {
				off += p.ck
			} else {
				off += p.cq
			}
			minus := y.Row(i)[p.rows:]
			t.Scale(minus, -1, row)
			t.Exp(minus, minus, off)
		case keys:
			off += p.ck
		default:
			off += t.Max(row)
		}
		t.Exp(row, row, off)
		for c := range row {
			row[c] += p.featureEps
		}
	}
	return y
}

func (x *favorHead) Forward(h *headwise.Head) {
	den, p := h.SaveBuffer(h.Q.Rows), x.newPass(h)
	o := h.TakeScratch(favorChunk, p.v.Cols)
	for i0 := 0; i0 < h.Q.Rows; i0 += favorChunk {
		i1 := min(i0+favorChunk, h.Q.Rows)
		h.Multiply(o.Slice(0, i1-i0), p.computeFeatures(h.Q.Slice(i0, i1), false), p.sums, false, false, false)
		for i := i0; i < i1; i++ {
			row := o.Row(i - i0)
			den[i] = row[h.V.Cols] + x.eps // above 0, or NaN
			h.Table.Scale(h.Out.Row(i), 1/den[i], row[:h.V.Cols])
		}
	}
}

func (x *favorHead) Backward(h *headwise.Head, g *headwise.Grads) {
	den, p := h.Saved, x.newPass(h)
	// The gradient of sums is u = [do, -do·o]/den.
	u, e := h.TakeScratch(favorChunk, p.v.Cols), h.TakeScratch(favorChunk, p.featureRows.Cols)
	back := h.TakeScratch(p.sums.Rows, p.sums.Cols) // Σ φ(q)·u
	clear(back.Data)
	var taken float // gradient of the offset of all exponents of a side
	for i0 := 0; i0 < h.Q.Rows; i0 += favorChunk {
		i1 := min(i0+favorChunk, h.Q.Rows)
		u, e := u.Slice(0, i1-i0), e.Slice(0, i1-i0)
		for i := i0; i < i1; i++ {
			row := u.Row(i - i0)
			h.Table.Scale(row[:h.V.Cols], 1/den[i], g.DOut.Row(i))
			row[h.V.Cols] = -h.Table.Dot(row[:h.V.Cols], h.Out.Row(i))
		}
		q := h.Q.Slice(i0, i1)
		f := p.computeFeatures(q, false)
		h.Multiply(back, f, u, true, false, true)
		h.Multiply(e, u, p.sums, false, true, false)
		taken += p.featureGrad(g.DQ.Slice(i0, i1), q, f, e)
	}
	p.maxLengthGrad(g.DQ, h.Q, p.longestRow[0], taken)
	taken = 0
	dk, dv := h.UnmaskedGradBuffer(g.DK, p.k.Rows), h.UnmaskedGradBuffer(g.DV, p.k.Rows)
	for j0 := 0; j0 < p.k.Rows; j0 += favorChunk {
		j1 := min(j0+favorChunk, p.k.Rows)
		e, k := e.Slice(0, j1-j0), p.k.Slice(j0, j1)
		f := p.computeFeatures(k, true)
		values := back
		values.Cols = h.V.Cols
		h.Multiply(dv.Slice(j0, j1), f, values, false, false, false)
		h.Multiply(e, p.v.Slice(j0, j1), back, false, true, false)
		taken += p.featureGrad(dk.Slice(j0, j1), k, f, e)
	}
	p.maxLengthGrad(dk, p.k, p.longestRow[1], taken)
	h.ScatterUnmasked(g.DK, dk)
	h.ScatterUnmasked(g.DV, dv)
}

// featureGrad sets dx [n, D] from the gradient e of features f, both [n, features], and
// returns the sum of the gradients of the exponents. It overwrites e and f.
func (p *favorPass) featureGrad(dx, x, f, e tensor.Mat) (sum float) {
	t := p.h.Table
	mark := p.h.Scratch.Mark()
	defer p.h.Scratch.Reset(mark)
	all := arena.Take[float](p.h.Scratch, x.Rows)
	for i := range e.Rows {
		row, exps := e.Row(i), f.Row(i)
		if p.featureEps != 0 {
			for c := range exps {
				exps[c] -= p.featureEps
			}
		}
		t.Mul(row, row, exps)
		all[i] = t.Sum(row)
		sum += all[i]
		if p.kernel == "hyperbolic" {
			t.Axpy(row[:p.rows], -1, row[p.rows:])
		}
		t.Scale(row[:p.rows], float(p.rootScale), row[:p.rows])
	}
	e.Cols = p.rows
	w := tensor.Mat{Data: p.w.Data, Rows: p.rows, Cols: p.d, Stride: p.d}
	p.h.Multiply(dx, e, w, false, false, false)
	for i := range x.Rows {
		t.Axpy(dx.Row(i), float(-p.rootScale*p.rootScale)*all[i], x.Row(i))
	}
	return sum
}

// maxLengthGrad adds to the longest row of dx [n, D] the gradient of its |x|², which is
// subtracted from all exponents of a side. With kernel=softmax there is none.
func (p *favorPass) maxLengthGrad(dx, x tensor.Mat, longest int, taken float) {
	if p.kernel == "hyperbolic" {
		p.h.Table.Axpy(dx.Row(longest), float(-2*p.rootScale*p.rootScale)*taken, x.Row(longest))
	}
}

func (x *favorHead) Cost(s attention.Shape) headwise.Cost {
	n, m, d, dv := float64(s.N), float64(s.M), float64(s.D), float64(s.Dv)
	rows, f := float64(x.rows), float64(x.Dim(0))
	products := n + m
	if x.kernel == "softmax" {
		products += m // for the largest exponent
	}
	return headwise.Cost{
		FLOPs: 2*products*rows*d + 2*(n+m)*f*(dv+1),
		Bytes: entry.ElementBytes() * (n + m*(dv+1) + f*(dv+1+favorChunk) + favorChunk*(dv+1)),
	}
}
