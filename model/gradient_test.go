package model

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// tiny is the smallest configuration in which nothing is a power of two.
func tiny(kind, mechanism string) Config {
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

// cases are configurations that together have everything.
func cases() map[string]Config {
	all := map[string]Config{}
	for _, mechanism := range []string{"softmax", "fastmax", "taylorshift", "linear"} {
		for _, kind := range []string{Decoder, Encoder, EncoderDecoder} {
			all[kind+" "+mechanism] = tiny(kind, mechanism)
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
		"source vocab":    with(tiny(EncoderDecoder, "linear"), func(c *Config) { c.SourceVocab = 5 }),
		"default hidden":  with(d, func(c *Config) { c.Hidden = 0 }),
		"order and scale": with(d, func(c *Config) { c.Order, c.Set = 4, map[string]string{"scale": "1/sqrt(D)"} }),
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
	x := &Batch{B: b, N: n, Tokens: draw(0, b*n, c.Vocab), Targets: draw(1, b*n, c.Vocab)}
	for i := range x.Targets {
		if i%5 == 3 {
			x.Targets[i] = -1
		}
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
func wake[T tensor.Float](m *Model[T]) {
	for i, p := range m.Params().All() {
		key := rng.New(99).Fold(uint64(i))
		for j := range p.Data {
			p.Data[j] += T(0.2 * key.Normal(uint64(j)))
		}
	}
}

func made[T tensor.Float](t testing.TB, c Config) *Model[T] {
	t.Helper()
	m, err := New[T](c, rng.New(3))
	if err != nil {
		t.Fatal(err)
	}
	wake(m)
	return m
}

func loss[T tensor.Float](t testing.TB, m *Model[T], b *Batch) float64 {
	t.Helper()
	l, err := m.Forward(b)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func backward[T tensor.Float](t testing.TB, m *Model[T]) {
	t.Helper()
	if err := m.Backward(1); err != nil {
		t.Fatal(err)
	}
}

// Differences of fourth order with steps of 1e-3 err by about 1e-12 of the
// derivatives and by the rounding of the loss, 1e-16/1e-3; single derivatives
// are of order 1, fifth ones up to thousands near a normalisation of small rows.
const gradientError = 1e-8

func TestGradients(t *testing.T) {
	for name, c := range cases() {
		for _, padded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s padded=%t", name, padded), func(t *testing.T) {
				t.Parallel()
				m := made[float64](t, c)
				b := batch(c, 1, 2, 5, padded)
				loss(t, m, b)
				backward(t, m)
				for _, p := range m.Params().All() {
					want := check.Gradient(func() float64 { return loss(t, m, b) }, p.Data)
					size := max(check.Max(want), 1e-2)
					if r := check.Ratio(p.Grad, want, gradientError*size); !(r <= 1) {
						t.Errorf("%s: gradient errs by %.3g of its largest, %.3g is allowed", p.Name, r*gradientError, gradientError)
					}
				}
			})
		}
	}
}

func TestBackwardAdds(t *testing.T) {
	c := tiny(Decoder, "fastmax")
	m := made[float64](t, c)
	b := batch(c, 1, 2, 5, false)
	loss(t, m, b)
	backward(t, m)
	once := map[string][]float64{}
	for _, p := range m.Params().All() {
		once[p.Name] = append([]float64{}, p.Grad...)
	}
	loss(t, m, b)
	if err := m.Backward(0.5); err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Params().All() {
		for i, g := range p.Grad {
			if d := math.Abs(g - 1.5*once[p.Name][i]); !(d <= 1e-14*(1+check.Max(once[p.Name]))) {
				t.Fatalf("%s[%d] is %v, once it was %v", p.Name, i, g, once[p.Name][i])
			}
		}
	}
	if err := m.Backward(1); err == nil {
		t.Error("a second Backward is accepted")
	}
}
