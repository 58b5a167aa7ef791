package model

import (
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/rng"
)

// dropped is a configuration with dropout of attention.
func dropped(kind Kind, mechanism string, drop DropoutKind) Config {
	c := tiny(kind, mechanism)
	c.AttentionDropout, c.AttentionDropoutKind = 0.3, drop
	return c
}

// The key alone decides what Forward leaves out, and nothing else leaves out
// anything.
func TestDropoutFollowsKey(t *testing.T) {
	testDropoutFollowsKey(t, dropped(EncoderDecoder, "fastmax", "standard"))
	testDropoutFollowsKey(t, with(tiny(EncoderDecoder, "fastmax"), func(c *Config) { c.Dropout = 0.1 }))
}

func testDropoutFollowsKey(t *testing.T, c Config) {
	m, plain := made(t, c), made(t, tiny(EncoderDecoder, "fastmax"))
	b := batch(c, 1, 2, 5, false)
	b.Key = rng.New(1)
	one, again := loss(t, m, b), loss(t, m, b)
	if one != again {
		t.Errorf("losses with one key are %v and %v", one, again)
	}
	b.Key = rng.New(2)
	if two := loss(t, m, b); two == one {
		t.Errorf("losses with two keys are both %v", one)
	}
	got, want := make([]float64, 10), make([]float64, 10)
	if err := m.Losses(t.Context(), b, got); err != nil {
		t.Fatal(err)
	}
	if err := plain.Losses(t.Context(), b, want); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("Losses is %v, without dropout %v", got, want)
		}
	}
}

func TestDropoutConfig(t *testing.T) {
	for _, x := range []struct {
		c    Config
		want string
	}{
		{with(tiny(Decoder, "fastmax"), func(c *Config) { c.AttentionDropout = 1 }), "attention_dropout: 1, needs"},
		{with(tiny(Decoder, "fastmax"), func(c *Config) { c.AttentionDropoutKind = "1d" }), "attention_dropout_kind: \"1d\", but attention_dropout is 0"},
		{dropped(Decoder, "fastmax", "2d"), "attention_dropout_kind: dropout: kind is \"2d\""},
		{dropped(Decoder, "softmax", "quadratic"), "attention_dropout_kind: softmax with these settings has no quadratic"},
	} {
		if err := x.c.Validate(); err == nil || !strings.Contains(fault.InFile(err).Error(), x.want) {
			t.Errorf("error is %v, want %q", err, x.want)
		}
	}
}
