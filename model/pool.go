package model

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// Pool is a pooling of positions. The zero value pools nothing: the head reads every position.
type Pool string

// The poolings of positions.
const (
	PoolMean  Pool = "mean"  // the mean of all valid positions
	PoolLast  Pool = "last"  // the last valid position
	PoolFirst Pool = "first" // the first valid position
	PoolCLS   Pool = "cls"   // a learned token that precedes the sequence
)

// pool reduces the outputs of positions for the head. For a sequence without valid positions
// the result is 0.
type pool struct {
	kind   Pool          // "": an output at every position
	pairs  bool          // two sequences are read together
	hidden *nn.Linear    // nil: none
	act    nn.Activation // of hidden
	norm   nn.Norm       // of the units of hidden; nil: none
}

// poolTrace holds the intermediate results of forward that backward reads.
type poolTrace struct {
	pooled []float // [b,width]
	pairs  []float // [b/2,4·width]
	pre    []float // [rows,hidden] before the activation; unused for ReLU
	act    []float // [rows,hidden] after it
	normed []float // [rows,hidden] after the norm
	stats  []float
}

// forward returns the input of the head from y [b·n,width].
func (p *pool) forward(y tensor.Mat, in *input, tr *poolTrace) tensor.Mat {
	k := kernel.Active[float]()
	if p.kind != "" {
		pooled := resizeMatrix(&tr.pooled, in.b, y.Cols)
		clear(pooled.Data)
		for i := range in.b {
			first, end, count := p.pooledRange(in, i)
			for j := first; j < end; j++ {
				if in.exists(i, j) {
					k.Axpy(pooled.Row(i), 1/float(count), y.Row(i*in.n+j))
				}
			}
		}
		y = pooled
	}
	if p.pairs {
		w, pairs := y.Cols, resizeMatrix(&tr.pairs, y.Rows/2, 4*y.Cols)
		for i := range pairs.Rows {
			row, a, b := pairs.Row(i), y.Row(2*i), y.Row(2*i+1)
			copy(row, a)
			copy(row[w:], b)
			k.Mul(row[2*w:3*w], a, b)
			for j := range w {
				row[3*w+j] = a[j] - b[j]
			}
		}
		y = pairs
	}
	if p.hidden != nil {
		act := resizeMatrix(&tr.act, y.Rows, p.hidden.W.Shape[0])
		pre := p.hiddenInput(tr, act)
		p.hidden.Forward(pre, y, false)
		nn.Activate(p.act, act, pre)
		y = act
	}
	if p.norm != nil {
		normed := resizeMatrix(&tr.normed, y.Rows, y.Cols)
		p.norm.Forward(normed, y, resizeMatrix(&tr.stats, y.Rows, 2).Data)
		y = normed
	}
	return y
}

// hiddenInput returns the memory of the units before their activation: act for ReLU, whose
// derivative follows from its output.
func (p *pool) hiddenInput(tr *poolTrace, act tensor.Mat) tensor.Mat {
	if p.act == nn.ReLU {
		return act
	}
	return resizeMatrix(&tr.pre, act.Rows, act.Cols)
}

// exists reports whether position j of sequence i is unmasked.
func (in *input) exists(i, j int) bool { return in.mask == nil || in.mask[i*in.n+j] }

// pooledRange returns the pooled positions first ≤ j < end of sequence i, and how many of them
// are unmasked.
func (p *pool) pooledRange(in *input, i int) (first, end, count int) {
	end = in.n
	if in.lens != nil {
		end = int(in.lens[i])
	}
	switch p.kind {
	case PoolCLS:
		return 0, 1, 1
	case PoolFirst:
		for first < end && !in.exists(i, first) {
			first++
		}
		end = min(first+1, end)
	case PoolLast:
		for end > 0 && !in.exists(i, end-1) {
			end--
		}
		first = max(end-1, 0)
	}
	for j := first; j < end; j++ {
		if in.exists(i, j) {
			count++
		}
	}
	return first, end, count
}

// backward returns the gradient of y [b·n,width] from dy, the gradient of forward's
// result. It overwrites dy. The result lies in dy or in sc.
func (p *pool) backward(dy, y tensor.Mat, in *input, tr *poolTrace, sc *scratch) tensor.Mat {
	width, rows := y.Cols, y.Rows
	if p.kind != "" {
		rows = in.b
		y = resizeMatrix(&tr.pooled, rows, width)
	}
	x := y
	if p.pairs {
		rows /= 2
		x = resizeMatrix(&tr.pairs, rows, 4*width)
	}
	if p.hidden != nil {
		dx := resizeMatrix(&sc.dread, rows, x.Cols)
		act := resizeMatrix(&tr.act, rows, dy.Cols)
		if p.norm != nil {
			dact := resizeMatrix(&sc.dhidden, rows, dy.Cols)
			clear(dact.Data)
			p.norm.Backward(dact, dy, act, tr.stats)
			dy = dact
		}
		nn.ActivateGrad(p.act, dy, dy, p.hiddenInput(tr, act))
		p.hidden.Backward(dx, dy, x, false)
		dy = dx
	}
	if p.pairs {
		dx := resizeMatrix(&sc.dpooled, in.b, width)
		for i := range rows {
			d, a, b := dy.Row(i), y.Row(2*i), y.Row(2*i+1)
			da, db := dx.Row(2*i), dx.Row(2*i+1)
			for j := range width {
				both, less := d[2*width+j], d[3*width+j]
				da[j] = d[j] + both*b[j] + less
				db[j] = d[width+j] + both*a[j] - less
			}
		}
		dy = dx
	}
	if p.kind != "" {
		k := kernel.Active[float]()
		dx := resizeMatrix(&sc.dspread, in.b*in.n, width)
		clear(dx.Data)
		for i := range in.b {
			first, end, count := p.pooledRange(in, i)
			for j := first; j < end; j++ {
				if in.exists(i, j) {
					k.Scale(dx.Row(i*in.n+j), 1/float(count), dy.Row(i))
				}
			}
		}
		dy = dx
	}
	return dy
}
