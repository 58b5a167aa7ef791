//go:build !float64

package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/nn"
)

// A mechanism whose numbers mean nothing before training gets them with the exchange. They stay with
// the layer when only its settings change.
func TestExchangeTakesNumbers(t *testing.T) {
	c := with(llama(), func(c *Config) { c.Dropout, c.AttentionDropout = 0, 0 })
	m := made(t, c)
	d, heads := c.headWidth(), c.kvHeads()
	numbers := map[string][]float32{}
	for i := range c.Layers {
		data := make([]float32, heads*3*d)
		for j := range data {
			data[j] = float32(i + j)
		}
		numbers[layerName(i)+".codebook"] = data
	}
	set := map[string]string{"cells": "3", "block": "2", "window": "1"}
	y, err := m.Exchanged(Exchange{Mechanism: "multipole", Set: set, Numbers: numbers})
	if err != nil {
		t.Fatal(err)
	}
	z, err := y.Exchanged(Exchange{Mechanism: "multipole", Order: 2, Set: map[string]string{"window": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []*Model{y, z} {
		for name, want := range numbers {
			if p, err := x.Constants().Get(name); err != nil || !slices.Equal(p.Data, want) {
				t.Errorf("%s is not what was given: %v", name, err)
			}
		}
	}
	if got := z.Config().LayerMechanisms[1]; got.Order != 2 || got.Set["cells"] != "3" || got.Set["window"] != "2" || got.Set["block"] != "2" {
		t.Errorf("with another window a layer has %+v", got)
	}
	for want, x := range map[string]Exchange{
		"codebook":     {Mechanism: "multipole", Set: set, Layers: []int{1}, Numbers: map[string][]float32{"layers.0.attn.codebook": numbers["layers.0.attn.codebook"]}},
		"1 numbers":    {Mechanism: "multipole", Set: set, Layers: []int{0}, Numbers: map[string][]float32{"layers.0.attn.codebook": {1}}},
		"no such numb": {Mechanism: "local", Numbers: map[string][]float32{"layers.0.attn.codebook": {1}}},
	} {
		if _, err := m.Exchanged(x); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

// A model in fewer bits gives its weights to the copy with other mechanisms.
func TestExchangedModelsInFewerBitsKeepTheirWeights(t *testing.T) {
	for _, precision := range []nn.Precision{nn.BFloat16, nn.Int8} {
		m := made(t, exchangeable()["bert"])
		b := batch(m.config, 5, 2, 6, false)
		if err := m.Compress(precision); err != nil {
			t.Fatal(err)
		}
		want := logits(t, m, b)
		y := exchange(t, m, Exchange{Mechanism: "local", Set: map[string]string{"span": "64"}})
		got := logits(t, y, b)
		for i := range got {
			if d := got[i] - want[i]; !(-1e-3 < d && d < 1e-3) { // rows of 8 bits may round otherwise
				t.Fatalf("%v: a window of all keys, held as %v, gives %v, want %v", precision, y.precision, got[i], want[i])
			}
		}
		if y.precision != precision {
			t.Errorf("%v: the copy is held as %v", precision, y.precision)
		}
	}
}
