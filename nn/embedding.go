package nn

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
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
	if f := (embedForward[T]{e, y, tokens}); y.Rows <= normRows {
		f.RunRange(0, y.Rows)
	} else {
		par.Run(y.Rows, normRows, moveWork*float64(y.Rows)*float64(y.Cols), f)
	}
}

type embedForward[T tensor.Float] struct {
	e      *Embedding[T]
	y      tensor.Mat[T]
	tokens []int32
}

func (f *embedForward[T]) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		copy(f.y.Row(i), f.e.W.Data[int(f.tokens[i])*f.y.Cols:])
	}
}

// Backward adds dy to the gradients of the rows, token after token.
func (e *Embedding[T]) Backward(dy tensor.Mat[T], tokens []int32) {
	par.Run(dy.Cols, moveColumns, moveWork*float64(dy.Rows)*float64(dy.Cols), embedBackward[T]{e, dy, tokens})
}

// embedBackward does columns.
type embedBackward[T tensor.Float] struct {
	e      *Embedding[T]
	dy     tensor.Mat[T]
	tokens []int32
}

func (f *embedBackward[T]) RunRange(j0, j1 int) {
	k := kernel.Active[T]()
	for i, t := range f.tokens {
		g := f.e.W.Grad[int(t)*f.dy.Cols:][j0:j1]
		k.Add(g, g, f.dy.Row(i)[j0:j1])
	}
}
