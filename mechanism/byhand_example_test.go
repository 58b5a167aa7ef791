//go:build !float64

package mechanism_test

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// The example of docs/math.md: a query 2 and keys 1, -1 and 2, with scores 2, -2 and 4 and weights
// 5, 1 and 13 of T_2. Pairs and moments give the same output and gradients.
func ExampleNew_byHand() {
	m, err := mechanism.New("polynomial", mechanism.Options{Set: map[string]string{"scale": "1"}})
	if err != nil {
		panic(err)
	}
	number := func(n int, x ...float32) tensor.Heads { return tensor.HeadsOf(x, 1, 1, n, 1) }
	for _, form := range []attention.Form{attention.Direct, attention.Linear} {
		c := &attention.Call{Q: number(1, 2), K: number(3, 1, -1, 2), V: number(3, 10, 20, 30), Form: form}
		out, keep := number(1, 0), attention.Saved{}
		g := attention.Grads{DQ: number(1, 0), DK: number(3, 0, 0, 0), DV: number(3, 0, 0, 0)}
		if err := m.Forward(out, c, &keep); err != nil {
			panic(err)
		}
		if err := m.Backward(&g, number(1, 1), out, c, &keep); err != nil {
			panic(err)
		}
		fmt.Printf("o %.2f dq %.4f dk %.4f dv %.4f\n", out.Data, g.DQ.Data, g.DK.Data, g.DV.Data)
	}
	// Output:
	// o [24.21] dq [0.5817] dk [-4.4875 0.4432 3.0471] dv [0.2632 0.0526 0.6842]
	// o [24.21] dq [0.5817] dk [-4.4875 0.4432 3.0471] dv [0.2632 0.0526 0.6842]
}
