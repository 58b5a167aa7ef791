package scratch

import (
	"math"

	"github.com/farfield-ml/farfield/tensor"
)

// Norm2 returns the 2-norm of x [n].
func Norm2[T tensor.Float](x []T) float64 {
	var sum float64
	for _, y := range x {
		sum += float64(y) * float64(y)
	}
	return math.Sqrt(sum)
}
