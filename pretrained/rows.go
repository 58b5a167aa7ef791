package pretrained

import (
	"fmt"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/param"
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

// each calls f with every row: its number in the file, its part and its number there.
func (w *weight) each(f func(row, part, at int)) {
	rows, _ := w.size()
	block := w.block
	if block == 0 {
		block = rows / len(w.parts)
	}
	for r := range rows {
		b := r / block
		f(r, b%len(w.parts), b/len(w.parts)*block+r%block)
	}
}

// params returns the parameters of the parts of a weight. It returns an error if they
// have another size.
func (w *weight) params(m *model.Model[float32]) ([]*param.Param[float32], error) {
	rows, cols := w.size()
	list := make([]*param.Param[float32], len(w.parts))
	for i, name := range w.parts {
		p, err := m.Params().Get(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		if len(p.Data)*len(w.parts) != rows*cols {
			return nil, fmt.Errorf("%s: shape %v is not %d times %s %v", w.name, w.shape, len(w.parts), name, p.Shape)
		}
		list[i] = p
	}
	return list, nil
}

// move copies between the elements x of a tensor and slices of its parts: to the parts,
// or back to x.
func (w *weight) move(x []float32, parts [][]float32, back bool) {
	rows, cols := w.size()
	w.each(func(row, part, at int) {
		to := parts[part][at*cols:][:cols]
		switch {
		case w.transposed && back:
			for j, v := range to {
				x[j*rows+row] = v
			}
		case w.transposed:
			for j := range to {
				to[j] = x[j*rows+row]
			}
		case back:
			copy(x[row*cols:][:cols], to)
		default:
			copy(to, x[row*cols:][:cols])
		}
	})
}
