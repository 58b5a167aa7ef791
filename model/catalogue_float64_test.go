//go:build float64

package model

import (
	"math"
	"testing"
)

// Sessions of every causal mechanism go on as the model does.
func TestEveryMechanismDecodes(t *testing.T) {
	for name, c := range catalogue(t) {
		if c.Kind != Decoder {
			continue
		}
		t.Run(name, func(t *testing.T) {
			m := made(t, c)
			b := batch(c, 4, 1, 6, false)
			want := logits(t, m, b)
			s, err := m.NewSession(1)
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.N {
				got, err := s.Step(t.Context(), b.Tokens[i:][:1], 1)
				if err != nil {
					t.Fatal(err)
				}
				for j, x := range got {
					if d := math.Abs(x - want[i*c.Vocab+j]); !(d <= 1e-9) {
						t.Fatalf("token %d: logit %d is off by %v", i, j, d)
					}
				}
			}
		})
	}
}
