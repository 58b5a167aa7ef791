package nn

import (
	"math"

	"github.com/farfield-ml/farfield/internal/kernel"
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
	t := kernel.Active[T]()
	inRows(logits.Rows, lossRows, lossWork*float64(logits.Rows)*float64(logits.Cols), func(i0, i1 int) {
		for i := i0; i < i1; i++ {
			losses[i] = 0
			if targets[i] < 0 {
				continue
			}
			row := logits.Row(i)
			top, at := t.Max(row), row[targets[i]]
			losses[i] = math.Log(float64(t.Exp(row, row, top))) + (float64(top) - float64(at))
		}
	})
}

// CrossEntropyGrad overwrites logits [rows,vocab] with scale times the gradient
// of their CrossEntropy: softmax minus one at the target, 0 in rows that are not
// counted.
func CrossEntropyGrad[T tensor.Float](logits tensor.Mat[T], targets []int32, scale T) {
	t := kernel.Active[T]()
	inRows(logits.Rows, lossRows, lossWork*float64(logits.Rows)*float64(logits.Cols), func(i0, i1 int) {
		for i := i0; i < i1; i++ {
			row := logits.Row(i)
			if targets[i] < 0 {
				clear(row)
				continue
			}
			sum := t.Exp(row, row, t.Max(row))
			t.Scale(row, scale/sum, row)
			row[targets[i]] -= scale
		}
	})
}
