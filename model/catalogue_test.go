package model

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/rng"
)

// small are settings that suit sequences of a few tokens.
var small = map[string]map[string]string{
	"linformer": {"rank": "4"},
}

// catalogue returns a configuration with each mechanism: a decoder, or an encoder
// where there is no causal form.
func catalogue(t *testing.T) map[string]Config {
	t.Helper()
	all := map[string]Config{}
	for _, name := range mechanism.Names() {
		c := tiny(Decoder, name)
		c.Set = small[name]
		m, err := mechanism.New[float32](name, c.options())
		if err != nil {
			t.Fatal(err)
		}
		if !m.Traits().Causal {
			if err := c.Validate(); err == nil {
				t.Errorf("%s: a decoder is not refused", name)
			}
			c.Kind = Encoder
		}
		all[name] = c
	}
	return all
}

// Every mechanism of the catalogue learns by heart what a model is shown.
func TestEveryMechanismTrains(t *testing.T) {
	for name, c := range catalogue(t) {
		t.Run(name, func(t *testing.T) {
			m, err := New[float32](c, rng.New(1))
			if err != nil {
				t.Fatal(err)
			}
			b := batch(c, 2, 2, 7, false)
			adam := optim.NewAdamW(m.Params())
			var first, last float64
			for i := range 40 {
				m.Params().ZeroGrad()
				last = loss(t, m, b) + m.Aux()
				if i == 0 {
					first = last
				}
				backward(t, m)
				adam.Step(0.01, 1)
			}
			if !(last < first/2) || math.IsNaN(first) {
				t.Errorf("the loss goes from %v to %v", first, last)
			}
		})
	}
}

// A model of any mechanism is saved with all that its outputs depend on.
func TestEveryMechanismIsSaved(t *testing.T) {
	for name, c := range catalogue(t) {
		t.Run(name, func(t *testing.T) {
			m := made[float32](t, c)
			dir := t.TempDir()
			if err := m.Save(dir); err != nil {
				t.Fatal(err)
			}
			again, err := Load[float32](dir)
			if err != nil {
				t.Fatal(err)
			}
			b := batch(c, 3, 2, 6, false)
			want, got := logits(t, m, b), logits(t, again, b)
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("logit %d is %v, before it was saved %v", i, got[i], want[i])
				}
			}
		})
	}
}

// Sessions of every causal mechanism go on as the model does.
func TestEveryMechanismDecodes(t *testing.T) {
	for name, c := range catalogue(t) {
		if c.Kind != Decoder {
			continue
		}
		t.Run(name, func(t *testing.T) {
			m := made[float64](t, c)
			b := batch(c, 4, 1, 6, false)
			want := logits(t, m, b)
			s, err := m.NewSession(1)
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.N {
				got, err := s.Step(b.Tokens[i:][:1], 1)
				if err != nil {
					t.Fatal(err)
				}
				for j, x := range got {
					if d := math.Abs(x - want[i*c.Vocab+j]); !(d <= 1e-9) {
						t.Fatalf("token %d: logit %d is off by %v", i, j, d)
					}
				}
			}
		})
	}
}
