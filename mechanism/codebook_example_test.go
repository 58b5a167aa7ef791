package mechanism_test

import (
	"context"
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// With a codebook of sample keys, multipole comes close to softmax for other keys of their kind. With
// the random codebook of New it does not.
func ExampleCodebook() {
	const heads, n, d, places = 2, 512, 16, 24
	// Keys of models lie in groups. Here each lies near one of 24 places.
	draw := func(seed uint64) tensor.Heads {
		x := tensor.NewHeads(1, heads, n, d)
		for i := range x.Data {
			place := rng.New(seed).Intn(uint64(i/d), places)
			x.Data[i] = tensor.Float(rng.New(1).Normal(uint64(place*d+i%d)) + 0.2*rng.New(seed+1).Normal(uint64(i)))
		}
		return x
	}
	c := &attention.Call{Q: draw(10), K: draw(20), V: draw(30), Causal: true}

	softmax, err := mechanism.New("softmax", mechanism.Options{})
	if err != nil {
		panic(err)
	}
	exact := tensor.NewHeads(1, heads, n, d)
	if err := softmax.Forward(exact, c, nil); err != nil {
		panic(err)
	}
	multipole, err := mechanism.New("multipole", mechanism.Options{KeyHeads: heads, Width: d, Set: map[string]string{"cells": "32"}})
	if err != nil {
		panic(err)
	}
	compare := func(codebook string) {
		out := tensor.NewHeads(1, heads, n, d)
		if err := multipole.Forward(out, c, nil); err != nil {
			panic(err)
		}
		var difference, all float64
		for i, x := range exact.Data {
			difference += math.Pow(float64(out.Data[i]-x), 2)
			all += math.Pow(float64(x), 2)
		}
		fmt.Printf("%s: %.0f %% from softmax\n", codebook, 100*math.Sqrt(difference/all))
	}
	compare("random codebook")

	centres, err := mechanism.Codebook(context.Background(), draw(40), 32, 0)
	if err != nil {
		panic(err)
	}
	book, err := multipole.Constants().Get("codebook")
	if err != nil {
		panic(err)
	}
	copy(book.Data, centres)
	compare("codebook of samples")
	// Output:
	// random codebook: 39 % from softmax
	// codebook of samples: 10 % from softmax
}
