package model

import (
	"math"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/rng"
)

// small are settings that suit sequences of a few tokens.
var small = map[string]map[string]string{
	"linformer": {"rank": "4"},
	"mamba-2":   {"state": "5"},
	"hyena":     {"filter": "6", "features": "5", "freq": "1"},
}

// catalogue returns a configuration with each mechanism, and with each mixer that
// owns its projections: a decoder, or an encoder where there is no causal form.
func catalogue(t *testing.T) map[string]Config {
	t.Helper()
	all := map[string]Config{}
	for _, name := range append(mechanism.Names(), nn.MixerNames()...) {
		c := tiny(Decoder, name)
		c.Set = small[name]
		if row, _ := nn.LookupMixer(name); row.ISTA {
			c.Hidden = 0
		}
		m, _, err := bareMixer(c, c.IsCausal(), noLayer)
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
			m, err := New(c, rng.New(1))
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
			m := made(t, c)
			dir := t.TempDir()
			if err := m.Save(dir); err != nil {
				t.Fatal(err)
			}
			again, err := Load(dir)
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

// What a mixer that owns its projections has no place for is refused.
func TestMixersRefuse(t *testing.T) {
	for want, c := range map[string]Config{
		"mamba-2 with these settings is causal alone, kind encoder is not":          tiny(Encoder, "mamba-2"),
		"kind: encoder-decoder, but mamba-2 owns its projections and has no cr":     tiny(EncoderDecoder, "mamba-2"),
		"informer with these settings is not causal, which kind encoder-decoder ne": tiny(EncoderDecoder, "informer"),
		"eva with these settings answers a query with the others":                   with(tiny(EncoderDecoder, "eva"), func(c *Config) { c.Set = map[string]string{"chunk": "4"} }),
		"fastmax with a window has no cross-attention to a source, which kind":      with(tiny(EncoderDecoder, "fastmax"), func(c *Config) { c.Set = map[string]string{"window": "4"} }),
		"positions: rope, but mamba-2 owns its projections and takes no rotat":      with(tiny(Decoder, "mamba-2"), func(c *Config) { c.Positions = Rotary }),
		"kv_heads: 1, but mamba-2 owns its projections and has no key heads":        with(tiny(Decoder, "mamba-2"), func(c *Config) { c.KVHeads = 1 }),
		"decay: learned, which mamba-2 with these settings does not take":           with(tiny(Decoder, "mamba-2"), func(c *Config) { c.Decay = LearnedDecay }),
		"attention_dropout: 0.1, which mamba-2 does not take":                       with(tiny(Decoder, "mamba-2"), func(c *Config) { c.AttentionDropout = 0.1 }),
		"mamba-2: order 2: it has no order":                                         with(tiny(Decoder, "mamba-2"), func(c *Config) { c.Order = 2 }),
		"hidden: 17, but crate has a step as wide as the model in place of the MLP": tiny(Decoder, "crate"),
		"weights, at most": with(tiny(Decoder, "mamba-2"), func(c *Config) { c.Width, c.Heads = 3<<20, 1 }),
	} {
		if err := c.Validate(); err == nil || !strings.Contains(fault.InFile(err).Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
}
