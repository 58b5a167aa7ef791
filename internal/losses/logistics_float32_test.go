//go:build !float64

package losses

import (
	"testing"

	"github.com/farfield-ml/farfield/tensor"
)

// Nothing is infinite in single precision, however far a part is away.
func TestLevelsStayFinite(t *testing.T) {
	for _, row := range [][]float32{
		{0, 0, 1e3, -1e3, -7, -7}, {80, -80, 0, 0, -50, 50}, {0, 0, 1e6, 1e6, -7, -7}, {0, 0, 0, 0, 30, 30},
		{0, 0, 1e15, 1e15, -7, -7}, {0, 0, -1e15, 1e30, 0, 30}, {0, 0, 0, 1, 800, 800}, {0, 0, 0, 1, 730, 1e30},
	} {
		for _, level := range []float32{0, 127, 255} {
			if l := levelLoss(row, level); l-l != 0 || l < 0 {
				t.Errorf("%v, level %v: loss is %v", row, level, l)
			}
			g := append([]float32{}, row...)
			LogisticsGrad(tensor.Mat{Data: g, Rows: 1, Cols: 6, Stride: 6}, []float32{level}, 1)
			for j, x := range g {
				if x-x != 0 {
					t.Errorf("%v, level %v: gradient %d is %v", row, level, j, x)
				}
			}
		}
	}
}
