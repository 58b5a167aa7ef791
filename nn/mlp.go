package nn

import (
	"slices"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// MLP is Down(GELU(Up(x))), with GELU in its tanh form (Hendrycks and Gimpel
// 2016, arXiv 1606.08415, section 2).
type MLP[T tensor.Float] struct {
	Up   Linear[T] // [hidden,width]
	Down Linear[T] // [width,hidden]
}

// MLPTrace is what MLP.Forward leaves for Backward.
type MLPTrace[T tensor.Float] struct {
	pre, act []T // [rows,hidden], before and after GELU
}

// geluRows is the number of rows of a piece, geluWork the arithmetic of an
// element.
const (
	geluRows = 32
	geluWork = 32
)

func (t *MLPTrace[T]) view(rows, hidden int) (pre, act tensor.Mat[T]) {
	return view(t.pre, rows, hidden), view(t.act, rows, hidden)
}

// Forward adds to y [rows,width].
func (m *MLP[T]) Forward(y, x tensor.Mat[T], tr *MLPTrace[T]) {
	hidden := m.Up.W.Shape[0]
	tr.pre = slices.Grow(tr.pre[:0], x.Rows*hidden)[:x.Rows*hidden]
	tr.act = slices.Grow(tr.act[:0], x.Rows*hidden)[:x.Rows*hidden]
	pre, act := tr.view(x.Rows, hidden)
	m.Up.Forward(pre, x, false)
	k := kernel.Active[T]()
	inRows(x.Rows, geluRows, geluWork*float64(len(tr.pre)), func(i0, i1 int) {
		for i := i0; i < i1; i++ {
			k.GELU(act.Row(i), pre.Row(i))
		}
	})
	m.Down.Forward(y, act, true)
}

// Backward sets dx [rows,width]. The trace is used up.
func (m *MLP[T]) Backward(dx, dy, x tensor.Mat[T], tr *MLPTrace[T]) {
	hidden := m.Up.W.Shape[0]
	pre, act := tr.view(x.Rows, hidden)
	m.Down.Backward(act, dy, act, false) // act is its own gradient from here on
	k := kernel.Active[T]()
	inRows(x.Rows, geluRows, geluWork*float64(len(tr.pre)), func(i0, i1 int) {
		for i := i0; i < i1; i++ {
			k.GELUGrad(act.Row(i), act.Row(i), pre.Row(i))
		}
	})
	m.Up.Backward(dx, act, x, false)
}
