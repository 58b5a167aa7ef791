package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/fault"
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
func exchange(t *testing.T, m *Model, x Exchange) *Model {
	t.Helper()
	y, err := m.Exchanged(x)
	if err != nil {
		t.Fatal(err)
	}
	return y
}

func TestExchangedModelsAreSaved(t *testing.T) {
	for _, x := range []Exchange{
		{Mechanism: "fastmax"}, {Mechanism: "fastmax", Order: 1, Layers: []int{1}}, {Mechanism: "performer"}, {Mechanism: "rfa", Layers: []int{1}},
		{Mechanism: "local", Set: map[string]string{"span": "3"}},
	} {
		for name, c := range exchangeable() {
			m := made(t, c)
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
			z, err := Load(dir)
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
		if _, err := x.c.Exchanged(x.x); err == nil || !strings.Contains(fault.InFile(err).Error(), x.want) {
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
