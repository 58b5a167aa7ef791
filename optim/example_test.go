//go:build !float64

package optim_test

import (
	"fmt"

	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/param"
)

// The minimum of (x-3)².
func Example() {
	var weights param.Set
	x := weights.New("x", false, 1)
	adam := optim.NewAdamW(&weights)
	schedule := optim.Cosine{Peak: 0.1, Floor: 0.001, WarmUp: 10, Steps: 300}
	for step := range schedule.Steps {
		weights.ZeroGrad()
		x.Grad[0] += 2 * (x.Data[0] - 3)
		norm := optim.GradNorm(&weights)
		adam.Step(schedule.Rate(step), optim.ClipFactor(norm, 1))
	}
	fmt.Printf("%.2f\n", x.Data[0])
	// Output: 3.00
}
