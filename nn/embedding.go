package nn

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Embedding has a row for each token of the vocabulary.
type Embedding[T tensor.Float] struct {
	W *param.Param[T] // [vocab,width]
}

// Forward sets row i of y [rows,width] to the row of token i. It panics on a
// token outside the vocabulary.
func (e *Embedding[T]) Forward(y tensor.Mat[T], tokens []int32) {
	if y.Rows <= normRows {
		e.rows(y, tokens, 0, y.Rows) // without a function value, which is allocated
		return
	}
	inRows(y.Rows, normRows, moveWork*float64(y.Rows)*float64(y.Cols), func(i0, i1 int) {
		e.rows(y, tokens, i0, i1)
	})
}

// rows is Forward for rows i0 ≤ i < i1.
func (e *Embedding[T]) rows(y tensor.Mat[T], tokens []int32, i0, i1 int) {
	for i := i0; i < i1; i++ {
		copy(y.Row(i), e.W.Data[int(tokens[i])*y.Cols:])
	}
}

// Backward adds dy to the gradients of the rows, token after token.
func (e *Embedding[T]) Backward(dy tensor.Mat[T], tokens []int32) {
	k := kernel.Active[T]()
	inRows(dy.Cols, moveColumns, moveWork*float64(dy.Rows)*float64(dy.Cols), func(j0, j1 int) {
		for i, t := range tokens {
			g := e.W.Grad[int(t)*dy.Cols:][j0:j1]
			k.Add(g, g, dy.Row(i)[j0:j1])
		}
	})
}
