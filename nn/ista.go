package nn

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// ista is a step of the iterative shrinkage-thresholding algorithm towards a code
// of x in a dictionary D whose numbers are few and not negative (Yu et al. 2023,
// CRATE, arXiv 2306.01129, section 2.4): max(x + η·Dᵀ(x - Dx) - ηλ, 0). It takes
// the place of an MLP, without a residual.
type ista[T tensor.Float] struct {
	D      Linear[T] // [width,width], without bias
	Rate   T         // η
	Lambda T
}

// istaTrace holds the intermediate results of ISTA.Forward for Backward.
type istaTrace[T tensor.Float] struct {
	r, y []T // [rows,width] x - Dx, and the output
}

// Aux returns 0: the layer has no auxiliary loss.
func (tr *istaTrace[T]) Aux() float64 { return 0 }

// NewTrace returns an empty istaTrace.
func (m *ista[T]) NewTrace() Trace[T] { return new(istaTrace[T]) }

// FLOPs counts both products.
func (m *ista[T]) FLOPs(n int, _ bool) float64 { return 4 * float64(n) * m.D.weightSize() }

// Forward sets y [rows,width] from x [rows,width], which do not overlap. It does not read
// base. The error is nil.
func (m *ista[T]) Forward(y, _, x tensor.Mat[T], _ Scope[T], trace Trace[T], _ bool) error {
	tr := trace.(*istaTrace[T])
	r, out := resizeMatrix(&tr.r, x.Rows, x.Cols), resizeMatrix(&tr.y, x.Rows, x.Cols)
	multiplyRows(true, rowProduct[T]{layer: &m.D, y: r, x: x})
	m.runRows(istaRows[T]{m, r, x, istaResidual})
	multiplyRows(false, rowProduct[T]{layer: &m.D, y: out, x: r})
	m.runRows(istaRows[T]{m, out, x, istaShrink})
	copyRows(y, out)
	return nil
}

// Step sets y [rows,width] from x [rows,width]. The error is nil.
func (m *ista[T]) Step(y, x tensor.Mat[T], _ State[T], s Scope[T], trace Trace[T]) error {
	return m.Forward(y, y, x, s, trace, false)
}

// Freeze returns the layer itself.
func (m *ista[T]) Freeze(int) Stepper[T] { return m }

// Backward sets dx [rows,width] from dy [rows,width] and adds to the gradient of the
// dictionary. dx overlaps neither dy nor x. It overwrites the trace and dy. The error is
// nil.
func (m *ista[T]) Backward(dx, dy, x tensor.Mat[T], trace Trace[T], _ *Scratch[T]) error {
	tr := trace.(*istaTrace[T])
	r, y := viewMatrix(tr.r, x.Rows, x.Cols), viewMatrix(tr.y, x.Rows, x.Cols)
	m.runRows(istaRows[T]{m, dy, y, istaAlive})
	// y is η times the gradient before max from here on, and then η times the gradient of r.
	m.runRows(istaRows[T]{m, y, dy, istaScale})
	addWeights(weightGrad[T]{&m.D, r, y})
	multiplyRows(true, rowProduct[T]{layer: &m.D, y: r, x: y})
	m.runRows(istaRows[T]{m, y, r, istaNegate})
	addWeights(weightGrad[T]{&m.D, y, x})
	multiplyRows(false, rowProduct[T]{layer: &m.D, y: dx, x: y})
	AddTo(dx, r)
	AddTo(dx, dy)
	return nil
}

func (m *ista[T]) runRows(f istaRows[T]) {
	if f.y.Rows <= normRows {
		f.RunRange(0, f.y.Rows)
	} else {
		par.Run(f.y.Rows, normRows, moveWork*float64(f.y.Rows)*float64(f.y.Cols), f)
	}
}

// The operations of istaRows.
const (
	istaResidual = iota // y = x - y
	istaShrink          // y = max(x + η·y - ηλ, 0)
	istaAlive           // y = 0 where x is not above 0
	istaScale           // y = η·x
	istaNegate          // y = -x
)

type istaRows[T tensor.Float] struct {
	m    *ista[T]
	y, x tensor.Mat[T]
	what int
}

func (f *istaRows[T]) RunRange(i0, i1 int) {
	t := kernel.Active[T]()
	for i := i0; i < i1; i++ {
		y, x := f.y.Row(i), f.x.Row(i)
		switch f.what {
		case istaResidual:
			for j, v := range x {
				y[j] = v - y[j]
			}
		case istaShrink:
			off := f.m.Rate * f.m.Lambda
			for j, v := range x {
				y[j] = max(v+f.m.Rate*y[j]-off, 0)
			}
		case istaAlive:
			for j, v := range x {
				if !(v > 0) {
					y[j] = 0
				}
			}
		case istaScale:
			t.Scale(y, f.m.Rate, x)
		case istaNegate:
			t.Scale(y, -1, x)
		}
	}
}
