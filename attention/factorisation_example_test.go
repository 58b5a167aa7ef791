//go:build !float64

package attention_test

import (
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/tensor"
)

// FAST's example of a factorisation (section 2.4, eq. 16-18): u_i = Σ_j a_i b_j d_j takes 9
// multiplications and 6 additions for three rows, u_i = a_i x with x = Σ_j b_j d_j 6 and 2.
// The state holds x: here 4·7 + 5·8 + 6·9.
func ExampleState() {
	m, err := factorised.New(attention.Spec{Name: "product", Scale: 1, Coef: []float64{0, 1}, Unnormalized: true})
	if err != nil {
		log.Fatal(err)
	}
	c := &attention.Call{
		Q: tensor.HeadsOf([]float32{1, 2, 3}, 1, 1, 3, 1), // a
		K: tensor.HeadsOf([]float32{4, 5, 6}, 1, 1, 3, 1), // b
		V: tensor.HeadsOf([]float32{7, 8, 9}, 1, 1, 3, 1), // d
	}
	out := tensor.NewHeads(1, 1, 3, 1)
	c.Form = attention.Direct
	if err := m.Forward(out, c, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println("pair by pair", out.Data)

	state, err := m.NewState(c.Shape())
	if err != nil {
		log.Fatal(err)
	}
	if err := state.Absorb(&attention.Call{K: c.K, V: c.V}); err != nil {
		log.Fatal(err)
	}
	if err := state.Read(out, &attention.Call{Q: c.Q, K: c.K.Tokens(0, 0), V: c.V.Tokens(0, 0)}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("by the sum  ", out.Data)
	// Output:
	// pair by pair [122 244 366]
	// by the sum   [122 244 366]
}
