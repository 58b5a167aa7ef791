package nn

import (
	"math"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Activation names the activation function of an MLP.
type Activation int

const (
	TanhGELU Activation = iota // GELU in its tanh form (Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2)
	GELU                       // x·Φ(x), with the error function
	ReLU                       // max(x, 0)
	SiLU                       // x·σ(x), σ(x) = 1/(1 + e^-x) (the same, section 2)
	Tanh                       // tanh(x)

	noActivation Activation = -1
)

// Activate sets y [rows,width] to a of x [rows,width]. y may be x.
func Activate(a Activation, y, x tensor.Mat) {
	par.Run(x.Rows, geluRows, geluWork*float64(x.Rows)*float64(x.Cols), activation{a, y, x})
}

// ActivateGrad sets dx [rows,width] to dy [rows,width] times the derivative of a at x
// [rows,width]. dx may be dy or x. For ReLU x may be its output instead of its input.
func ActivateGrad(a Activation, dx, dy, x tensor.Mat) {
	par.Run(x.Rows, geluRows, geluWork*float64(x.Rows)*float64(x.Cols), activationGrad{a, dx, dy, x})
}

// geluRows is the number of rows of a piece, geluWork the cost of an element in operations.
const (
	geluRows = 32
	geluWork = 32
)

type activation struct {
	act  Activation
	y, x tensor.Mat
}

func (f *activation) RunRange(i0, i1 int) {
	activateRows(f.act, kernel.Active[float](), f.y.Slice(i0, i1), f.x.Slice(i0, i1))
}

type activationGrad struct {
	act       Activation
	dx, dy, x tensor.Mat
}

func (f *activationGrad) RunRange(i0, i1 int) {
	activateRowsGrad(f.act, kernel.Active[float](), f.dx.Slice(i0, i1), f.dy.Slice(i0, i1), f.x.Slice(i0, i1))
}

// activateRows sets y to a of x. y may be x.
func activateRows(a Activation, k *kernel.Table[float], y, x tensor.Mat) {
	if isContiguous(y) && isContiguous(x) {
		activateElements(a, k, y.Data[:y.Rows*y.Cols], x.Data[:y.Rows*y.Cols])
		return
	}
	for i := range y.Rows {
		activateElements(a, k, y.Row(i), x.Row(i))
	}
}

// activateRowsGrad sets dx to dy times the derivative of a at x. dx may be dy or x.
func activateRowsGrad(a Activation, k *kernel.Table[float], dx, dy, x tensor.Mat) {
	if n := dx.Rows * dx.Cols; isContiguous(dx) && isContiguous(dy) && isContiguous(x) {
		activateElementsGrad(a, k, dx.Data[:n], dy.Data[:n], x.Data[:n])
		return
	}
	for i := range dx.Rows {
		activateElementsGrad(a, k, dx.Row(i), dy.Row(i), x.Row(i))
	}
}

// activateElements sets y to a of x. y may be x.
func activateElements(a Activation, k *kernel.Table[float], y, x []float) {
	switch a {
	case TanhGELU:
		k.GELU(y, x)
	case GELU:
		k.ErfGELU(y, x)
	case ReLU:
		for i, v := range x {
			y[i] = max(v, 0)
		}
	case SiLU:
		setSiLU(k, y, x)
	case Tanh:
		for i, v := range x {
			y[i] = float(math.Tanh(float64(v)))
		}
	}
}

// activateElementsGrad sets dx to dy times the derivative of a at x. dx may be dy or x. The
// derivative of ReLU at 0 is 0.
func activateElementsGrad(a Activation, k *kernel.Table[float], dx, dy, x []float) {
	switch a {
	case TanhGELU:
		k.GELUGrad(dx, dy, x)
	case GELU:
		k.ErfGELUGrad(dx, dy, x)
	case ReLU:
		for i, v := range x {
			if v > 0 {
				dx[i] = dy[i]
			} else {
				dx[i] = 0
			}
		}
	case SiLU:
		setSiLUGrad(k, dx, dy, x)
	case Tanh:
		for i, v := range x {
			y := math.Tanh(float64(v))
			dx[i] = float(float64(dy[i]) * (1 - float64(y*y)))
		}
	}
}
