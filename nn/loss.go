package nn

import (
	"math"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// lossRows is the number of rows of a piece, lossWork the cost of an element in operations.
const (
	lossRows = 32
	lossWork = 16
)

// CrossEntropy sets losses [rows] to -log softmax(logits row)[target] in nats, or to 0 for a
// negative target. The largest logit is subtracted first, so that no exponential overflows.
// It overwrites logits [rows,vocab]. It panics on a target beyond the vocabulary.
func CrossEntropy(losses []float64, logits tensor.Mat, targets []int32) {
	par.Run(logits.Rows, lossRows, lossWork*float64(logits.Rows)*float64(logits.Cols), entropy{losses, logits, targets})
}

type entropy struct {
	losses  []float64
	logits  tensor.Mat
	targets []int32
}

func (f *entropy) RunRange(i0, i1 int) {
	t := kernel.Active[float]()
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

// CrossEntropyGrad overwrites logits [rows,vocab] with scale times the gradient of their
// CrossEntropy: softmax minus one at the target, or 0 in rows with a negative target.
func CrossEntropyGrad(logits tensor.Mat, targets []int32, scale tensor.Float) {
	par.Run(logits.Rows, lossRows, lossWork*float64(logits.Rows)*float64(logits.Cols), entropyGrad{logits, targets, scale})
}

type entropyGrad struct {
	logits  tensor.Mat
	targets []int32
	scale   float
}

func (f *entropyGrad) RunRange(i0, i1 int) {
	t := kernel.Active[float]()
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
