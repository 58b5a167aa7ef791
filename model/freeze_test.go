package model

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/rng"
)

// A model that shares the weights of a frozen model drops the copy with it.
func TestThawReachesSharedModels(t *testing.T) {
	c := with(tiny(Decoder, "softmax"), func(c *Config) { c.Tied = false })
	m := made(t, c)
	m.Freeze()
	shared := m.Share()
	m.Thaw()
	for i := range m.head.W.Data {
		m.head.W.Data[i]++
	}
	if b := batch(c, 1, 1, 7, false); !slices.Equal(logits(t, shared, b), logits(t, m, b)) {
		t.Error("a shared model has the weights of before")
	}
}

func TestFrozenModelKeepsItsBits(t *testing.T) {
	for name, c := range map[string]Config{
		"post-norm encoder": {Kind: Encoder, PostNorm: true, Activation: "gelu", Positions: Learned},
		"gated decoder":     {Kind: Decoder, Activation: "swiglu", Norm: "rms", Positions: Rotary, KVHeads: 2},
	} {
		c.Vocab, c.Layers, c.Heads, c.Width, c.Hidden, c.Context, c.Mechanism, c.Bias = 50, 2, 4, 64, 160, 40, "softmax", true
		m, err := New(c, rng.New(3))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 12, 40} {
			b := &Batch{B: 5, N: n, Tokens: make([]int32, 5*n)}
			for i := range b.Tokens {
				b.Tokens[i] = int32(i * 17 % 50)
			}
			logits := func(b *Batch) []float {
				dst := make([]float, b.B*n*c.Vocab)
				if err := m.Logits(t.Context(), b, dst); err != nil {
					t.Fatal(err)
				}
				return dst
			}
			want := logits(b)
			m.Freeze()
			got, alone := logits(b), logits(&Batch{B: 1, N: n, Tokens: b.Tokens[4*n:]})
			m.Thaw()
			if !slices.Equal(got, want) || !slices.Equal(alone, want[4*n*c.Vocab:]) {
				t.Errorf("%s, %d tokens: a frozen model has other bits", name, n)
			}
		}
	}
}
