//go:build !float64

package sequence_test

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/sequence"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// Three ranks compute one causal sequence.
func ExampleForward() {
	const n, d = 6, 4
	x := tensor.NewHeads(1, 1, n, d)
	for i := range x.Data {
		x.Data[i] = float32(i*i%7) - 3
	}
	out := tensor.NewHeads(1, 1, n, d)
	err := comm.RunLocal(3, func(c *comm.Comm) error {
		m, err := mechanism.New("fastmax", mechanism.Options{})
		if err != nil {
			return err
		}
		lo, hi := sequence.PartRange(n, c.Rank(), c.Size())
		own := x.Tokens(int(lo), int(hi))
		return sequence.Forward(c, m, out.Tokens(int(lo), int(hi)), &attention.Call{Q: own, K: own, V: own, Causal: true}, nil)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.3f\n", out.Head(0, 0).Row(n-1))
	// Output: [-1.063 -1.770 -1.517 0.238]
}
