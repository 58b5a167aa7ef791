//go:build float64

package model

import (
	"math"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/rng"
)

// segmented are decoders that can be taken in segments.
func segmented() map[string]Config {
	all := decoders()
	for name, c := range all {
		m, err := New(c, rng.New(1))
		if err != nil || m.CanSegment(max(c.Conv, 1)) != nil {
			delete(all, name)
		}
	}
	return all
}

// Segments have the loss and the gradient of the whole, and losses of each token,
// whatever their size; padded ones too.
func TestSegmentsAreTheWhole(t *testing.T) {
	cases := segmented()
	cases["multipole"] = Config{Kind: Decoder, Vocab: 17, Layers: 2, Heads: 4, KVHeads: 2, Width: 16, Context: 23, Positions: Rotary, Mechanism: "multipole", Order: 1,
		Set: map[string]string{"cells": "5", "block": "3", "window": "2"}}
	for _, name := range []string{"conv", "learned decay", "decay and eps", "rope", "sinusoidal", "decoder taylorshift", "grouped heads"} {
		if _, ok := cases[name]; !ok {
			t.Errorf("%s cannot be taken in segments", name)
		}
	}
	for name, c := range cases {
		c.Context = 23
		m := made(t, c)
		b := batch(c, 3, 2, 23, true)
		whole := grads(t, m, b)
		want := loss(t, m, b)
		losses := make([]float64, b.B*b.N)
		if err := m.Losses(t.Context(), b, losses); err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{max(c.Conv, 1), max(c.Conv, 5), 11, 12, 22, 23, math.MaxInt} {
			got, all := segmentGrads(t, m, b, size)
			// Sums of the same terms in another order, in double precision: the
			// limits of TestSinglePrecisionFollowsDouble, for its roundings.
			if d := math.Abs(got - want); !(d <= 16*0x1p-53*want) {
				t.Errorf("%s: segments of %d: loss is %v, of the whole %v", name, size, got, want)
			}
			for i, w := range whole {
				limit := 512 * 0x1p-53 * max(check.MaxAbs(w), 1e-2)
				if r := check.ErrorRatio(all[i], w, limit); !(r <= 1) {
					t.Errorf("%s: segments of %d: gradient of %s is off by %.3g limits", name, size, m.Params().All()[i].Name, r)
				}
			}
			each := make([]float64, len(losses))
			if err := m.SegmentLosses(t.Context(), b, size, each, nil); err != nil {
				t.Fatal(err)
			}
			if r := check.ErrorRatio(each, losses, 16*0x1p-53*check.MaxAbs(losses)); !(r <= 1) {
				t.Errorf("%s: segments of %d: a token's loss is off by %.3g limits", name, size, r)
			}
		}
	}
}

func TestSegmentsAreRefused(t *testing.T) {
	for want, c := range map[string]Config{
		"kind is encoder, needs decoder":                   tiny(Encoder, "fastmax"),
		"softmax has no state of fixed size":               tiny(Decoder, "softmax"),
		"gradients of the state of mamba-2":                cases()["mamba-2"],
		"with dropout, states would be":                    with(tiny(Decoder, "fastmax"), func(c *Config) { c.AttentionDropout = 0.1 }),
		"3 tokens, needs 1 or more, and those of the conv": with(tiny(Decoder, "fastmax"), func(c *Config) { c.Conv = 4 }),
		"head_hidden is 12, segments have no units":        with(tiny(Decoder, "fastmax"), func(c *Config) { c.HeadHidden = 12 }),
		"pool is mean": with(tiny(Decoder, "fastmax"), func(c *Config) { c.Pool, c.Outputs, c.Tied = PoolMean, 3, false }),
	} {
		m, err := New(c, rng.New(1))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.CanSegment(3); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
