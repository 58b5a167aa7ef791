package nn

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Norm is layer normalisation (Ba et al. 2016, arXiv 1607.06450): every row
// minus its mean, over √(variance + Eps), times the gain, plus the bias.
type Norm[T tensor.Float] struct {
	Gain *param.Param[T] // [width]
	Bias *param.Param[T] // [width]; nil: none
	Eps  T
}

// normRows is the number of rows of a piece. Gradients of gain and bias are
// summed in each piece and then over the pieces in order.
const normRows = 64

// normWork is the arithmetic of an element, roughly.
const normWork = 8

// Forward sets y [rows,width] from x, which it may be. stats [2·rows] receives
// each row's mean and reciprocal deviation.
func (n *Norm[T]) Forward(y, x tensor.Mat[T], stats []T) {
	if f := (normForward[T]{n, y, x, stats}); x.Rows <= normRows {
		f.Piece(0, x.Rows)
	} else {
		par.Run(x.Rows, normRows, normWork*float64(x.Rows)*float64(x.Cols), f)
	}
}

type normForward[T tensor.Float] struct {
	n     *Norm[T]
	y, x  tensor.Mat[T]
	stats []T
}

func (f *normForward[T]) Piece(i0, i1 int) {
	t, n := kernel.Active[T](), f.n
	var bias []T
	if n.Bias != nil {
		bias = n.Bias.Data
	}
	y, x := f.y.Slice(i0, i1), f.x.Slice(i0, i1)
	t.LayerNorm(y.Data, y.Stride, x.Data, x.Stride, x.Rows, x.Cols, n.Gain.Data, bias, f.stats[2*i0:2*i1], n.Eps)
}

// Backward adds to dx [rows,width]; x and stats are those of Forward.
func (n *Norm[T]) Backward(dx, dy, x tensor.Mat[T], stats []T) {
	w := x.Cols
	ar := arena.Acquire()
	defer ar.Release()
	pieces := (x.Rows + normRows - 1) / normRows
	// Each piece has sums of gain and bias for itself.
	parts := view(arena.Zeros[T](ar, pieces*2*w), pieces, 2*w)
	par.Run(x.Rows, normRows, 2*normWork*float64(x.Rows)*float64(w), normBackward[T]{n, dx, dy, x, parts, stats})
	addRows(n.Gain.Grad, columns(parts, 0, w))
	if n.Bias != nil {
		addRows(n.Bias.Grad, columns(parts, w, 2*w))
	}
}

type normBackward[T tensor.Float] struct {
	n                *Norm[T]
	dx, dy, x, parts tensor.Mat[T]
	stats            []T
}

func (f *normBackward[T]) Piece(i0, i1 int) {
	w := f.x.Cols
	part := f.parts.Row(i0 / normRows)
	dgain, dbias := part[:w], part[w:]
	if f.n.Bias == nil {
		dbias = nil
	}
	dx, dy, x := f.dx.Slice(i0, i1), f.dy.Slice(i0, i1), f.x.Slice(i0, i1)
	kernel.Active[T]().LayerNormGrad(dx.Data, dx.Stride, dgain, dbias, dy.Data, dy.Stride, x.Data, x.Stride, x.Rows, w, f.n.Gain.Data, f.stats[2*i0:2*i1])
}
