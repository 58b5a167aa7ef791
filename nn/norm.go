package nn

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
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
	if x.Rows <= normRows {
		n.rows(y, x, stats, 0, x.Rows) // without a function value, which is allocated
		return
	}
	inRows(x.Rows, normRows, normWork*float64(x.Rows)*float64(x.Cols), func(i0, i1 int) {
		n.rows(y, x, stats, i0, i1)
	})
}

// rows is Forward for rows i0 ≤ i < i1.
func (n *Norm[T]) rows(y, x tensor.Mat[T], stats []T, i0, i1 int) {
	t := kernel.Active[T]()
	var bias []T
	if n.Bias != nil {
		bias = n.Bias.Data
	}
	for i := i0; i < i1; i++ {
		stats[2*i], stats[2*i+1] = t.LayerNorm(y.Row(i), x.Row(i), n.Gain.Data, bias, n.Eps)
	}
}

// Backward adds to dx [rows,width]; x and stats are those of Forward.
func (n *Norm[T]) Backward(dx, dy, x tensor.Mat[T], stats []T) {
	t := kernel.Active[T]()
	w := x.Cols
	ar := arena.Acquire()
	defer ar.Release()
	pieces := (x.Rows + normRows - 1) / normRows
	// Each piece has a row for itself, and sums of gain and bias.
	parts := view(arena.Zeros[T](ar, pieces*3*w), pieces, 3*w)
	inRows(x.Rows, normRows, 2*normWork*float64(x.Rows)*float64(w), func(i0, i1 int) {
		part := parts.Row(i0 / normRows)
		row, dgain, dbias := part[:w], part[w:2*w], part[2*w:]
		if n.Bias == nil {
			dbias = nil
		}
		for i := i0; i < i1; i++ {
			t.LayerNormGrad(row, dgain, dbias, dy.Row(i), x.Row(i), n.Gain.Data, stats[2*i], stats[2*i+1])
			t.Add(dx.Row(i), dx.Row(i), row)
		}
	})
	addRows(n.Gain.Grad, columns(parts, w, 2*w))
	if n.Bias != nil {
		addRows(n.Bias.Grad, columns(parts, 2*w, 3*w))
	}
}
