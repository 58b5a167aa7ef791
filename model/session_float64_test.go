//go:build float64

package model

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

// The losses of a session equal the losses of the sequence, with the same bits for any
// pieces.
func TestSessionLosses(t *testing.T) {
	for name, c := range decoders() {
		if c.Loss != CrossEntropy {
			continue
		}
		c.Context = 40
		m := made(t, c)
		b := batch(c, 3, 2, 37, false)
		want := make([]float64, b.B*b.N)
		if err := m.Losses(t.Context(), b, want); err != nil {
			t.Fatal(err)
		}
		var first []float64
		for _, cut := range pieces {
			s := session(t, m, b.B)
			got, n0 := make([]float64, len(want)), 0
			for _, n := range cut {
				var tokens, targets []int32
				for row := range b.B {
					tokens = append(tokens, b.Tokens[row*b.N+n0:][:n]...)
					targets = append(targets, b.Targets[row*b.N+n0:][:n]...)
				}
				part := make([]float64, b.B*n)
				if err := s.Losses(t.Context(), part, tokens, targets, n); err != nil {
					t.Fatal(err)
				}
				for row := range b.B {
					copy(got[row*b.N+n0:][:n], part[row*n:])
				}
				n0 += n
			}
			if first == nil {
				first = got
			}
			if !slices.Equal(got, first) {
				t.Errorf("%s: losses depend on the pieces %v", name, cut)
			}
			// Twice the limit of logits in TestStepIsTheSequence: a loss is the
			// difference of one of them and of a mean.
			if r := check.ErrorRatio(got, want, 2*64*0x1p-53*check.MaxAbs(logits(t, m, b))); !(r <= 1) {
				t.Errorf("%s: a loss is off by %.3g limits", name, r)
			}
		}
	}
}
