//go:build float64

package model

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestExchangedSoftmaxIsTheSameFunction(t *testing.T) {
	for name, c := range exchangeable() {
		m := made(t, c)
		b := batch(c, 5, 2, 6, false)
		want := logits(t, m, b)
		// Explicit settings build the layers anew.
		explicit := c.Clone()
		explicit.LayerMechanisms = c.Mechanisms()
		y, err := newUndrawn(explicit, map[string]uint64{})
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

func TestSessionsOfExchangedModels(t *testing.T) {
	c := with(llama(), func(c *Config) { c.AttentionDropout = 0 })
	m := made(t, c)
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
