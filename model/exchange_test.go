package model

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/nn"
)

// exchangeable are models of both kinds, with and without windows and scales.
func exchangeable() map[string]Config {
	v := variants()
	return map[string]Config{
		"decoder":    with(llama(), func(c *Config) { c.Set = map[string]string{"scale": "0.4"} }),
		"gemma":      v["gemma"],
		"bert":       v["bert"],
		"modernbert": v["modernbert"],
		"vit":        v["vit"],
		"fixed":      with(tiny(Decoder, "softmax"), func(c *Config) { c.Dropout = 0 }),
	}
}

// exchange returns m with x.
func exchange[T float32 | float64](t *testing.T, m *modelOf[T], x Exchange) *modelOf[T] {
	t.Helper()
	y, err := m.Exchanged(x)
	if err != nil {
		t.Fatal(err)
	}
	return y
}

func TestExchangedSoftmaxIsTheSameFunction(t *testing.T) {
	for name, c := range exchangeable() {
		m := made[float64](t, c)
		b := batch(c, 5, 2, 6, false)
		want := logits(t, m, b)
		// Explicit settings build the layers anew.
		explicit := c.Clone()
		explicit.LayerMechanisms = c.Mechanisms()
		y, err := newUndrawn[float64](explicit, map[string]uint64{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, p := range y.storedParams() {
			copy(p.Data, m.storedParams()[i].Data)
		}
		if got := logits(t, y, b); !slices.Equal(got, want) {
			t.Errorf("%s: explicit mechanisms give other bits", name)
		}
		y = exchange(t, m, Exchange{Mechanism: "softmax", AllLayers: c.LayerWindows == nil})
		if got := logits(t, y, b); !slices.Equal(got, want) {
			t.Errorf("%s: softmax gives other bits", name)
		}
		if got := y.Config(); !reflect.DeepEqual(got, m.Config()) {
			t.Errorf("%s: what asks for nothing changed the configuration to %+v", name, got)
		}
		y = exchange(t, m, Exchange{Mechanism: "local", Set: map[string]string{"span": "64"}})
		got := logits(t, y, b)
		for i := range got {
			if d := got[i] - want[i]; d > 1e-12 || d < -1e-12 {
				t.Errorf("%s: output %d of a window over all keys is %g, softmax has %g", name, i, got[i], want[i])
				break
			}
		}
		y = exchange(t, m, Exchange{Mechanism: "local", Set: map[string]string{"span": "2"}, Layers: []int{0}})
		if slices.Equal(logits(t, y, b), want) {
			t.Errorf("%s: a window of 2 keys changes nothing", name)
		}
		y = exchange(t, exchange(t, y, Exchange{Mechanism: "fastmax", Layers: []int{0}}), Exchange{Mechanism: "softmax", Layers: []int{0}})
		if got := y.Config(); !slices.Equal(logits(t, y, b), want) || !reflect.DeepEqual(got, m.Config()) {
			t.Errorf("%s: softmax put back gives other bits, or the configuration %+v", name, got)
		}
	}
}

func TestExchangedModelsAreSaved(t *testing.T) {
	for _, x := range []Exchange{
		{Mechanism: "fastmax"}, {Mechanism: "fastmax", Order: 1, Layers: []int{1}}, {Mechanism: "performer"}, {Mechanism: "rfa", Layers: []int{1}},
		{Mechanism: "local", Set: map[string]string{"span": "3"}},
	} {
		for name, c := range exchangeable() {
			m := made[float32](t, c)
			y, err := m.Exchanged(x)
			if err != nil {
				if x.Mechanism != "rfa" || !strings.Contains(err.Error(), "scale") {
					t.Errorf("%s, %+v: %v", name, x, err)
				}
				continue
			}
			if got, want := y.Config().Params(), y.Params().Size(); got != want {
				t.Errorf("%s, %+v: %d weights are counted, there are %d", name, x, got, want)
			}
			dir := t.TempDir()
			if err := y.Save(dir); err != nil {
				t.Fatal(err)
			}
			z, err := loadModel[float32](dir, nil)
			if err != nil {
				t.Fatalf("%s, %+v: %v", name, x, err)
			}
			b := batch(c, 5, 2, 6, false)
			if !slices.Equal(logits(t, z, b), logits(t, y, b)) {
				t.Errorf("%s, %+v: the saved model is another one", name, x)
			}
			if again := exchange(t, m, x); !slices.Equal(logits(t, again, b), logits(t, y, b)) {
				t.Errorf("%s, %+v: exchanged twice, the models differ", name, x)
			}
		}
	}
}

func TestExchangeCarriesTheScale(t *testing.T) {
	c := with(llama(), func(c *Config) { c.Set = map[string]string{"scale": "0.4"} })
	for _, x := range []struct{ mechanism, own, want string }{
		{"fastmax", "", "0.4"}, {"fastmax", "2", "2"}, {"local", "", "0.4"}, {"performer", "", "0.4"},
	} {
		set := map[string]string{}
		if x.own != "" {
			set["scale"] = x.own
		}
		got, err := c.Exchanged(Exchange{Mechanism: x.mechanism, Set: set})
		if err != nil {
			t.Fatal(err)
		}
		if s := got.LayerMechanisms[0].Set["scale"]; s != x.want {
			t.Errorf("%s: scale is %q, want %q", x.mechanism, s, x.want)
		}
	}
	c.Set = nil
	if got, err := c.Exchanged(Exchange{Mechanism: "fastmax"}); err != nil || got.LayerMechanisms[1].Set["scale"] != "1/sqrt(D)" {
		t.Errorf("fastmax: settings are %v, error %v", got.LayerMechanisms, err)
	}
}

func TestExchangeIsRefused(t *testing.T) {
	v := variants()
	scaled := with(llama(), func(c *Config) { c.Set = map[string]string{"scale": "0.4"} })
	for _, x := range []struct {
		name string
		c    Config
		x    Exchange
		want string
	}{
		{"no name", llama(), Exchange{}, "mechanism: is missing"},
		{"unknown", llama(), Exchange{Mechanism: "fastmux"}, "nearest: fastmax"},
		{"mixer", llama(), Exchange{Mechanism: "crate"}, "owns its projections"},
		{"of a mixer", tiny(Encoder, "crate"), Exchange{Mechanism: "local"}, "has no attention"},
		{"numbers", v["bert"], Exchange{Mechanism: "linformer"}, "E and F"},
		{"not causal", llama(), Exchange{Mechanism: "nystrom"}, "layer 0: mechanism: nystrom"},
		{"no scale", scaled, Exchange{Mechanism: "based"}, "scale 0.4"},
		{"setting", llama(), Exchange{Mechanism: "local", Set: map[string]string{"width": "3"}}, "width"},
		{"layer", llama(), Exchange{Mechanism: "local", Layers: []int{0, 7}}, "layers: 7"},
		{"windows alone", v["mistral"], Exchange{Mechanism: "fastmax"}, "every layer"},
		{"relative", v["mpnet"], Exchange{Mechanism: "local"}, "relative_buckets is 8"},
		{"source", v["bart"], Exchange{Mechanism: "fastmax"}, "kind is encoder-decoder"},
	} {
		if _, err := x.c.Exchanged(x.x); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: error is %v, want %q", x.name, err, x.want)
		}
	}
	for want, list := range map[string][]LayerMechanism{
		"1 elements": {{}}, "no mechanism": {{Order: 2}, {}}, "layer 1: crate": {{}, {Mechanism: "crate"}}, "order": {{}, {Mechanism: "softmax", Order: 3}},
	} {
		c := llama()
		if c.LayerMechanisms = list; c.Validate() == nil || !strings.Contains(c.Validate().Error(), want) {
			t.Errorf("%v: error is %v, want %q", list, c.Validate(), want)
		}
	}
	c := v["bart"]
	if c.LayerMechanisms = make([]LayerMechanism, c.Layers); c.Validate() != nil {
		t.Errorf("neutral mechanisms: %v", c.Validate())
	}
}

func TestSessionsOfExchangedModels(t *testing.T) {
	c := with(llama(), func(c *Config) { c.AttentionDropout = 0 })
	m := made[float64](t, c)
	for _, x := range []Exchange{{Mechanism: "fastmax", Layers: []int{1}}, {Mechanism: "local", Set: map[string]string{"span": "3"}}} {
		y := exchange(t, m, x)
		b := batch(c, 5, 1, 7, false)
		want := logits(t, y, b)
		s, err := y.NewSession(1)
		if err != nil {
			t.Fatal(err)
		}
		var got []float64
		for _, id := range b.Tokens {
			if got, err = s.Step(t.Context(), []int32{id}, 1); err != nil {
				t.Fatal(err)
			}
		}
		last := want[len(want)-len(got):]
		for i := range got {
			if d := got[i] - last[i]; d > 1e-9 || d < -1e-9 {
				t.Fatalf("%+v: logit %d after steps is %g, a pass has %g", x, i, got[i], last[i])
			}
		}
		data, err := s.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := y.RestoreSession(data); err != nil {
			t.Errorf("%+v: %v", x, err)
		}
		if _, err := m.RestoreSession(data); err == nil || !strings.Contains(err.Error(), "another configuration") {
			t.Errorf("%+v: a model with other layers restores the session: %v", x, err)
		}
	}
}

// A mechanism whose numbers mean nothing before training gets them with the exchange. They stay with
// the layer when only its settings change.
func TestExchangeTakesNumbers(t *testing.T) {
	c := with(llama(), func(c *Config) { c.Dropout, c.AttentionDropout = 0, 0 })
	m := made[float32](t, c)
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
	for _, x := range []*modelOf[float32]{y, z} {
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
		m := made[float32](t, exchangeable()["bert"])
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
