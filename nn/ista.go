package nn

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// ISTA is a step of the iterative shrinkage-thresholding algorithm towards a code
// of x in a dictionary D whose numbers are few and not negative (Yu et al. 2023,
// CRATE, arXiv 2306.01129, section 2.4): max(x + η·Dᵀ(x - Dx) - ηλ, 0). It takes
// the place of an MLP, without a residual.
type ISTA[T tensor.Float] struct {
	D      Linear[T] // [width,width], without bias
	Step   T         // η
	Lambda T
}

// ISTATrace is what ISTA.Forward leaves for Backward.
type ISTATrace[T tensor.Float] struct {
	r, y []T // [rows,width] x - Dx, and the output
}

// Forward sets y [rows,width] from x, which do not overlap.
func (m *ISTA[T]) Forward(y, x tensor.Mat[T], tr *ISTATrace[T]) {
	r, out := room(&tr.r, x.Rows, x.Cols), room(&tr.y, x.Rows, x.Cols)
	multiply(true, rowProduct[T]{layer: &m.D, y: r, x: x})
	m.run(istaRows[T]{m, r, x, istaResidual})
	multiply(false, rowProduct[T]{layer: &m.D, y: out, x: r})
	m.run(istaRows[T]{m, out, x, istaShrink})
	copyRows(y, out)
}

// Backward sets dx [rows,width], which overlaps neither dy nor x. It uses up the
// trace, and dy.
func (m *ISTA[T]) Backward(dx, dy, x tensor.Mat[T], tr *ISTATrace[T]) {
	r, y := view(tr.r, x.Rows, x.Cols), view(tr.y, x.Rows, x.Cols)
	m.run(istaRows[T]{m, dy, y, istaAlive})
	// y is η times the gradient before max from here on, and then η times that of r.
	m.run(istaRows[T]{m, y, dy, istaScale})
	addWeights(weightGrad[T]{&m.D, r, y})
	multiply(true, rowProduct[T]{layer: &m.D, y: r, x: y})
	m.run(istaRows[T]{m, y, r, istaNegate})
	addWeights(weightGrad[T]{&m.D, y, x})
	multiply(false, rowProduct[T]{layer: &m.D, y: dx, x: y})
	AddTo(dx, r)
	AddTo(dx, dy)
}

func (m *ISTA[T]) run(f istaRows[T]) {
	if f.y.Rows <= normRows {
		f.Piece(0, f.y.Rows)
	} else {
		par.Run(f.y.Rows, normRows, moveWork*float64(f.y.Rows)*float64(f.y.Cols), f)
	}
}

// What istaRows does with rows.
const (
	istaResidual = iota // y = x - y
	istaShrink          // y = max(x + η·y - ηλ, 0)
	istaAlive           // y = 0 where x is not above 0
	istaScale           // y = η·x
	istaNegate          // y = -x
)

type istaRows[T tensor.Float] struct {
	m    *ISTA[T]
	y, x tensor.Mat[T]
	what int
}

func (f *istaRows[T]) Piece(i0, i1 int) {
	t := kernel.Active[T]()
	for i := i0; i < i1; i++ {
		y, x := f.y.Row(i), f.x.Row(i)
		switch f.what {
		case istaResidual:
			for j, v := range x {
				y[j] = v - y[j]
			}
		case istaShrink:
			off := f.m.Step * f.m.Lambda
			for j, v := range x {
				y[j] = max(v+f.m.Step*y[j]-off, 0)
			}
		case istaAlive:
			for j, v := range x {
				if !(v > 0) {
					y[j] = 0
				}
			}
		case istaScale:
			t.Scale(y, f.m.Step, x)
		case istaNegate:
			t.Scale(y, -1, x)
		}
	}
}
