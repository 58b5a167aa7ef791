package mechanism_test

import (
	"fmt"

	"github.com/farfield-ml/farfield/mechanism"
)

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

func ExampleLookup_settings() {
	row, err := mechanism.Lookup("exact-topk")
	if err != nil {
		panic(err)
	}
	for _, s := range row.Settings {
		fmt.Printf("%s=%s: %s\n", s.Name, s.Default, s.Doc)
	}
	_, err = mechanism.New("exact-topk", mechanism.Options{Set: map[string]string{"topk": "0"}})
	fmt.Println(err)
	// Output:
	// topk=32: k, keys of each query, 1 to 65536; fewer where it sees fewer
	// scale=1/sqrt(D): factor of the scores: a number or 1/sqrt(D)
	// exact-topk: setting topk=0: needs a whole number from 1 to 65536
}
