package attention

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// Product sets c to op(a)·op(b), or adds it where acc is set; ta and tb say that
// op transposes.
func (h *Head[T]) Product(c, a, b tensor.Mat[T], ta, tb, acc bool) {
	k := a.Cols
	if ta {
		k = a.Rows
	}
	mark := h.Scratch.Mark()
	scratch := arena.Take[T](h.Scratch, kernel.GemmScratch(c.Rows, c.Cols, k))
	kernel.Gemm(h.Table, ta, tb, c.Rows, c.Cols, k, a.Data, a.Stride, b.Data, b.Stride, acc, c.Data, c.Stride, scratch)
	h.Scratch.Reset(mark)
}

// Take returns a contiguous matrix in scratch memory with undefined contents.
func (h *Head[T]) Take(rows, cols int) tensor.Mat[T] {
	return scratch.TakeMat[T](h.Scratch, rows, cols)
}

// Softmax turns each row of x into exp(x) over the row's sum.
func (h *Head[T]) Softmax(x tensor.Mat[T]) {
	t := h.Table
	for i := range x.Rows {
		row := x.Row(i)
		t.Scale(row, T(1/float64(t.Exp(row, row, t.Max(row)))), row)
	}
}

// SoftmaxGrad turns the gradient dp of what Softmax has made of x, which is p,
// into that of x.
func (h *Head[T]) SoftmaxGrad(dp, p tensor.Mat[T]) {
	for i := range p.Rows {
		dx, row := dp.Row(i), p.Row(i)
		along := h.Table.Dot(dx, row)
		for j, x := range row {
			dx[j] = x * (dx[j] - along)
		}
	}
}
