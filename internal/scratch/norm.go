package scratch

import (
	"math"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// Norm2 returns the 2-norm of x [n].
func Norm2[T kernel.Float](x []T) float64 { return kernel.ColumnNorm(x, 1, len(x)) }

// NormaliseLargeRow computes layer normalisation of a row whose sum or squares overflow T. It
// sets y [width] from x [width] and returns the mean and the factor of the row, which are NaN
// if x is not finite. bias may be nil.
func NormaliseLargeRow(y, x, gain, bias []tensor.Float, eps float64) (mean, factor tensor.Float) {
	largest := 0.0
	for _, v := range x {
		largest = max(largest, math.Abs(float64(v)))
	}
	centre := 0.0 // of x / largest, as all below
	for _, v := range x {
		centre += float64(v) / largest
	}
	centre /= float64(len(x))
	square := 0.0
	for _, v := range x {
		d := float64(v)/largest - centre
		square += d * d
	}
	deviation := math.Sqrt(square/float64(len(x)) + eps/largest/largest)
	for j, v := range x {
		z := 0.0 // of a row of equal numbers, where eps/largest² may vanish
		if d := float64(v)/largest - centre; d != 0 {
			z = d / deviation
		}
		y[j] = tensor.Float(z) * gain[j]
		if bias != nil {
			y[j] += bias[j]
		}
	}
	return tensor.Float(centre * largest), tensor.Float(1 / deviation / largest)
}
