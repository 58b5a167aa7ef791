package scratch

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// HasNonFiniteSum reports whether the sum of x is not finite. This holds if an element
// of x is not finite.
func HasNonFiniteSum(x tensor.Mat) bool {
	t := kernel.Active[tensor.Float]()
	if x.Rows*x.Cols > 0 && IsContiguous(x) {
		y := t.Sum(x.Data[:x.Rows*x.Cols])
		return y-y != 0
	}
	for i := range x.Rows {
		if y := t.Sum(x.Row(i)); y-y != 0 {
			return true
		}
	}
	return false
}
