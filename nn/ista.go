package nn

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// ista is one step of the iterative shrinkage-thresholding algorithm towards a sparse,
// non-negative code of x in a dictionary D (Yu et al. 2023, CRATE, arXiv 2306.01129,
// section 2.4): max(x + η·Dᵀ(x - Dx) - ηλ, 0). It replaces an MLP, and its output is not
// added to x.
type ista struct {
	D      Linear // [width,width], without bias
	Rate   float  // η
	Lambda float
}

// istaTrace holds the intermediate results of ista.Forward for Backward.
type istaTrace struct {
	r, y []float // [rows,width] x - Dx, and the output
}

// Aux returns 0: the layer has no auxiliary loss.
func (tr *istaTrace) Aux() float64 { return 0 }

// NewTrace returns an empty istaTrace.
func (m *ista) NewTrace() Trace { return new(istaTrace) }

// FLOPs returns the operations of both products for n rows.
func (m *ista) FLOPs(n int, _ bool) float64 { return 4 * float64(n) * m.D.weightSize() }

// Forward sets y [rows,width] from x [rows,width], which do not overlap. It does not read
// base. The error is nil.
func (m *ista) Forward(y, _, x tensor.Mat, _ Scope, trace Trace, _ bool) error {
	tr := trace.(*istaTrace)
	r, out := resizeMatrix(&tr.r, x.Rows, x.Cols), resizeMatrix(&tr.y, x.Rows, x.Cols)
	multiplyRows(true, rowProduct{layer: &m.D, y: r, x: x})
	m.runRows(istaRows{m, r, x, istaResidual})
	multiplyRows(false, rowProduct{layer: &m.D, y: out, x: r})
	m.runRows(istaRows{m, out, x, istaShrink})
	copyRows(y, out)
	return nil
}

// Step sets y [rows,width] from x [rows,width]. The error is nil.
func (m *ista) Step(y, x tensor.Mat, _ State, s Scope, trace Trace) error {
	return m.Forward(y, y, x, s, trace, false)
}

// Freeze returns the layer itself.
func (m *ista) Freeze(int) Stepper { return m }

// Backward sets dx [rows,width] from dy [rows,width] and adds to the gradient of the
// dictionary. dx overlaps neither dy nor x. It overwrites the trace and dy. The error is
// nil.
func (m *ista) Backward(dx, dy, x tensor.Mat, trace Trace, _ *Scratch) error {
	tr := trace.(*istaTrace)
	r, y := viewMatrix(tr.r, x.Rows, x.Cols), viewMatrix(tr.y, x.Rows, x.Cols)
	m.runRows(istaRows{m, dy, y, istaAlive})
	// From here on y holds η times the gradient before max, and later η times the gradient of r.
	m.runRows(istaRows{m, y, dy, istaScale})
	addWeights(weightGrad{&m.D, r, y})
	multiplyRows(true, rowProduct{layer: &m.D, y: r, x: y})
	m.runRows(istaRows{m, y, r, istaNegate})
	addWeights(weightGrad{&m.D, y, x})
	multiplyRows(false, rowProduct{layer: &m.D, y: dx, x: y})
	AddTo(dx, r)
	AddTo(dx, dy)
	return nil
}

func (m *ista) runRows(f istaRows) {
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

type istaRows struct {
	m    *ista
	y, x tensor.Mat
	what int
}

func (f *istaRows) RunRange(i0, i1 int) {
	t := kernel.Active[float]()
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
