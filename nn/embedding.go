package nn

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Embedding has a row for each token of the vocabulary.
type Embedding[T tensor.Float] struct {
	W *param.Param[T] // [vocab,width]

	compressed *Compressed // of Compress, in place of W's numbers; nil: none
}

// ReadFrom reads rows from the weights of a layer, which has the same W, in fewer bits.
func (e *Embedding[T]) ReadFrom(l *Linear[T]) { e.compressed = l.compressed }

// row returns the row of a token. It may overwrite room, which has the width of a row.
func (e *Embedding[T]) row(token int, room []T) []T {
	if e.compressed == nil {
		return e.W.Data[token*len(room):][:len(room)]
	}
	e.compressed.Row(asFloat32(viewMatrix(room, 1, len(room))).Data, token)
	return room
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
		y := f.y.Row(i)
		copy(y, f.e.row(int(f.tokens[i]), y))
	}
}

// Add adds the row of token i to row i of y [rows,width]; nil: tokens are all 0. It panics
// on a token outside the vocabulary.
func (e *Embedding[T]) Add(y tensor.Mat[T], tokens []int32) {
	if f := (embedAdd[T]{embedForward[T]{e, y, tokens}}); y.Rows <= normRows {
		f.RunRange(0, y.Rows)
	} else {
		par.Run(y.Rows, normRows, moveWork*float64(y.Rows)*float64(y.Cols), f)
	}
}

type embedAdd[T tensor.Float] struct{ embedForward[T] }

func (f *embedAdd[T]) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	k, room := kernel.Active[T](), arena.Take[T](ar, f.y.Cols)
	for i := i0; i < i1; i++ {
		row := 0
		if f.tokens != nil {
			row = int(f.tokens[i])
		}
		k.Add(f.y.Row(i), f.y.Row(i), f.e.row(row, room))
	}
}

// Backward adds dy to the gradients of the rows, token after token; nil: tokens are all 0.
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
	for i := range f.dy.Rows {
		row := 0
		if f.tokens != nil {
			row = int(f.tokens[i])
		}
		g := f.e.W.Grad[row*f.dy.Cols:][j0:j1]
		k.Add(g, g, f.dy.Row(i)[j0:j1])
	}
}
