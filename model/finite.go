package model

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// checkFinite returns an attention.ErrNonFinite for the first number of x that is NaN
// or infinite. x has rows of width numbers.
func checkFinite[T kernel.Float](name string, x []T, width int) error {
	if y := kernel.Active[T]().Sum(x); y-y == 0 {
		return nil // the sum of finite numbers is finite unless it overflows
	}
	for i, y := range x {
		if y-y != 0 {
			return fmt.Errorf("%s: element %d of row %d is %v, %w: weights or activations left the range of the element type", name, i%width, i/width, y, attention.ErrNonFinite)
		}
	}
	return nil
}
