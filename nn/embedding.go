package nn

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Embedding has a row for each token of the vocabulary.
type Embedding struct {
	W *param.Param // [vocab,width]

	compressed *Compressed // of Compress, in place of W's numbers; nil: none
}

// ReadFrom makes e read its rows from the compressed weights of l, which shares W with e.
func (e *Embedding) ReadFrom(l *Linear) { e.compressed = l.compressed }

// row returns the row of a token. It may overwrite room, which has the width of a row.
func (e *Embedding) row(token int, room []float) []float {
	if e.compressed == nil {
		return e.W.Data[token*len(room):][:len(room)]
	}
	compressedRow(e.compressed, room, token)
	return room
}

// Forward sets row i of y [rows,width] to the row of token i. It panics on a
// token outside the vocabulary.
func (e *Embedding) Forward(y tensor.Mat, tokens []int32) {
	if f := (embedForward{e, y, tokens}); y.Rows <= normRows {
		f.RunRange(0, y.Rows)
	} else {
		par.Run(y.Rows, normRows, moveWork*float64(y.Rows)*float64(y.Cols), f)
	}
}

type embedForward struct {
	e      *Embedding
	y      tensor.Mat
	tokens []int32
}

func (f *embedForward) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		y := f.y.Row(i)
		copy(y, f.e.row(int(f.tokens[i]), y))
	}
}

// Add adds the row of token i to row i of y [rows,width]. If tokens is nil, all tokens are 0.
// It panics on a token outside the vocabulary.
func (e *Embedding) Add(y tensor.Mat, tokens []int32) {
	if f := (embedAdd{embedForward{e, y, tokens}}); y.Rows <= normRows {
		f.RunRange(0, y.Rows)
	} else {
		par.Run(y.Rows, normRows, moveWork*float64(y.Rows)*float64(y.Cols), f)
	}
}

type embedAdd struct{ embedForward }

func (f *embedAdd) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	k, room := kernel.Active[float](), arena.Take[float](ar, f.y.Cols)
	for i := i0; i < i1; i++ {
		row := 0
		if f.tokens != nil {
			row = int(f.tokens[i])
		}
		k.Add(f.y.Row(i), f.y.Row(i), f.e.row(row, room))
	}
}

// Backward adds row i of dy [rows,width] to the gradient of the row of token i, in order. If
// tokens is nil, all tokens are 0.
func (e *Embedding) Backward(dy tensor.Mat, tokens []int32) {
	par.Run(dy.Cols, moveColumns, moveWork*float64(dy.Rows)*float64(dy.Cols), embedBackward{e, dy, tokens})
}

// embedBackward computes Backward for a range of columns.
type embedBackward struct {
	e      *Embedding
	dy     tensor.Mat
	tokens []int32
}

func (f *embedBackward) RunRange(j0, j1 int) {
	k := kernel.Active[float]()
	for i := range f.dy.Rows {
		row := 0
		if f.tokens != nil {
			row = int(f.tokens[i])
		}
		g := f.e.W.Grad[row*f.dy.Cols:][j0:j1]
		k.Add(g, g, f.dy.Row(i)[j0:j1])
	}
}
