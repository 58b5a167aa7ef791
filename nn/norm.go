package nn

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Norm normalises every row by itself.
type Norm interface {
	// Forward sets y [rows,width] from x [rows,width], which may be y. It sets stats
	// [2·rows]: element 2·i+1 is the factor by which row i was scaled.
	Forward(y, x tensor.Mat, stats []tensor.Float)
	// Backward adds to dx [rows,width] and to the gradients of the weights, from dy
	// [rows,width]. x and stats are the arguments of Forward. dx overlaps no other.
	Backward(dx, dy, x tensor.Mat, stats []tensor.Float)
	// Affine returns the gain [width] and the bias [width], nil for no bias, that are
	// applied to a scaled row, and reports whether the mean of a row is subtracted before.
	Affine() (gain, bias []tensor.Float, centred bool)
}

// layerNorm is layer normalisation (Ba et al. 2016, arXiv 1607.06450): every row
// minus its mean, over √(variance + Eps), times the gain, plus the bias.
type layerNorm struct {
	Gain *param.Param // [width]
	Bias *param.Param // [width]; nil: none
	Eps  tensor.Float
}

// NewLayerNorm returns layer normalisation (Ba et al. 2016, arXiv 1607.06450) with a gain [width] and a
// bias [width], nil for none; eps is added to the variance.
func NewLayerNorm(gain, bias *param.Param, eps tensor.Float) Norm { return &layerNorm{gain, bias, eps} }

// normRows is the number of rows of a piece. Gradients of gain and bias are
// summed in each piece and then over the pieces in order.
const normRows = 64

// rowsForward is the number of rows of a piece in Forward, whose rows are independent.
const rowsForward = 32

// normWork is the cost of an element in operations, roughly: 0.4 ns.
const normWork = 32

// Affine returns gain and bias. The mean of a row is subtracted.
func (n *layerNorm) Affine() (gain, bias []tensor.Float, centred bool) {
	if n.Bias != nil {
		bias = n.Bias.Data
	}
	return n.Gain.Data, bias, true
}

// Forward sets y [rows,width] from x [rows,width], which may be y. It sets stats
// [2·rows] to each row's mean and reciprocal deviation.
func (n *layerNorm) Forward(y, x tensor.Mat, stats []tensor.Float) {
	if f := (normForward{n, y, x, stats}); x.Rows <= rowsForward {
		f.RunRange(0, x.Rows)
	} else {
		par.Run(x.Rows, rowsForward, normWork*float64(x.Rows)*float64(x.Cols), f)
	}
}

type normForward struct {
	n     *layerNorm
	y, x  tensor.Mat
	stats []float
}

func (f *normForward) RunRange(i0, i1 int) {
	gain, bias, _ := f.n.Affine()
	y, x, stats := f.y.Slice(i0, i1), f.x.Slice(i0, i1), f.stats[2*i0:2*i1]
	if w := x.Cols; x.Rows > 0 && w > 0 && &y.Data[0] == &x.Data[0] {
		// Rows are overwritten, and some may have to be computed again.
		ar := arena.Acquire()
		defer ar.Release()
		kept := viewMatrix(arena.Take[float](ar, x.Rows*w), x.Rows, w)
		for i := range x.Rows {
			copy(kept.Row(i), x.Row(i))
		}
		x = kept
	}
	kernel.Active[float]().LayerNorm(y.Data, y.Stride, x.Data, x.Stride, x.Rows, x.Cols, gain, bias, stats, f.n.Eps)
	for i := range x.Rows {
		if !(stats[2*i+1] > 0) {
			stats[2*i], stats[2*i+1] = scratch.NormaliseLargeRow(y.Row(i), x.Row(i), gain, bias, float64(f.n.Eps))
		}
	}
}

// Backward adds to dx [rows,width] and to the gradients of gain and bias, from dy
// [rows,width]. x and stats are the arguments of Forward. dx overlaps no other.
func (n *layerNorm) Backward(dx, dy, x tensor.Mat, stats []tensor.Float) {
	w := x.Cols
	ar := arena.Acquire()
	defer ar.Release()
	pieces := (x.Rows + normRows - 1) / normRows
	// Each piece has sums of gain and bias for itself.
	parts := viewMatrix(arena.TakeZeros[float](ar, pieces*2*w), pieces, 2*w)
	par.Run(x.Rows, normRows, 2*normWork*float64(x.Rows)*float64(w), normBackward{n, dx, dy, x, parts, stats})
	addRows(n.Gain.Grad, viewColumns(parts, 0, w))
	if n.Bias != nil {
		addRows(n.Bias.Grad, viewColumns(parts, w, 2*w))
	}
}

type normBackward struct {
	n                *layerNorm
	dx, dy, x, parts tensor.Mat
	stats            []float
}

func (f *normBackward) RunRange(i0, i1 int) {
	w := f.x.Cols
	part := f.parts.Row(i0 / normRows)
	dgain, dbias := part[:w], part[w:]
	if f.n.Bias == nil {
		dbias = nil
	}
	dx, dy, x := f.dx.Slice(i0, i1), f.dy.Slice(i0, i1), f.x.Slice(i0, i1)
	kernel.Active[float]().LayerNormGrad(dx.Data, dx.Stride, dgain, dbias, dy.Data, dy.Stride, x.Data, x.Stride, x.Rows, w, f.n.Gain.Data, f.stats[2*i0:2*i1])
}
