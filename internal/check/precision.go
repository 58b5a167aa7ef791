package check

import (
	"fmt"

	"github.com/farfield-ml/farfield/tensor"
)

// Precision is the name of tensor.Float: float32, or float64 in builds with -tags float64.
var Precision = fmt.Sprintf("%T", tensor.Float(0))

// Pick returns single, or double in builds with -tags float64.
func Pick[E any](single, double E) E {
	if Precision == "float64" {
		return double
	}
	return single
}
