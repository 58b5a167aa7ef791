package nn

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Linear is y = x·Wᵀ + b.
type Linear[T tensor.Float] struct {
	W *param.Param[T] // [out,in]
	B *param.Param[T] // [out]; nil: none
}

func (l *Linear[T]) weight(data []T) tensor.Mat[T] {
	return view(data, l.W.Shape[0], l.W.Shape[1])
}

// Forward sets y [rows,out] from x [rows,in], or adds to y where acc is set.
func (l *Linear[T]) Forward(y, x tensor.Mat[T], acc bool) {
	p := product[T]{a: x, b: l.weight(l.W.Data), tb: true, c: y, k: x.Cols, acc: acc}
	if l.B != nil {
		p.bias = l.B.Data
	}
	p.run(rowTile, columnTile)
}

// Backward sets dx [rows,in], or adds to it where acc is set, and adds to the
// gradients of the weights; dy is [rows,out], x what Forward had. dx may be x
// itself, which is then lost.
func (l *Linear[T]) Backward(dx, dy, x tensor.Mat[T], acc bool) {
	// dW [out,in] += dyᵀ·x: the sum over rows stays in one tile.
	dw := product[T]{a: dy, ta: true, b: x, c: l.weight(l.W.Grad), k: x.Rows, acc: true}
	dw.run(weightTile, columnTile)
	if l.B != nil {
		addRows(l.B.Grad, dy)
	}
	p := product[T]{a: dy, b: l.weight(l.W.Data), c: dx, k: dy.Cols, acc: acc}
	p.run(rowTile, columnTile)
}

// Tiles of a product. An element's bits do not depend on them.
const (
	rowTile    = 192
	columnTile = 256
	weightTile = 64
)

// product is C = op(A)·op(B), or C += op(A)·op(B), plus bias in every row.
type product[T tensor.Float] struct {
	a, b, c tensor.Mat[T]
	ta, tb  bool // A is stored [k,m]; B is stored [n,k]
	k       int
	acc     bool
	bias    []T
}

// run computes the product in tiles of the given size.
func (p *product[T]) run(rows, cols int) {
	m, n := p.c.Rows, p.c.Cols
	if m == 0 || n == 0 {
		return
	}
	rows, cols = even(m, rows), even(n, cols)
	across := (n + cols - 1) / cols
	down := (m + rows - 1) / rows
	par.Do(down*across, 2*float64(m)*float64(n)*float64(p.k), func(t int) {
		i, j := t/across*rows, t%across*cols
		p.tile(i, min(i+rows, m), j, min(j+cols, n))
	})
}

// even returns the size of pieces no larger than most that n is cut into.
func even(n, most int) int {
	pieces := (n + most - 1) / most
	return kernel.Pad((n + pieces - 1) / pieces)
}

func (p *product[T]) tile(i0, i1, j0, j1 int) {
	t := kernel.Active[T]()
	ar := arena.Acquire()
	defer ar.Release()
	a, b, c := p.a.Data, p.b.Data, p.c.Data[i0*p.c.Stride+j0:]
	if p.k > 0 {
		if p.ta {
			a = a[i0:]
		} else {
			a = a[i0*p.a.Stride:]
		}
		if p.tb {
			b = b[j0*p.b.Stride:]
		} else {
			b = b[j0:]
		}
	}
	m, n := i1-i0, j1-j0
	scratch := arena.Take[T](ar, kernel.GemmScratch(m, n, p.k))
	kernel.Gemm(t, p.ta, p.tb, m, n, p.k, a, p.a.Stride, b, p.b.Stride, p.acc, c, p.c.Stride, scratch)
	if p.bias != nil {
		for i := range m {
			row := c[i*p.c.Stride:][:n]
			t.Add(row, row, p.bias[j0:j1])
		}
	}
}

// addRows adds the rows of x to sum, from the first to the last.
func addRows[T tensor.Float](sum []T, x tensor.Mat[T]) {
	t := kernel.Active[T]()
	inRows(x.Cols, columnTile, float64(x.Rows)*float64(x.Cols), func(j0, j1 int) {
		s := sum[j0:j1]
		for i := range x.Rows {
			t.Add(s, s, x.Row(i)[j0:j1])
		}
	})
}
