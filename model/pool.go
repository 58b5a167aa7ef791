package model

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// The poolings of positions, Config.Pool.
const (
	PoolMean  = "mean"  // of those that are valid
	PoolLast  = "last"  // of the last that is valid
	PoolFirst = "first" // of the first, a token of the sequence
	PoolCLS   = "cls"   // of a learned token in front of the others
)

// pool reduces the outputs of positions for the head. A sequence without valid
// positions has zeros.
type pool[T tensor.Float] struct {
	kind   string        // "": an output at every position
	pairs  bool          // two sequences are read together
	hidden *nn.Linear[T] // nil: none
}

// poolTrace holds the intermediate results of forward that backward reads.
type poolTrace[T tensor.Float] struct {
	pooled []T // [b,width]
	pairs  []T // [b/2,4·width]
	act    []T // [rows,hidden] after ReLU
}

// forward returns the input of the head from y [b·n,width].
func (p *pool[T]) forward(y tensor.Mat[T], in *input[T], tr *poolTrace[T]) tensor.Mat[T] {
	k := kernel.Active[T]()
	if p.kind != "" {
		pooled := resizeMatrix(&tr.pooled, in.b, y.Cols)
		clear(pooled.Data)
		for i := range in.b {
			first, count := p.pooledRange(in, i)
			for j := range count {
				k.Axpy(pooled.Row(i), 1/T(count), y.Row(i*in.n+first+j))
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
		p.hidden.Forward(act, y, false)
		nn.Activate(nn.ReLU, act, act)
		y = act
	}
	return y
}

// pooledRange returns the pooled positions of sequence i: count positions from first
// on.
func (p *pool[T]) pooledRange(in *input[T], i int) (first, count int) {
	valid := in.n
	if in.lens != nil {
		valid = int(in.lens[i])
	}
	switch p.kind {
	case PoolCLS:
		return 0, 1
	case PoolFirst:
		return 0, min(valid, 1)
	case PoolLast:
		return max(valid-1, 0), min(valid, 1)
	}
	return 0, valid
}

// backward returns the gradient of y [b·n,width] from dy, the gradient of forward's
// result. It overwrites dy. The result lies in dy or in sc.
func (p *pool[T]) backward(dy, y tensor.Mat[T], in *input[T], tr *poolTrace[T], sc *scratch[T]) tensor.Mat[T] {
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
		nn.ActivateGrad(nn.ReLU, dy, dy, resizeMatrix(&tr.act, rows, dy.Cols))
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
		k := kernel.Active[T]()
		dx := resizeMatrix(&sc.dspread, in.b*in.n, width)
		clear(dx.Data)
		for i := range in.b {
			first, count := p.pooledRange(in, i)
			for j := range count {
				k.Scale(dx.Row(i*in.n+first+j), 1/T(count), dy.Row(i))
			}
		}
		dy = dx
	}
	return dy
}
