package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

// encoderDecoders returns encoder-decoders with sessions.
func encoderDecoders() map[string]Config {
	return map[string]Config{
		"softmax":  with(tiny(EncoderDecoder, "softmax"), func(c *Config) { c.Positions = Learned }),
		"post":     with(tiny(EncoderDecoder, "softmax"), func(c *Config) { c.PostNorm, c.SharedEmbedding, c.EntryNorm = true, true, true }),
		"grouped":  with(tiny(EncoderDecoder, "fastmax"), func(c *Config) { c.KVHeads = 1 }),
		"rotated":  with(tiny(EncoderDecoder, "linear"), func(c *Config) { c.Positions, c.SourceVocab = Rotary, 5 }),
		"rms norm": with(tiny(EncoderDecoder, "softmax"), func(c *Config) { c.Norm = RMSNorm }),
	}
}

func testSourceSession(t *testing.T, limit float64) {
	for name, c := range encoderDecoders() {
		c.Context = 40
		m := made(t, c)
		b := batch(c, 3, 3, 37, false)
		b.SourceLens = []int64{38, 5, 20}
		all := logits(t, m, b)
		g := group(t, m)
		var last []float
		for _, cut := range pieces {
			alone, err := m.NewSourceSession(b.Source, b.SourceLens, b.B)
			if err != nil {
				t.Fatal(err)
			}
			together, err := g.NewSourceSession(b.Source, b.SourceLens, b.B)
			if err != nil {
				t.Fatal(err)
			}
			other, err := g.NewSourceSession(b.Source[:7], nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			var got []float
			for _, size := range cut {
				var tokens []int32
				for row := range b.B {
					tokens = append(tokens, b.Tokens[row*b.N+n:][:size]...)
				}
				got = step(t, alone, b, n, n+size)
				n += size
				want := widen(at(all, b, c.outputSize(), n-1))
				if r := check.ErrorRatio(got, want, limit*check.MaxAbs(want)); !(r <= 1) {
					t.Errorf("%s, pieces of %v: logits of token %d err by %.3g of the largest, %.3g is allowed", name, cut, n-1, r*limit, limit)
				}
				steps := []SessionStep{{Session: other, Tokens: []int32{1}}, {Session: together, Tokens: tokens}}
				if g.StepTogether(steps); steps[0].Err != nil || steps[1].Err != nil || !slices.Equal(steps[1].Logits, got) {
					t.Errorf("%s: a session of a group differs: %v, %v", name, steps[0].Err, steps[1].Err)
				}
				alone = alone.Clone()
			}
			if last == nil {
				last = got
			} else if !slices.Equal(got, last) {
				t.Errorf("%s: the last logits depend on the pieces %v", name, cut)
			}
			if alone.Reset(); !slices.Equal(step(t, alone, b, 0, b.N), last) {
				t.Errorf("%s: the target anew has other logits", name)
			}
		}
	}
}

// The limits are of TestStepIsTheSequence, with the same two layers; 10 roundings of the largest
// logit at most have been seen.
func TestSourceSessionIsTheSequence(t *testing.T) {
	t.Run(check.Precision, func(t *testing.T) { testSourceSession(t, 64*check.Pick(0x1p-24, 0x1p-53)) })
}

func TestSourceSessionRefusals(t *testing.T) {
	c := with(tiny(EncoderDecoder, "softmax"), func(c *Config) { c.Positions = Learned })
	m := made(t, c)
	decoder := made(t, tiny(Decoder, "softmax"))
	for want, open := range map[string]func() error{
		"kind is decoder, needs encoder-decoder":                func() error { _, err := decoder.NewSourceSession([]int32{1}, nil, 1); return err },
		"kind is encoder-decoder, whose sessions need a source": func() error { _, err := m.NewSession(1); return err },
		"cross-attention by transformer-xl depends on the places": func() error {
			_, err := made(t, tiny(EncoderDecoder, "transformer-xl")).NewSourceSession([]int32{1}, nil, 1)
			return err
		},
		"batch 0, needs":                  func() error { _, err := m.NewSourceSession([]int32{1}, nil, 0); return err },
		"source: has 0 tokens for 1":      func() error { _, err := m.NewSourceSession(nil, nil, 1); return err },
		"source: row 0, position 1 is 99": func() error { _, err := m.NewSourceSession([]int32{1, 99}, nil, 1); return err },
		"source lens":                     func() error { _, err := m.NewSourceSession([]int32{1, 1}, []int64{3}, 1); return err },
		"source: positions":               func() error { _, err := m.NewSourceSession(make([]int32, 1000), nil, 1); return err },
		"cross-attention: the keys of a source have no snapshot": func() error {
			s, err := m.NewSourceSession([]int32{1, 2}, nil, 1)
			if err == nil {
				_, err = s.AppendBinary(nil)
			}
			return err
		},
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

func TestSourceSessionKeepsItsLens(t *testing.T) {
	m := made(t, tiny(EncoderDecoder, "softmax"))
	lens := []int64{2}
	var got [2][]float
	for i := range got {
		s, err := m.NewSourceSession([]int32{1, 2, 3, 4}, lens, 1)
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			lens[0] = 4
		}
		if got[i], err = s.Step(t.Context(), []int32{1}, 1); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got[0], got[1]) {
		t.Errorf("logits are %v, %v after lens changed", got[0], got[1])
	}
}
