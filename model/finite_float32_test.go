//go:build !float64

package model

import (
	"bytes"
	"errors"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/rng"
)

// TestModelSaysWhatIsNotFinite has finite weights, as of a diverging run, and outputs
// that are not finite.
func TestModelSaysWhatIsNotFinite(t *testing.T) {
	c := tiny(Decoder, "linear")
	c.Positions = Rotary
	m, err := New(c, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Params().All() {
		for i := range p.Data {
			p.Data[i] *= 1e17
		}
	}
	tokens := []int32{1, 2, 3, 4}
	b := &Batch{B: 1, N: 4, Tokens: tokens, Targets: tokens}
	check := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, attention.ErrNonFinite) {
			t.Errorf("%s: %v", name, err)
		}
	}
	check("logits", m.Logits(t.Context(), b, make([]float32, 4*c.Vocab)))
	check("losses", m.Losses(t.Context(), b, make([]float64, 4)))
	_, err = m.Forward(t.Context(), b)
	check("forward", err)
	_, _, err = m.Vectors(t.Context(), nil, b)
	check("vectors", err)
	s, err := m.NewSession(1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Step(t.Context(), tokens, 4)
	check("a session's logits", err)
	before := []byte("before")
	for name, err := range map[string]error{
		"a snapshot": func() error {
			b, err := s.AppendBinary(before)
			if !bytes.Equal(b, before) {
				t.Errorf("a snapshot of a session that failed appends %d bytes", len(b)-len(before))
			}
			return err
		}(),
		"a snapshot of a clone": func() error { _, err := s.Clone().AppendBinary(nil); return err }(),
		"another step":          func() error { _, err := s.Step(t.Context(), tokens, 4); return err }(),
		"its losses":            s.Losses(t.Context(), make([]float64, 4), tokens, tokens, 4),
	} {
		if !errors.Is(err, ErrSessionFailed) || !errors.Is(err, attention.ErrNonFinite) {
			t.Errorf("%s of a session that failed: %v", name, err)
		}
	}
	s.Reset()
	if _, err := s.AppendBinary(nil); err != nil {
		t.Errorf("a snapshot after Reset: %v", err)
	}
	check("a session's losses", s.Losses(t.Context(), make([]float64, 4), tokens, tokens, 4))
}

// Log-decays that a model computes are its own numbers, not input.
func TestModelSaysWhichDecaysAreNotFinite(t *testing.T) {
	for name, c := range map[string]Config{
		"learned": with(tiny(Decoder, "linear"), func(c *Config) { c.Decay = LearnedDecay }),
		"mamba-2": tiny(Decoder, "mamba-2"),
	} {
		m := made(t, c)
		for _, p := range m.Params().All() {
			for i := range p.Data {
				p.Data[i] *= 1e20
			}
		}
		tokens := []int32{1, 2, 3, 4}
		b := &Batch{B: 1, N: 4, Tokens: tokens, Targets: tokens}
		if _, err := m.Forward(t.Context(), b); !errors.Is(err, attention.ErrNonFinite) {
			t.Errorf("%s: forward: %v", name, err)
		}
		if err := m.Losses(t.Context(), b, make([]float64, 4)); !errors.Is(err, attention.ErrNonFinite) {
			t.Errorf("%s: losses: %v", name, err)
		}
		if _, err := session(t, m, 1).Step(t.Context(), tokens, 4); !errors.Is(err, attention.ErrNonFinite) {
			t.Errorf("%s: a session: %v", name, err)
		}
		g, err := m.NewSessionGroup()
		if err != nil {
			t.Fatal(err)
		}
		s, err := g.NewSession(1)
		if err != nil {
			t.Fatal(err)
		}
		steps := []SessionStep{{Session: s, Tokens: tokens}}
		if g.StepTogether(steps); !errors.Is(steps[0].Err, attention.ErrNonFinite) {
			t.Errorf("%s: a step of a group: %v", name, steps[0].Err)
		}
		if _, err := s.AppendBinary(nil); !errors.Is(err, ErrSessionFailed) {
			t.Errorf("%s: a snapshot after a step of a group that failed: %v", name, err)
		}
	}
}
