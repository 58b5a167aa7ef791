package mechanism_test

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// One query, two keys. Rows of width 2 normalise to ±(1,-1), so the scores are
// -2 and 2 and the weights 1-2+2 = 1 and 1+2+2 = 5.
func ExampleNew() {
	m, err := mechanism.New[float32]("fastmax", mechanism.Options{})
	if err != nil {
		panic(err)
	}
	out := tensor.NewHeads[float32](1, 1, 1, 1)
	err = m.Forward(out, &attention.Call[float32]{
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
	m, err := mechanism.New[float32]("fastmax", mechanism.Options{})
	if err != nil {
		panic(err)
	}
	squares := []bool{true, false, false, true}
	out := tensor.NewHeads[float32](1, 1, 1, 1)
	err = m.Forward(out, &attention.Call[float32]{
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

func ExampleNames() {
	for _, name := range mechanism.Names() {
		row, err := mechanism.Lookup(name)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%-11s %s\n", row.Name, row.Doc)
	}
	// Output:
	// softmax     exp(q·k/√D), the baseline: quadratic in the tokens
	// fastmax     T_p(q̂·k̂) of rows with mean 0 and deviation 1: FAST
	// taylorshift T_2(τ q̂·k̂) of rows of length 1, τ learned per head: TaylorShift
	// linear      φ(q)·φ(k) with φ = elu + 1, or another feature map: linear attention
	// performer   φ(q)·φ(k) of random features whose mean is exp(q·k/√D): Performer, FAVOR+
	// rfa         φ(q̂)·φ(k̂) of sines and cosines whose mean is a Gaussian of q̂ - k̂, or of relu features: random feature attention
	// based       T_2(q·k/√D) of rows as they are: the linear attention of Based
	// power       (q·k/√D)^p for even p: symmetric power attention
	// sata        T_p(q·k/√D) of rows as they are, any p: SATA
	// retention   γ_h^(i-j)·q·k/√D without a denominator: the retention of RetNet
	// polynomial  Σ_l c_l·s^l of any coefficients, normalisation and scale: Based, power attention and others
	// fastmax-truncated the largest monomials of T_4(q̂·k̂) along axes of the data: the high order that FAST names as its next step
	// linformer   softmax over r learned mixtures of keys: softmax(q·(EᵀK)ᵀ/√D)·FᵀV
	// fourier     Π_d sinc(R(q_d-k_d))⁴: the Fourier integral estimator of FourierFormer, quadratic in the tokens
	// local       softmax over a window of keys around the query
	// longformer  softmax over a window, and global tokens that see all and are seen by all
	// longnet     softmax within segments of several lengths, of the longer ones every second token and fewer
	// sparse-strided softmax over the last tokens, and every stride-th token before them
	// sparse-fixed softmax over the query's block, and the last tokens of every block before
	// adaptive-span softmax with a span that each head learns: keys fade out over a ramp beyond it
	// transformer-xl softmax of the content and the distance of keys, over a memory of tokens
	// nystrom     softmax by way of landmarks, the means of neighbours, and a pseudo-inverse: Nyströmformer
	// informer    softmax of the queries whose scores differ most, the mean of the values for all others: ProbSparse
	// luna        softmax over a short sequence into which the tokens are packed by learned queries: Luna
	// eva         softmax over the keys of a window and one summary of each chunk of all tokens, with control variates: EVA
	// clustered   softmax(q̄·k/√D) of the mean q̄ of a cluster of queries, for all of them
	// improved-clustered clustered, where each query has its own weights for the top keys of its cluster
	// reformer    softmax(q·k/√D) with the keys k = q/|q| of tokens near in angle, by sorted hashes of several rounds: LSH attention
	// scatterbrain exp(q·k/√D) of near keys, in a window or by hashes, φ(q)·φ(k) of all others: sparse and low-rank attention
	// exact-topk  softmax over the k largest scores of each query: what approximations by chosen keys aim at, quadratic in the tokens
	// primal      projections of each query and of the key at its place, with a loss that makes them singular vectors: Primal-Attention
	// multipole   softmax whose far keys are expanded about the means of cells, exp(q·c̄/√D)·T_p(q·(k-c̄)/√D): multipole expansion
}

func ExampleLookup() {
	_, err := mechanism.Lookup("fastmx")
	fmt.Println(err)
	// Output: mechanism "fastmx": unknown; nearest: fastmax
}

// Keys arrive one at a time; the state does not grow.
func Example_state() {
	m, err := mechanism.New[float32]("linear", mechanism.Options{})
	if err != nil {
		panic(err)
	}
	st, err := m.NewState(attention.Shape{B: 1, H: 1, Hkv: 1, D: 1, Dv: 1})
	if err != nil {
		panic(err)
	}
	out := tensor.NewHeads[float32](1, 1, 1, 1)
	for _, v := range []float32{2, 4, 6} {
		token := &attention.Call[float32]{
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

// Softmax grows sharper with its scale; the polynomial of second degree stays
// spread over most keys.
func ExampleNew_diagnosis() {
	const n, d = 64, 8
	c := &attention.Call[float64]{Q: tensor.NewHeads[float64](1, 1, n, d), K: tensor.NewHeads[float64](1, 1, n, d), V: tensor.NewHeads[float64](1, 1, n, 1)}
	for i := range c.Q.Data {
		c.Q.Data[i], c.K.Data[i] = rng.New(1).Normal(uint64(i)), rng.New(2).Normal(uint64(i))
	}
	for _, x := range []struct{ name, scale string }{{"softmax", "1"}, {"softmax", "4"}, {"fastmax", "1"}} {
		m, err := mechanism.New[float64](x.name, mechanism.Options{Set: map[string]string{"scale": x.scale}})
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
