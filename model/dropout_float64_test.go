//go:build float64

package model

import (
	"testing"

	"github.com/farfield-ml/farfield/rng"
)

func TestGradientsUnderDropout(t *testing.T) {
	for _, c := range []Config{
		dropped(Decoder, "fastmax", ""), dropped(Encoder, "softmax", "1d"), dropped(EncoderDecoder, "taylorshift", "standard"), dropped(EncoderDecoder, "fastmax", "quadratic"),
	} {
		b := batch(c, 1, 2, 5, true)
		b.Key = rng.New(9)
		againstSlopes(t, made(t, c), b)
	}
	// Dropout of branch outputs, alone and with attention dropout.
	all := cases()
	for _, c := range []Config{
		tiny(Decoder, "fastmax"), dropped(EncoderDecoder, "softmax", "1d"), all["post-norm conv"], all["crate"], all["cls numbers"],
	} {
		c.Dropout = 0.3
		b := batch(c, 1, 2, 5, true)
		b.Key = rng.New(9)
		againstSlopes(t, made(t, c), b)
	}
}
