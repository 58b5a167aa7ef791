package nn

import (
	"math"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// lossRows is the number of rows of a piece, lossWork the arithmetic of an
// element.
const (
	lossRows = 32
	lossWork = 16
)

// CrossEntropy sets losses[i] to -log softmax(logits row i)[targets[i]], in
// nats, and to 0 where the target is negative: not counted. The largest logit
// is taken off first, so that no exponential overflows. logits [rows,vocab] are
// overwritten. It panics on a target beyond the vocabulary.
func CrossEntropy[T tensor.Float](losses []float64, logits tensor.Mat[T], targets []int32) {
	par.Run(logits.Rows, lossRows, lossWork*float64(logits.Rows)*float64(logits.Cols), entropy[T]{losses, logits, targets})
}

type entropy[T tensor.Float] struct {
	losses  []float64
	logits  tensor.Mat[T]
	targets []int32
}

func (f *entropy[T]) Piece(i0, i1 int) {
	t := kernel.Active[T]()
	for i := i0; i < i1; i++ {
		f.losses[i] = 0
		if f.targets[i] < 0 {
			continue
		}
		row := f.logits.Row(i)
		top, at := t.Max(row), row[f.targets[i]]
		f.losses[i] = math.Log(float64(t.Exp(row, row, top))) + (float64(top) - float64(at))
	}
}

// CrossEntropyGrad overwrites logits [rows,vocab] with scale times the gradient
// of their CrossEntropy: softmax minus one at the target, 0 in rows that are not
// counted.
func CrossEntropyGrad[T tensor.Float](logits tensor.Mat[T], targets []int32, scale T) {
	par.Run(logits.Rows, lossRows, lossWork*float64(logits.Rows)*float64(logits.Cols), entropyGrad[T]{logits, targets, scale})
}

type entropyGrad[T tensor.Float] struct {
	logits  tensor.Mat[T]
	targets []int32
	scale   T
}

func (f *entropyGrad[T]) Piece(i0, i1 int) {
	t := kernel.Active[T]()
	for i := i0; i < i1; i++ {
		row := f.logits.Row(i)
		if f.targets[i] < 0 {
			clear(row)
			continue
		}
		sum := t.Exp(row, row, t.Max(row))
		t.Scale(row, f.scale/sum, row)
		row[f.targets[i]] -= f.scale
	}
}
