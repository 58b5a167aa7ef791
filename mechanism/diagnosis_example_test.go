//go:build !float64

package mechanism_test

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Softmax grows sharper with its scale; the polynomial of second degree stays
// spread over most keys.
func ExampleNew_diagnosis() {
	const n, d = 64, 8
	c := &attention.Call{Q: tensor.NewHeads(1, 1, n, d), K: tensor.NewHeads(1, 1, n, d), V: tensor.NewHeads(1, 1, n, 1)}
	for i := range c.Q.Data {
		c.Q.Data[i], c.K.Data[i] = float32(rng.New(1).Normal(uint64(i))), float32(rng.New(2).Normal(uint64(i)))
	}
	for _, x := range []struct{ name, scale string }{{"softmax", "1"}, {"softmax", "4"}, {"fastmax", "1"}} {
		m, err := mechanism.New(x.name, mechanism.Options{Set: map[string]string{"scale": x.scale}})
		if err != nil {
			panic(err)
		}
		heads, err := m.Diagnose(c)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s, scale %s: a query spreads over %.0f of %d keys, the sharpest over %.0f\n",
			x.name, x.scale, math.Exp(heads[0].Entropy), n, math.Exp(heads[0].MinEntropy))
	}
	// Output:
	// softmax, scale 1: a query spreads over 8 of 64 keys, the sharpest over 1
	// softmax, scale 4: a query spreads over 2 of 64 keys, the sharpest over 1
	// fastmax, scale 1: a query spreads over 39 of 64 keys, the sharpest over 33
}
