package nn

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// moveWork is the cost of loading and storing an element in operations, moveColumns the number
// of columns of a piece.
const (
	moveWork    = 4
	moveColumns = 4 * kernel.Lanes
)

// copyRows copies the rows of x to y, which may be x.
func copyRows(y, x tensor.Mat) {
	if isContiguous(y) && isContiguous(x) {
		copy(y.Data[:x.Rows*x.Cols], x.Data)
		return
	}
	for i := range x.Rows {
		copy(y.Row(i), x.Row(i))
	}
}

// isContiguous reports whether the rows of m follow each other without gaps.
func isContiguous(m tensor.Mat) bool { return m.Stride == m.Cols }

// AddTo adds the rows of x to y.
func AddTo(y, x tensor.Mat) {
	if f := (rowsAdd{y, x}); y.Rows <= normRows {
		f.RunRange(0, y.Rows)
	} else {
		par.Run(y.Rows, normRows, moveWork*float64(y.Rows)*float64(y.Cols), f)
	}
}

type rowsAdd struct{ y, x tensor.Mat }

func (f *rowsAdd) RunRange(i0, i1 int) {
	y, x := f.y.Slice(i0, i1), f.x.Slice(i0, i1)
	kernel.Active[float]().AddRows(y.Data, y.Stride, y.Data, y.Stride, x.Data, x.Stride, y.Rows, y.Cols)
}

// viewColumns returns a view of columns j0 ≤ j < j1 of m.
func viewColumns(m tensor.Mat, j0, j1 int) tensor.Mat {
	if m.Rows > 0 {
		m.Data = m.Data[j0:]
	}
	m.Cols = j1 - j0
	return m
}

// viewMatrix returns the contiguous matrix [rows,cols] at the beginning of data.
func viewMatrix(data []float, rows, cols int) tensor.Mat {
	return tensor.Mat{Data: data, Rows: rows, Cols: cols, Stride: cols}
}
