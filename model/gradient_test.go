package model

import (
	"maps"
	"math"
	"testing"

	"github.com/farfield-ml/farfield/rng"
)

// tiny is the smallest configuration in which nothing is a power of two.
func tiny(kind Kind, mechanism string) Config {
	return Config{
		Kind: kind, Vocab: 11, Layers: 2, Heads: 3, Width: 12, Hidden: 17, Context: 7,
		Positions: Learned, Mechanism: mechanism, Bias: true, Tied: true,
	}
}

// with changes a configuration.
func with(c Config, change func(*Config)) Config {
	change(&c)
	return c
}

// llama is the smallest Llama: RMSNorm, SwiGLU, grouped heads and rotations, no biases.
func llama() Config {
	return Config{
		Kind: Decoder, Vocab: 11, Layers: 2, Heads: 4, KVHeads: 2, Width: 12, Hidden: 17, Context: 7,
		Positions: Rotary, Mechanism: "softmax", Norm: RMSNorm, Activation: SwiGLU,
	}
}

// cases are configurations that together have everything.
func cases() map[string]Config {
	all := map[string]Config{}
	for _, mechanism := range []string{"softmax", "fastmax", "taylorshift", "linear"} {
		for _, kind := range []Kind{Decoder, Encoder, EncoderDecoder} {
			all[string(kind)+" "+mechanism] = tiny(kind, mechanism)
		}
	}
	d := tiny(Decoder, "fastmax")
	maps.Copy(all, map[string]Config{
		"sinusoidal":      with(d, func(c *Config) { c.Positions = Sinusoidal }),
		"rope":            with(d, func(c *Config) { c.Positions = Rotary }),
		"rope theta":      with(tiny(EncoderDecoder, "softmax"), func(c *Config) { c.Positions, c.RopeTheta = Rotary, 37 }),
		"no positions":    with(d, func(c *Config) { c.Positions = NoPosition }),
		"untied":          with(d, func(c *Config) { c.Tied = false }),
		"no bias":         with(d, func(c *Config) { c.Bias = false }),
		"untied no bias":  with(d, func(c *Config) { c.Tied, c.Bias = false, false }),
		"grouped heads":   with(tiny(Decoder, "taylorshift"), func(c *Config) { c.KVHeads = 1 }),
		"grouped cross":   with(tiny(EncoderDecoder, "fastmax"), func(c *Config) { c.KVHeads = 1 }),
		"linformer":       with(tiny(Encoder, "linformer"), func(c *Config) { c.Set = map[string]string{"rank": "3", "share": "none"} }),
		"fourier":         tiny(Decoder, "fourier"),
		"source vocab":    with(tiny(EncoderDecoder, "linear"), func(c *Config) { c.SourceVocab = 5 }),
		"conv":            with(d, func(c *Config) { c.Conv, c.Positions = 3, Rotary }),
		"long conv":       with(tiny(Decoder, "linear"), func(c *Config) { c.Conv = 9 }),
		"fixed decay":     with(tiny(Decoder, "softmax"), func(c *Config) { c.Decay, c.Positions = FixedDecay, NoPosition }),
		"learned decay":   with(d, func(c *Config) { c.Decay, c.KVHeads, c.Bias = LearnedDecay, 1, false }),
		"decay and rope":  with(tiny(Decoder, "softmax"), func(c *Config) { c.Decay, c.Positions = LearnedDecay, Rotary }),
		"decay and eps":   with(tiny(Decoder, "linear"), func(c *Config) { c.Decay = LearnedDecay }),
		"decay and cross": with(tiny(EncoderDecoder, "taylorshift"), func(c *Config) { c.Decay = LearnedDecay }),
		"mamba-2":         with(tiny(Decoder, "mamba-2"), func(c *Config) { c.Positions, c.Set = NoPosition, map[string]string{"state": "4", "groups": "3"} }),
		"mamba-2 no bias": with(tiny(Decoder, "mamba-2"), func(c *Config) { c.Bias, c.Conv, c.Set = false, 2, map[string]string{"state": "3"} }),
		"retnet":          with(tiny(Decoder, "retnet"), func(c *Config) { c.Positions, c.Set = NoPosition, map[string]string{"eps": "0.1"} }),
		"retnet paper":    with(tiny(Decoder, "retnet"), func(c *Config) { c.Bias, c.Set = false, map[string]string{"form": "paper", "expand": "1"} }),
		"hyena":           with(tiny(Decoder, "hyena"), func(c *Config) { c.Set = map[string]string{"filter": "4", "features": "3", "freq": "1"} }),
		"crate":           with(tiny(Decoder, "crate"), func(c *Config) { c.Hidden, c.Positions, c.Conv = 0, Rotary, 2 }),
		"crate encoder":   with(tiny(Encoder, "crate"), func(c *Config) { c.Hidden, c.Bias = 0, false }),
		"post-norm":       with(d, func(c *Config) { c.PostNorm, c.Activation = true, GELU }),
		"post-norm conv":  with(tiny(Decoder, "linear"), func(c *Config) { c.PostNorm, c.Conv, c.Decay = true, 3, LearnedDecay }),
		"post-norm cross": with(tiny(EncoderDecoder, "softmax"), func(c *Config) { c.PostNorm = true }),
		"post-norm mixer": with(tiny(Decoder, "mamba-2"), func(c *Config) { c.PostNorm, c.Set = true, map[string]string{"state": "3"} }),
		"relu":            with(tiny(Encoder, "softmax"), func(c *Config) { c.PostNorm, c.Activation = true, ReLU }),
		"silu":            with(d, func(c *Config) { c.Activation, c.Norm = SiLU, LayerNorm }),
		"llama":           llama(),
		"rms bias":        with(tiny(Encoder, "linear"), func(c *Config) { c.Norm, c.Activation = RMSNorm, GEGLU }),
		"rms post-norm":   with(d, func(c *Config) { c.Norm, c.Activation, c.PostNorm, c.Conv, c.Hidden = RMSNorm, SwiGLU, true, 2, 0 }),
		"rms learned":     with(tiny(EncoderDecoder, "softmax"), func(c *Config) { c.Norm, c.Activation = RMSNorm, SwiGLU }),
		"rms mixer":       with(tiny(Decoder, "mamba-2"), func(c *Config) { c.Norm, c.Activation, c.Set = RMSNorm, SwiGLU, map[string]string{"state": "3"} }),
		"default hidden":  with(d, func(c *Config) { c.Hidden = 0 }),
		"order and scale": with(d, func(c *Config) { c.Order, c.Set = 4, map[string]string{"scale": "1/sqrt(D)"} }),
	})
	maps.Copy(all, variants())
	e, n := tiny(Encoder, "fastmax"), tiny(Encoder, "softmax")
	e.Tied, n.Tied = false, false
	n.Vocab, n.Inputs, n.Outputs = 0, 3, 5
	net := Config{Kind: Convolutional, Inputs: 2, Outputs: 3, Loss: Squared, Layers: 5, Width: 6, Conv: 5, Context: 9, Positions: NoPosition, Bias: true}
	attn := with(net, func(c *Config) {
		c.Layers, c.Heads, c.Mechanism, c.Set = 4, 1, "softmax", map[string]string{"scale": "1"}
	})
	maps.Copy(all, map[string]Config{
		"numbers":           n,
		"numbers decoder":   with(n, func(c *Config) { c.Kind = Decoder }),
		"outputs":           with(e, func(c *Config) { c.Outputs = 4 }),
		"mean":              with(e, func(c *Config) { c.Pool = PoolMean }),
		"mean tied":         with(tiny(Encoder, "linear"), func(c *Config) { c.Pool = PoolMean }),
		"mean numbers":      with(n, func(c *Config) { c.Pool = PoolMean }),
		"cls":               with(e, func(c *Config) { c.Pool, c.Outputs = PoolCLS, 3 }),
		"cls numbers":       with(n, func(c *Config) { c.Pool, c.Bias = PoolCLS, false }),
		"cls rope":          with(e, func(c *Config) { c.Pool, c.Positions = PoolCLS, Rotary }),
		"last":              with(tiny(Decoder, "linear"), func(c *Config) { c.Pool = PoolLast }),
		"last encoder":      with(e, func(c *Config) { c.Pool = PoolLast }),
		"mean of a decoder": with(tiny(EncoderDecoder, "linear"), func(c *Config) { c.Pool = PoolMean }),
		"hidden units":      with(e, func(c *Config) { c.HeadHidden = 7 }),
		"mean and hidden":   with(e, func(c *Config) { c.Pool, c.HeadHidden, c.Outputs = PoolMean, 7, 2 }),
		"pairs":             with(e, func(c *Config) { c.Pool, c.Parts, c.Outputs = PoolMean, 2, 2 }),
		"pairs cls":         with(e, func(c *Config) { c.Pool, c.Parts, c.HeadHidden, c.Outputs = PoolCLS, 2, 9, 2 }),
		"pairs last":        with(n, func(c *Config) { c.Kind, c.Pool, c.Parts, c.HeadHidden = Decoder, PoolLast, 2, 9 }),
		"squared":           with(n, func(c *Config) { c.Loss = Squared }),
		"squared mean":      with(e, func(c *Config) { c.Loss, c.Pool, c.Outputs = Squared, PoolMean, 1 }),
		"logistics":         with(tiny(Decoder, "linear"), func(c *Config) { c.Tied, c.Loss, c.Outputs = false, Logistics, 9 }),
		"net":               net,
		"net of classes":    with(net, func(c *Config) { c.Loss, c.Pool, c.HeadHidden, c.Bias = "", PoolMean, 4, false }),
		"net of pairs":      with(net, func(c *Config) { c.Pool, c.Parts = PoolMean, 2 }),
		"net with softmax":  attn,
		"net with fastmax":  with(attn, func(c *Config) { c.Mechanism, c.Set, c.Layers, c.Heads, c.KVHeads = "fastmax", nil, 3, 2, 1 }),
		"net last":          with(attn, func(c *Config) { c.Pool = PoolLast }),
	})
	return all
}

// batch returns random tokens, with some targets that are not counted.
func batch(c Config, seed uint64, b, n int, padded bool) *Batch {
	key := rng.New(seed)
	draw := func(i uint64, count, vocab int) []int32 {
		ids := make([]int32, count)
		for j := range ids {
			ids[j] = int32(key.Fold(i).Intn(uint64(j), vocab))
		}
		return ids
	}
	x := &Batch{B: b, N: n}
	if c.TokenTypes > 0 {
		x.Types = draw(3, b*n, c.TokenTypes)
	}
	if c.Inputs == 0 {
		x.Tokens = draw(0, b*n, c.Vocab)
	} else {
		for i := range b * n * c.Inputs {
			x.Values = append(x.Values, float32(key.Fold(0).Normal(uint64(i))))
		}
	}
	rows := c.Rows(b, n)
	if c.Loss == CrossEntropy {
		x.Targets = draw(1, rows, c.outputSize())
		for i := range x.Targets {
			if i%5 == 3 {
				x.Targets[i] = -1
			}
		}
	}
	for i := range rows * c.Numbers() {
		number := float32(key.Fold(1).Normal(uint64(i)))
		if c.Loss == Logistics {
			number = float32([]int{0, 255, key.Fold(1).Intn(uint64(i), 256)}[i%3])
		}
		if i%5 == 3 {
			number = float32(math.NaN())
		}
		x.Numbers = append(x.Numbers, number)
	}
	if c.Kind == EncoderDecoder {
		x.SourceN = n + 1
		x.Source = draw(2, b*x.SourceN, c.sourceVocab())
	}
	if padded {
		for i := range b {
			x.Lens = append(x.Lens, int64(n-i%3))
			if x.SourceN > 0 {
				x.SourceLens = append(x.SourceLens, int64(x.SourceN-(i+1)%3))
			}
		}
	}
	return x
}

// wake moves weights away from their first values, where much of the gradient
// is too small to be judged.
func wake(m *Model) {
	for i, p := range m.Params().All() {
		key := rng.New(99).Fold(uint64(i))
		for j := range p.Data {
			p.Data[j] += float(0.2 * key.Normal(uint64(j)))
		}
	}
}

func made(t testing.TB, c Config) *Model {
	t.Helper()
	m, err := New(c, rng.New(3))
	if err != nil {
		t.Fatal(err)
	}
	wake(m)
	return m
}

func loss(t testing.TB, m *Model, b *Batch) float64 {
	t.Helper()
	l, err := m.Forward(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func backward(t testing.TB, m *Model) {
	t.Helper()
	if err := m.Backward(1); err != nil {
		t.Fatal(err)
	}
}
