//go:build !float64

package factorised_test

import (
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/tensor"
)

// A mechanism with weights 1 + s + s²/2, asked at once and token by token.
func ExampleNew() {
	m, err := factorised.New(attention.Spec{
		Name: "second order", Scale: 1, Coef: []float64{1, 1, 0.5}, Positive: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	// One query and two keys with scores 0 and 2: weights 1 and 5.
	c := &attention.Call{
		Q: tensor.HeadsOf([]float32{1}, 1, 1, 1, 1),
		K: tensor.HeadsOf([]float32{0, 2}, 1, 1, 2, 1),
		V: tensor.HeadsOf([]float32{3, 9}, 1, 1, 2, 1),
	}
	out := tensor.NewHeads(1, 1, 1, 1)
	if err := m.Forward(out, c, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Data)

	state, err := m.NewState(c.Shape())
	if err != nil {
		log.Fatal(err)
	}
	for j := range c.K.N {
		token := &attention.Call{K: c.K.Tokens(j, j+1), V: c.V.Tokens(j, j+1)}
		if err := state.Absorb(token); err != nil {
			log.Fatal(err)
		}
	}
	if err := state.Read(out, c); err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Data, "after", state.Tokens(), "tokens")
	// Output:
	// [8]
	// [8] after 2 tokens
}

// Weights may be any function of the score: here its square above zero, which
// no sums stand for, so that every pair is computed.
func ExampleSimilarity() {
	above := func(s float32) float32 { return max(s, 0) }
	m, err := factorised.New(attention.Spec{
		Name: "squared relu", Scale: 1, Positive: true,
		Similarity: &attention.Similarity{
			F: func(dst, s []float32) {
				for i, x := range s {
					dst[i] = above(x) * above(x)
				}
			},
			Slope: func(dst, s []float32) {
				for i, x := range s {
					dst[i] = 2 * above(x)
				}
			},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	// Scores -1, 1 and 2: weights 0, 1 and 4.
	c := &attention.Call{
		Q: tensor.HeadsOf([]float32{1}, 1, 1, 1, 1),
		K: tensor.HeadsOf([]float32{-1, 1, 2}, 1, 1, 3, 1),
		V: tensor.HeadsOf([]float32{100, 10, 20}, 1, 1, 3, 1),
	}
	out := tensor.NewHeads(1, 1, 1, 1)
	if err := m.Forward(out, c, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Data, "linear form:", m.Traits().Linear)
	// Output: [18] linear form: false
}
