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

// Squared sets losses[i] to the mean of (y - numbers)² over the numbers of row i that are not
// NaN, or to 0 if all are. y and numbers are [rows,outputs].
func Squared(losses []float64, y tensor.Mat, numbers []float32) {
	for i := range y.Rows {
		row, sum := y.Row(i), 0.0
		want := numbers[i*y.Cols:][:y.Cols]
		for j, x := range want {
			if x == x {
				d := float64(row[j]) - float64(x)
				sum += d * d
			}
		}
		losses[i] = sum / float64(max(numbersCounted(want), 1))
	}
}

// SquaredGrad overwrites y [rows,outputs] with scale times the gradient of its Squared, 0
// where the number is NaN.
func SquaredGrad(y tensor.Mat, numbers []float32, scale tensor.Float) {
	for i := range y.Rows {
		row := y.Row(i)
		want := numbers[i*y.Cols:][:y.Cols]
		factor := 2 * scale / float(max(numbersCounted(want), 1))
		for j, x := range want {
			if x == x {
				row[j] = factor * (row[j] - float(x))
			} else {
				row[j] = 0
			}
		}
	}
}

// numbersCounted returns how many of the numbers are not NaN.
func numbersCounted(numbers []float32) (n int) {
	for _, x := range numbers {
		if x == x {
			n++
		}
	}
	return n
}
