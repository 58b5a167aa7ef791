//go:build !float64

package factorised_test

import (
	"fmt"
	"log"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/param"
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

// distance are features whose product is 2β·q·k - β|k|², which is β|q|² - β|q-k|².
type distance struct{ beta float32 }

func (distance) Dim(d int) int             { return d + 1 }
func (distance) Params() *param.Set        { return nil }
func (distance) Constants() *param.Set     { return nil }
func (distance) Check(int, int, int) error { return nil }

func (f distance) Map(b *attention.FeatureBlock) {
	for t := range b.N {
		last := float32(1)
		if b.Keys {
			last = 0
		}
		for c := range b.D {
			x := b.X[c*b.Stride+t]
			b.Y[c*b.Stride+t] = x
			if b.Keys {
				last -= f.beta * x * x
			} else {
				b.Y[c*b.Stride+t] = 2 * f.beta * x
			}
		}
		b.Y[b.D*b.Stride+t] = last
	}
}

func (f distance) Grad(b *attention.FeatureBlock) {
	for t := range b.N {
		for c := range b.D {
			at := c*b.Stride + t
			if b.Keys {
				b.DX[at] = b.Y[at] - 2*f.beta*b.X[at]*b.Y[b.D*b.Stride+t]
			} else {
				b.DX[at] = 2 * f.beta * b.Y[at]
			}
		}
	}
}

// Weights exp(-β|q-k|²) are the exponential of a product of features, since |q|² is the same for
// all keys of a query.
func ExampleNew_exponentialOfFeatures() {
	m, err := factorised.New(attention.Spec{
		Name: "gauss", Setting: "gauss beta=ln2", Scale: 1, Exp: true, Features: distance{math.Ln2},
	})
	if err != nil {
		log.Fatal(err)
	}
	// Distances 0 and 1: weights 1 and 1/2, β = ln 2.
	c := &attention.Call{
		Q: tensor.HeadsOf([]float32{2}, 1, 1, 1, 1),
		K: tensor.HeadsOf([]float32{2, 3}, 1, 1, 2, 1),
		V: tensor.HeadsOf([]float32{3, 9}, 1, 1, 2, 1),
	}
	out := tensor.NewHeads(1, 1, 1, 1)
	if err := m.Forward(out, c, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.4f\n", out.Data[0])
	// Output: 5.0000
}
