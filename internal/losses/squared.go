package losses

import "github.com/farfield-ml/farfield/tensor"

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
		factor := 2 * scale / tensor.Float(max(numbersCounted(want), 1))
		for j, x := range want {
			if x == x {
				row[j] = factor * (row[j] - tensor.Float(x))
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
