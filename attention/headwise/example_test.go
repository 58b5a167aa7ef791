//go:build !float64

package headwise_test

import (
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/tensor"
)

// With q and k of ones and w_i = 1/i the weighted causal function is a running
// mean.
func ExampleWeightedCausal() {
	ones := tensor.HeadsOf([]float32{1, 1, 1, 1}, 1, 1, 4, 1)
	v := tensor.HeadsOf([]float32{8, 4, 6, 2}, 1, 1, 4, 1)
	out := tensor.NewHeads(1, 1, 4, 1)
	w := []float32{1, 1. / 2, 1. / 3, 1. / 4}
	if err := headwise.WeightedCausal(out, w, ones, ones, v); err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Data)
	// Output: [8 6 6 5]
}
