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

// Keys of another kind than those that made the codebook lie farther from its centres, and about the
// means of such wide cells more weights of order 1 are negative.
func ExampleNew_cells() {
	const n, d, cells = 256, 8, 16
	c := &attention.Call{Q: tensor.NewHeads(1, 1, n, d), K: tensor.NewHeads(1, 1, n, d), V: tensor.NewHeads(1, 1, n, 1)}
	m, err := mechanism.New("multipole", mechanism.Options{Order: 1, Width: d, Set: map[string]string{"cells": fmt.Sprint(cells)}})
	if err != nil {
		panic(err)
	}
	book, err := m.Constants().Get("codebook")
	if err != nil {
		panic(err)
	}
	for i := range c.Q.Data {
		c.Q.Data[i] = float32(rng.New(1).Normal(uint64(i)))
	}
	for _, kind := range []struct {
		name string
		far  float32
	}{{"like the samples", 0.25}, {"unlike the samples", 1.5}} {
		for i := range c.K.Data {
			c.K.Data[i] = book.Data[i%len(book.Data)] + kind.far*float32(rng.New(2).Normal(uint64(i)))
		}
		heads, err := m.Diagnose(c)
		if err != nil {
			panic(err)
		}
		fmt.Printf("keys %s: %.1f from the centres, %.1f %% of the weight is wild\n", kind.name, heads[0].KeyDistance, 100*heads[0].WildShare)
	}
	// Output:
	// keys like the samples: 0.7 from the centres, 0.0 % of the weight is wild
	// keys unlike the samples: 3.9 from the centres, 6.7 % of the weight is wild
}
