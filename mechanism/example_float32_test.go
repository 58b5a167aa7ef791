//go:build !float64

package mechanism_test

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// One query, two keys. Rows of width 2 normalise to ±(1,-1), so the scores are
// -2 and 2 and the weights 1-2+2 = 1 and 1+2+2 = 5.
func ExampleNew() {
	m, err := mechanism.New("fastmax", mechanism.Options{})
	if err != nil {
		panic(err)
	}
	out := tensor.NewHeads(1, 1, 1, 1)
	err = m.Forward(out, &attention.Call{
		Q: tensor.HeadsOf([]float32{3, 7}, 1, 1, 1, 2),
		K: tensor.HeadsOf([]float32{5, 4, 0, 10}, 1, 1, 2, 2),
		V: tensor.HeadsOf([]float32{6, 12}, 1, 1, 2, 1),
	}, nil)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%.4f\n", out.Data)
	// Output: [11.0000]
}

// Quadratic dropout leaves out products of two channels, in the term of degree 2 alone.
// The masks keep the squares of both channels: half of the products of a query and of a
// key, so that each side counts twice. The scores -2 and 2 have the weights 1-2+8/2 = 3
// and 1+2+8/2 = 7.
func Example_quadraticDropout() {
	m, err := mechanism.New("fastmax", mechanism.Options{})
	if err != nil {
		panic(err)
	}
	squares := []bool{true, false, false, true}
	out := tensor.NewHeads(1, 1, 1, 1)
	err = m.Forward(out, &attention.Call{
		Q:    tensor.HeadsOf([]float32{3, 7}, 1, 1, 1, 2),
		K:    tensor.HeadsOf([]float32{5, 4, 0, 10}, 1, 1, 2, 2),
		V:    tensor.HeadsOf([]float32{6, 12}, 1, 1, 2, 1),
		Drop: &attention.Drop{Kind: attention.ProductDrop, Rate: 0.5, Q2: squares, K2: append(squares, squares...)},
	}, nil)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%.4f\n", out.Data)
	// Output: [10.2000]
}

// Keys arrive one at a time; the state does not grow.
func Example_state() {
	m, err := mechanism.New("linear", mechanism.Options{})
	if err != nil {
		panic(err)
	}
	st, err := m.NewState(attention.Shape{B: 1, H: 1, Hkv: 1, D: 1, Dv: 1})
	if err != nil {
		panic(err)
	}
	out := tensor.NewHeads(1, 1, 1, 1)
	for _, v := range []float32{2, 4, 6} {
		token := &attention.Call{
			Q: tensor.HeadsOf([]float32{0}, 1, 1, 1, 1),
			K: tensor.HeadsOf([]float32{0}, 1, 1, 1, 1),
			V: tensor.HeadsOf([]float32{v}, 1, 1, 1, 1),
		}
		if err := st.Step(out, token); err != nil {
			panic(err)
		}
		fmt.Printf("%.3f\n", out.Data[0])
	}
	// Output:
	// 2.000
	// 3.000
	// 4.000
}
