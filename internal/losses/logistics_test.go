package losses

import (
	"github.com/farfield-ml/farfield/tensor"
)

func levelLoss(row []tensor.Float, level float32) float64 {
	var loss [1]float64
	Logistics(loss[:], tensor.Mat{Data: row, Rows: 1, Cols: len(row), Stride: len(row)}, []float32{level})
	return loss[0]
}
