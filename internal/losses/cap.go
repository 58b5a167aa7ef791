package losses

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Cap replaces each element x of y by c·tanh(x/c), which lies between -c and c. Elements that are not
// finite become NaN. If c is 0 it does nothing.
func Cap(y tensor.Mat, c float64) {
	if c > 0 {
		par.Run(y.Rows, 1, capWork*float64(y.Rows)*float64(y.Cols), capRows{y, c})
	}
}

type capRows struct {
	y tensor.Mat
	c float64
}

func (f *capRows) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		kernel.Cap(f.y.Row(i), f.y.Row(i), f.c)
	}
}

// CapGrad multiplies dy by the derivative of Cap, given the result y of Cap, which it overwrites. If c
// is 0 it does nothing.
func CapGrad(dy, y tensor.Mat, c float64) {
	if c > 0 {
		par.Run(y.Rows, 1, capWork*float64(y.Rows)*float64(y.Cols), capGradRows{dy, y, c})
	}
}

type capGradRows struct {
	dy, y tensor.Mat
	c     float64
}

func (f *capGradRows) RunRange(i0, i1 int) {
	t := kernel.Active[tensor.Float]()
	for i := i0; i < i1; i++ {
		kernel.CapSlope(f.y.Row(i), f.y.Row(i), f.c)
		t.Mul(f.dy.Row(i), f.dy.Row(i), f.y.Row(i))
	}
}
