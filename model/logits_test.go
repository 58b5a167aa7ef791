package model

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/rng"
)

// A context that has ended ends every pass, and leaves a session as it was.
func TestPassesEndWithTheirContext(t *testing.T) {
	c := tiny(Decoder, "softmax")
	m, err := New(c, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.NewSession(1)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b := batch(c, 1, 2, 5, false)
	rows, logits := make([]float64, 10), make([]float, 10*c.Vocab)
	for name, run := range map[string]func(ctx context.Context) error{
		"Forward":       func(ctx context.Context) error { _, err := m.Forward(ctx, b); return err },
		"ForwardLogits": func(ctx context.Context) error { return m.ForwardLogits(ctx, b, logits) },
		"Outputs":       func(ctx context.Context) error { _, err := m.Outputs(ctx, b); return err },
		"Losses":        func(ctx context.Context) error { return m.Losses(ctx, b, rows) },
		"Logits":        func(ctx context.Context) error { return m.Logits(ctx, b, logits) },
		"Vectors":       func(ctx context.Context) error { _, _, err := m.Vectors(ctx, nil, b); return err },
		"Step":          func(ctx context.Context) error { _, err := s.Step(ctx, b.Tokens[:5], 5); return err },
		"Session.Losses": func(ctx context.Context) error {
			return s.Losses(ctx, rows[:5], b.Tokens[:5], slices.Repeat([]int32{-1}, 5), 5)
		},
	} {
		if err := run(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if s.Tokens() != 0 {
			t.Errorf("%s: the session has %d tokens", name, s.Tokens())
		}
	}
}
