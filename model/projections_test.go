package model

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/stream"
)

// giving returns a reader of tokens a few at a time.
func giving(tokens []int32) func([]int32) (int, error) {
	return func(dst []int32) (int, error) {
		n := copy(dst[:min(len(dst), 5)], tokens)
		if tokens = tokens[n:]; n == 0 {
			return 0, io.EOF
		}
		return n, nil
	}
}

// A stream that was cut off goes on to the same bits, and tells another text.
func TestProjectionsGoOn(t *testing.T) {
	c := Config{Kind: Decoder, Width: 8, Heads: 2, KVHeads: 2, Layers: 2, Hidden: 8, Vocab: 5, Outputs: 5, Mechanism: "fastmax", Positions: Rotary, Loss: CrossEntropy, Context: 8}
	m, err := New(c, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	tokens := make([]int32, 700)
	for i := range tokens {
		tokens[i] = int32(rng.New(2).Intn(uint64(i), 5))
	}
	run := func(ctx context.Context, path string, tokens []int32, o stream.Options) (*stream.Report, error) {
		p, err := newProjections(m, 1, -1, giving(tokens))
		if err != nil {
			t.Fatal(err)
		}
		out, err := stream.NewFileOutput(path, 3)
		if err != nil {
			t.Fatal(err)
		}
		o.Causal, o.Window = true, 50
		return stream.Run(ctx, p.layer.Mechanism, p, out, o)
	}
	dir := t.TempDir()
	whole, err := run(t.Context(), filepath.Join(dir, "whole.raw"), tokens, stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	path, saved := filepath.Join(dir, "o.raw"), filepath.Join(dir, "o.checkpoint")
	_, err = run(ctx, path, tokens, stream.Options{Checkpoint: saved, Progress: func(p stream.Progress) {
		if p.DoneTokens >= 300 {
			stop()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	other := slices.Clone(tokens)
	other[7] = (other[7] + 1) % 5
	if _, err := run(t.Context(), path, other, stream.Options{Checkpoint: saved}); !errors.Is(err, fault.ErrMismatch) || !strings.Contains(err.Error(), "checksum of the first") {
		t.Errorf("another text: %v", err)
	}
	r, err := run(t.Context(), path, tokens, stream.Options{Checkpoint: saved})
	if err != nil {
		t.Fatal(err)
	}
	if r.Resumed < 300 || r.Digest != whole.Digest {
		t.Errorf("after %d tokens of before the digest is %08x, of a run that was not cut off %08x", r.Resumed, r.Digest, whole.Digest)
	}
}

// What cannot be streamed is refused.
func TestProjectionsAreRefused(t *testing.T) {
	c := Config{Kind: Decoder, Width: 8, Heads: 2, KVHeads: 2, Layers: 2, Hidden: 8, Vocab: 5, Outputs: 5, Mechanism: "softmax", Positions: Learned, Loss: CrossEntropy, Context: 8}
	for _, x := range []struct {
		change func(*Config)
		layer  int
		n      int64
		want   string
	}{
		{func(*Config) {}, 2, 5, "layer: 2 is not from 0 to 1"},
		{func(*Config) {}, 1, 5, "the state of softmax grows"},
		{func(*Config) {}, 0, 9, "positions: 9 are needed, the learned table has 8"},
		{func(c *Config) { c.Mechanism = "hyena" }, 0, 5, "its mixer is hyena"},
		{func(c *Config) { c.Kind, c.Pool = Encoder, "mean" }, 0, 5, "needs a decoder"},
	} {
		c := c
		x.change(&c)
		m, err := New(c, rng.New(1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newProjections(m, x.layer, x.n, giving(nil)); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error is %v, want %q", err, x.want)
		}
	}
	c.Mechanism = "fastmax"
	m, err := New(c, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		tokens []int32
		want   string
	}{{[]int32{0, 5}, "token 1 is 5, the vocabulary has 5"}, {make([]int32, 9), "positions: 9 are needed"}} {
		p, err := newProjections(m, 1, -1, giving(x.tokens))
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Run(t.Context(), p.layer.Mechanism, p, stream.NewDigestOutput(), stream.Options{Causal: true})
		if !errors.Is(err, fault.ErrInput) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error is %v, want %q", err, x.want)
		}
	}
}
