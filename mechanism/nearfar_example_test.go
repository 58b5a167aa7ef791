//go:build !float64

package mechanism_test

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// Near field exact, far field factorised. The first two keys are far. Their rows normalise to
// ±(1,-1), the query's to (-1,1): scores -2 and 2, weights 1-2+2 = 1 and 1+2+2 = 5. The last
// key is near, and at right angles to the query: its weight is exp(0) = 1. The output is
// (1·6 + 5·12 + 1·18) / (1 + 5 + 1).
func ExampleNew_nearFar() {
	m, err := mechanism.New("fastmax", mechanism.Options{Set: map[string]string{"window": "1"}})
	if err != nil {
		panic(err)
	}
	out := tensor.NewHeads(1, 1, 1, 1)
	err = m.Forward(out, &attention.Call{
		Q:      tensor.HeadsOf([]float32{3, 7}, 1, 1, 1, 2),
		K:      tensor.HeadsOf([]float32{5, 4, 0, 10, 7, -3}, 1, 1, 3, 2),
		V:      tensor.HeadsOf([]float32{6, 12, 18}, 1, 1, 3, 1),
		Causal: true,
	}, nil)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%.4f\n", out.Data)
	// Output: [12.0000]
}
