//go:build float64

package mechanism

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Heads of the same numbers have the same outputs, which do not change with another head,
// unless Traits or parameters say so.
func TestPlacedHeadsAreDeclared(t *testing.T) {
	sets := map[string]map[string]string{"longnet": {"segments": "8,16", "ratios": "2,4"}, "sparse-fixed": {"stride": "8", "c": "2"}, "local": {"span": "8"}, "polynomial over heads": {"norm": "global-centred"}, "polynomial over tokens": {"norm": "max"}, "multipole": {"block": "4", "cells": "2"}}
	for _, label := range append(Names(), "polynomial over heads", "polynomial over tokens") {
		name, _, _ := strings.Cut(label, " ")
		m, err := New(name, Options{Heads: 3, Width: 4, Length: 40, Set: sets[label]})
		if err != nil {
			t.Fatal(err)
		}
		if m.Params().Size() > 0 {
			continue
		}
		c := &attention.Call{Causal: m.Traits().CausalOnly}
		for i, x := range []*tensor.Heads{&c.Q, &c.K, &c.V} {
			*x = tensor.NewHeads(1, 3, 40, 4)
			for j := range x.Data {
				x.Data[j] = rng.New(uint64(i)).Normal(uint64(j % (40 * 4)))
			}
		}
		out := tensor.NewHeads(1, 3, 40, 4)
		if err := m.Forward(out, c, nil); err != nil {
			t.Fatal(err)
		}
		is := false
		for h := 1; h < 3; h++ {
			is = is || !slices.Equal(out.Data[:40*4], out.Data[h*40*4:][:40*4])
		}
		first := slices.Clone(out.Data[:40*4])
		for i, x := range c.Q.Head(0, 2).Data {
			c.Q.Head(0, 2).Data[i] = 2*x + 1
		}
		if err := m.Forward(out, c, nil); err != nil {
			t.Fatal(err)
		}
		is = is || !slices.Equal(first, out.Data[:40*4])
		if is != m.Traits().PlacedHeads {
			t.Errorf("%s: outputs of heads differ, or change with another head: %t", label, is)
		}
	}
}

// A query of an unmasked call has the same output alone and beside other queries, unless
// Traits say that it does not.
func TestPlacedQueriesAreDeclared(t *testing.T) {
	sets := map[string]map[string]string{
		"luna": {"form": "causal"}, "eva": {"chunk": "8"}, "sparse-strided": {"stride": "8"}, "sparse-fixed": {"stride": "8"},
		"local": {"span": "8"}, "longformer": {"window": "8"}, "scatterbrain": {"window": "8"},
		"clustered": {"clusters": "4"}, "improved-clustered": {"clusters": "4"},
		"scatterbrain by hashes": {"support": "lsh", "cluster": "8"}, "performer by the longest": {"form": "code", "kernel": "hyperbolic"},
		"polynomial over tokens": {"norm": "max"}, "multipole of the input": {"centres": "input", "least": "0"},
	}
	for _, label := range append(Names(), "multipole of the input", "scatterbrain by hashes", "performer by the longest", "polynomial over tokens") {
		name, _, _ := strings.Cut(label, " ")
		m, err := New(name, Options{Heads: 1, Width: 4, Length: 64, Set: sets[label]})
		if err != nil {
			t.Fatal(err)
		}
		if m.Traits().CausalOnly {
			continue
		}
		keys := 50
		if name == "reformer" {
			keys = 40 // its queries are its keys
		}
		c := &attention.Call{Q: tensor.NewHeads(1, 1, 40, 4), K: tensor.NewHeads(1, 1, keys, 4), V: tensor.NewHeads(1, 1, keys, 3)}
		for i, x := range [][]float64{c.Q.Data, c.K.Data, c.V.Data} {
			for j := range x {
				x[j] = rng.New(uint64(i)).Normal(uint64(j))
			}
		}
		all, one := tensor.NewHeads(1, 1, 40, 3), tensor.NewHeads(1, 1, 1, 3)
		if err := m.Forward(all, c, nil); err != nil {
			t.Fatal(err)
		}
		most := 0.0
		for i := 0; i < all.N && m.Traits().Causal && name != "reformer"; i++ {
			alone := *c
			alone.Q = c.Q.Tokens(i, i+1)
			if err := m.Forward(one, &alone, nil); err != nil {
				t.Fatal(err)
			}
			for j, x := range one.Data {
				most = math.Max(most, math.Abs(x-all.Data[3*i+j]))
			}
		}
		if !m.Traits().PlacedQueries && most > 1e-12 {
			t.Errorf("%s: a query alone differs by %g", label, most)
		}
		for j := range c.Q.Data[20*4:] {
			c.Q.Data[20*4+j] = rng.New(3).Normal(uint64(j))
		}
		others := tensor.NewHeads(1, 1, 40, 3)
		if err := m.Forward(others, c, nil); err != nil {
			t.Fatal(err)
		}
		if is := !slices.Equal(all.Data[:20*3], others.Data[:20*3]); is != m.Traits().MixedQueries {
			t.Errorf("%s: outputs change with other queries: %t", label, is)
		}
	}
}
