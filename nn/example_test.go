//go:build !float64

package nn_test

import (
	"fmt"

	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// One linear layer, forward and backward.
func Example() {
	var weights param.Set
	l := nn.Linear{W: weights.New("proj.weight", true, 2, 3), B: weights.New("proj.bias", false, 2)}
	copy(l.W.Data, []float32{1, 0, -1, 2, 1, 0})
	copy(l.B.Data, []float32{0.5, 0})

	x, y := tensor.NewMat(1, 3), tensor.NewMat(1, 2)
	copy(x.Data, []float32{3, 4, 5})
	l.Forward(y, x, false)
	fmt.Println(y.Row(0))

	dx, dy := tensor.NewMat(1, 3), tensor.NewMat(1, 2)
	copy(dy.Data, []float32{1, 10})
	l.Backward(dx, dy, x, false)
	fmt.Println(dx.Row(0), l.W.Grad, l.B.Grad)
	// Output:
	// [-1.5 10]
	// [21 10 -1] [3 4 5 30 40 50] [1 10]
}
