package model

import (
	"math"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/rng"
)

// Fleuret's nets, as large as his.
func fleuret(mechanism string) Config {
	c := Config{Kind: Convolutional, Inputs: 1, Outputs: 1, Loss: Squared, Layers: 5, Width: 64, Conv: 5, Context: 100, Positions: NoPosition, Bias: true}
	if mechanism != "" {
		c.Layers, c.Heads, c.Mechanism = 4, 1, mechanism
	}
	return c
}

func TestShapesNets(t *testing.T) {
	for mechanism, want := range map[string]int{"": 62337, "softmax": 54081, "fastmax": 54081} {
		c := fleuret(mechanism)
		if mechanism == "softmax" {
			c.Set = map[string]string{"scale": "1"}
		}
		m, err := New(c, rng.New(1))
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Params().Size(); got != want || c.Params() != want {
			t.Errorf("%q: the net has %d weights, %d are counted, published are %d", mechanism, got, c.Params(), want)
		}
		for _, p := range m.Params().All() {
			in := 5 * 64
			switch {
			case strings.HasPrefix(p.Name, "layers.0"):
				in = 5
			case strings.HasPrefix(p.Name, "attn"):
				in = 64
			}
			bound, most := 1/math.Sqrt(float64(in)), 0.0
			for _, x := range p.Data {
				most = max(most, math.Abs(float64(x)))
			}
			if most > bound || most < bound/2 && len(p.Data) > 1 {
				t.Errorf("%s: the largest first weight is %v, uniform are those within %v", p.Name, most, bound)
			}
		}
	}
}

func TestNamesOfEnds(t *testing.T) {
	names := func(c Config) string {
		var list []string
		for _, p := range made(t, c).Params().All() {
			if !strings.HasPrefix(p.Name, "layers.1") && !strings.HasPrefix(p.Name, "layers.0.") || c.Kind == Convolutional {
				list = append(list, p.Name)
			}
		}
		return strings.Join(list, " ")
	}
	c := tiny(Encoder, "softmax")
	c.Vocab, c.Inputs, c.Outputs, c.Tied, c.Pool, c.HeadHidden = 0, 3, 5, false, PoolCLS, 4
	if got, want := names(c), "input.weight input.bias cls.weight position.weight norm.weight norm.bias head_hidden.weight head_hidden.bias head.weight head.bias"; got != want {
		t.Errorf("names are %s, want %s", got, want)
	}
	n := fleuret("softmax")
	n.Layers, n.Bias = 3, false
	if got, want := names(n), "layers.0.weight layers.1.weight attn.q_proj.weight attn.k_proj.weight attn.v_proj.weight head.weight"; got != want {
		t.Errorf("names are %s, want %s", got, want)
	}
}

func TestEndsAreChecked(t *testing.T) {
	enc, dec := with(tiny(Encoder, "softmax"), func(c *Config) { c.Tied = false }), with(tiny(Decoder, "linear"), func(c *Config) { c.Tied = false })
	for _, x := range []struct {
		c    Config
		want string
	}{
		{with(enc, func(c *Config) { c.Inputs = 2 }), "inputs: 2 numbers take the place of tokens, but vocab is 11"},
		{with(enc, func(c *Config) { c.Inputs, c.Vocab = 2, 0 }), "outputs: 0, needs"},
		{with(enc, func(c *Config) { c.Inputs = -1 }), "inputs: -1, needs"},
		{with(tiny(EncoderDecoder, "softmax"), func(c *Config) { c.Inputs, c.Vocab, c.Outputs = 2, 0, 3 }), "inputs: 2, but kind encoder-decoder reads tokens"},
		{with(enc, func(c *Config) { c.Outputs = -1 }), "outputs: -1, needs"},
		{with(enc, func(c *Config) { c.HeadHidden = -1 }), "head_hidden: -1, needs"},
		{with(enc, func(c *Config) { c.Pool = "max" }), `pool: "max" is none of mean, last, first, cls`},
		{with(dec, func(c *Config) { c.Pool = PoolCLS }), "pool: cls sees nothing in front of kind decoder, last has seen all"},
		{with(enc, func(c *Config) { c.Parts = 2 }), "parts: 2 need to be pooled"},
		{with(enc, func(c *Config) { c.Parts = 3 }), "parts: 3, needs to be 1 or 2"},
		{with(enc, func(c *Config) { c.Loss = "huber" }), `loss: "huber" is none of squared, logistics`},
		{with(enc, func(c *Config) { c.Loss = Squared }), "loss: squared needs outputs"},
		{with(dec, func(c *Config) { c.Loss, c.Outputs = Logistics, 10 }), "outputs: 10, but loss logistics has 3"},
		{with(tiny(Encoder, "softmax"), func(c *Config) { c.Outputs = 4 }), "tied: the head is the embedding"},
		{with(dec, func(c *Config) { c.Dropout = 1 }), "dropout: 1, needs 0 ≤ rate < 1"},
		{with(fleuret(""), func(c *Config) { c.Inputs, c.Vocab = 0, 11 }), "vocab: kind convolutional has none"},
		{with(fleuret(""), func(c *Config) { c.Conv = 4 }), "conv: 4, kind convolutional needs windows of an odd number"},
		{with(fleuret(""), func(c *Config) { c.Layers = 1 }), "layers: 1, kind convolutional needs 2"},
		{with(fleuret(""), func(c *Config) { c.Heads = 1 }), "heads: kind convolutional has none"},
		{with(fleuret("softmax"), func(c *Config) { c.Heads = 0 }), "heads: 0, needs"},
		{with(fleuret("softmax"), func(c *Config) { c.Positions = Learned }), "positions: kind convolutional has none"},
		{with(fleuret("softmax"), func(c *Config) { c.Dropout = 0.1 }), "dropout: kind convolutional has none"},
		{fleuret("mamba-2"), "mechanism: mamba-2 owns its projections"},
	} {
		if err := x.c.Validate(); err == nil || !strings.Contains(fault.InFile(err).Error(), x.want) {
			t.Errorf("error is %v, want %q", err, x.want)
		}
	}
}

// Arrays of a mechanism by the context have a row for the position of PoolCLS, too.
func TestSequencesOfTheWholeContextFitWithCLS(t *testing.T) {
	for name, set := range map[string]map[string]string{"linformer": nil, "informer": {"sample": "stored"}} {
		c := with(tiny(Encoder, name), func(c *Config) { c.Set, c.Pool, c.Tied, c.Outputs = set, PoolCLS, false, 3 })
		logits(t, made(t, c), batch(c, 1, 2, c.Context, false))
	}
}

// A command that makes a Batch of its files does not name Go's fields.
func TestErrorsOfBatchesNameFieldsInGoAlone(t *testing.T) {
	c := tiny(EncoderDecoder, "fastmax")
	for want, change := range map[string]func(*Batch){
		"tokens: row 0, position 0 is -1":  func(b *Batch) { b.Tokens[0] = -1 },
		"source lens: row 0 is 7, N is 6":  func(b *Batch) { b.SourceLens = []int64{7, 1} },
		"targets: none of them is counted": func(b *Batch) { b.Lens = []int64{0, 0} },
	} {
		b := batch(c, 1, 2, 5, false)
		change(b)
		_, err := made(t, c).Forward(t.Context(), b)
		inFile := fault.InFile(err)
		if err == nil || !strings.Contains(inFile.Error(), want) || strings.Contains(err.Error(), want) {
			t.Errorf("in Go: %v; in a file: %v, want %q", err, inFile, want)
		}
	}
}

func TestBatchesFitTheEnds(t *testing.T) {
	all := cases()
	for _, x := range []struct {
		name   string
		change func(*Batch)
		want   string
	}{
		{"numbers", func(b *Batch) { b.Values[17] = float32(math.NaN()) }, "Values: row 1, position 1 has NaN"},
		{"numbers", func(b *Batch) { b.Values = b.Values[1:] }, "Values: has 23 elements, B·N·Inputs is 2·4·3"},
		{"numbers", func(b *Batch) { b.Tokens = make([]int32, 8) }, "Tokens: there are 8, but the model reads numbers"},
		{"outputs", func(b *Batch) { b.Values = make([]float32, 8) }, "Values: there are 8, but the model reads tokens"},
		{"outputs", func(b *Batch) { b.Targets[5] = 4 }, "Targets: row 1, position 1 is 4"},
		{"outputs", func(b *Batch) { b.Numbers = make([]float32, 1) }, "Numbers: there are 1, but the targets of this model are classes"},
		{"mean", func(b *Batch) { b.Targets = make([]int32, 8) }, "Targets: has 8 elements, 2 are needed"},
		{"mean", func(b *Batch) { b.Targets[1] = 11 }, "Targets: row 1 is 11, there are 11 classes"},
		{"pairs", func(b *Batch) { b.B, b.Tokens = 1, b.Tokens[:4] }, "batch: 1 sequences, pairs need an even number"},
		{"squared", func(b *Batch) { b.Numbers = b.Numbers[1:] }, "Numbers: has 39 elements, 8 rows of 5 are needed"},
		{"squared", func(b *Batch) { b.Numbers[6] = float32(math.Inf(1)) }, "Numbers: row 1 has +Inf"},
		{"squared", func(b *Batch) { b.Targets = make([]int32, 8) }, "Targets: there are 8, but the targets of this model are numbers"},
		{"logistics", func(b *Batch) { b.Numbers[1] = 0.5 }, "Numbers: row 1 is 0.5, levels are whole numbers from 0 to 255"},
		{"logistics", func(b *Batch) { b.Numbers[2] = 256 }, "Numbers: row 2 is 256, levels"},
	} {
		b := batch(all[x.name], 1, 2, 4, false)
		x.change(b)
		if _, err := made(t, all[x.name]).Forward(t.Context(), b); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: error is %v, want %q", x.name, err, x.want)
		}
	}
	for _, name := range []string{"numbers decoder", "last", "net"} {
		if _, err := made(t, all[name]).NewSession(1); err == nil {
			t.Errorf("%s has a session", name)
		}
	}
}
