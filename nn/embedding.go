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
	for i, t := range tokens {
		copy(y.Row(i), e.W.Data[int(t)*y.Cols:])
	}
}

// Backward adds dy to the gradients of the rows, token after token.
func (e *Embedding[T]) Backward(dy tensor.Mat[T], tokens []int32) {
	k := kernel.Active[T]()
	for i, t := range tokens {
		g := e.W.Grad[int(t)*dy.Cols:][:dy.Cols]
		k.Add(g, g, dy.Row(i))
	}
}
