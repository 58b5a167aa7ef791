package published

import (
	"fmt"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// size returns the number of rows of a weight and the elements of each.
func (w *weight) size() (rows, cols int) {
	if w.transposed {
		return w.shape[1], w.shape[0]
	}
	if len(w.parts) == 1 {
		n := 1
		for _, d := range w.shape {
			n *= d
		}
		return 1, n
	}
	rows, cols = w.shape[0], 1
	for _, d := range w.shape[1:] {
		cols *= d
	}
	return rows, cols
}

// isWhole reports whether the elements of the tensor are the elements of one part, in order.
func (w *weight) isWhole(parts [][]float32) bool {
	rows, cols := w.size()
	return len(parts) == 1 && !w.transposed && len(parts[0]) == rows*cols
}

// locate returns the part of a row in the file, its number there, and the number of rows
// from it on that follow each other in the part.
func (w *weight) locate(row int) (part, at, run int) {
	rows, _ := w.size()
	if w.rows != nil {
		for at = row; at >= w.rows[part]; part++ {
			at -= w.rows[part]
		}
		return part, at, w.rows[part] - at
	}
	block := w.block
	if block == 0 {
		block = rows / len(w.parts)
	}
	b := row / block
	return b % len(w.parts), b/len(w.parts)*block + row%block, block - row%block
}

// partSize returns the number of elements of part i of a tensor with rows of cols elements.
func (w *weight) partSize(i, rows, cols int) int {
	if w.rows != nil {
		return w.rows[i] * cols
	}
	return rows * cols / len(w.parts)
}

// params returns the parameters of the parts of a weight. It returns an error if they
// have another size.
func (w *weight) params(m *model.Model) ([]*param.Param, error) {
	rows, cols := w.size()
	list := make([]*param.Param, len(w.parts))
	for i, name := range w.parts {
		p, err := m.Params().Get(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		if tensor.Size(p.Shape...) != w.partSize(i, rows, cols) {
			return nil, fmt.Errorf("%s: shape %v has %d elements of %s, which has shape %v", w.name, w.shape, w.partSize(i, rows, cols), name, p.Shape)
		}
		list[i] = p
	}
	return list, nil
}

// move is moveElements of numbers.
func (w *weight) move(x []float32, start int, parts [][]float32, back bool) {
	moveElements(w, x, start, parts, back)
}

// moveElements copies between the elements x of a tensor, from element start on, and slices of its
// parts: to the parts, or back to x.
func moveElements[T any](w *weight, x []T, start int, parts [][]T, back bool) {
	rows, cols := w.size()
	for len(x) > 0 {
		n := 0
		if w.transposed {
			part, at, run := w.locate(start % rows)
			n = min(run, len(x))
			moveColumn(parts[part][at*cols+start/rows:], cols, x[:n], back)
		} else {
			part, at, run := w.locate(start / cols)
			to := parts[part][at*cols+start%cols:]
			n = min(run*cols-start%cols, len(x))
			if back {
				copy(x[:n], to)
			} else {
				copy(to, x[:n])
			}
		}
		x, start = x[n:], start+n
	}
}

// moveColumn copies between x and every cols-th element of column.
func moveColumn[T any](column []T, cols int, x []T, back bool) {
	for i := range x {
		if back {
			x[i] = column[i*cols]
		} else {
			column[i*cols] = x[i]
		}
	}
}
