package headwise

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// Multiply sets c [m,n] to op(a)·op(b), or adds it if acc is set. ta and tb transpose a and b.
func (h *Head) Multiply(c, a, b tensor.Mat, ta, tb, acc bool) {
	k := a.Cols
	if ta {
		k = a.Rows
	}
	mark := h.Scratch.Mark()
	scratch := arena.Take[float](h.Scratch, kernel.GemmScratch(c.Rows, c.Cols, k))
	kernel.Gemm(h.Table, ta, tb, c.Rows, c.Cols, k, a.Data, a.Stride, b.Data, b.Stride, acc, c.Data, c.Stride, scratch)
	h.Scratch.Reset(mark)
}

// TakeScratch returns a contiguous matrix [rows,cols] in scratch memory with undefined contents.
func (h *Head) TakeScratch(rows, cols int) tensor.Mat {
	return scratch.TakeMat(h.Scratch, rows, cols)
}

// SoftmaxRows replaces each row of x [m,n] by its softmax.
func (h *Head) SoftmaxRows(x tensor.Mat) {
	t := h.Table
	for i := range x.Rows {
		row := x.Row(i)
		t.Scale(row, float(1/float64(t.Exp(row, row, t.Max(row)))), row)
	}
}

// SoftmaxRowsGrad replaces dp [m,n], the gradient of p = SoftmaxRows(x), by the gradient of x.
func (h *Head) SoftmaxRowsGrad(dp, p tensor.Mat) {
	for i := range p.Rows {
		dx, row := dp.Row(i), p.Row(i)
		along := h.Table.Dot(dx, row)
		for j, x := range row {
			dx[j] = x * (dx[j] - along)
		}
	}
}
