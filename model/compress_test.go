//go:build !float64

package model

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/nn"
)

// A model with weights of 16 bits has the bits of one whose weights are rounded, in passes and in
// sessions. With 8 bits its losses are near; either way it neither learns nor is saved, and its
// states fit no other precision.
func TestCompressedModelsAreRoundedModels(t *testing.T) {
	for name, c := range cases() {
		t.Run(name, func(t *testing.T) {
			exact, rounded, half, bytes := made(t, c), made(t, c), made(t, c), made(t, c)
			for m, p := range map[*Model]nn.Precision{half: nn.BFloat16, bytes: nn.Int8} {
				if err := m.Compress(p); err != nil {
					t.Fatal(err)
				}
				if err := m.Compress(p); err == nil {
					t.Error("a compressed model is compressed again")
				}
				if m.Precision() != p || m.WeightSum() == exact.WeightSum() {
					t.Errorf("precision %v, sum %s", m.Precision(), m.WeightSum())
				}
			}
			held := 0
			for i, p := range half.params.All() {
				if p.Data != nil {
					continue
				}
				held++
				for k, x := range rounded.params.All()[i].Data {
					rounded.params.All()[i].Data[k] = kernel.WidenHalf(kernel.Half(x))
				}
			}
			if held == 0 && c.Kind != Convolutional {
				t.Error("nothing is compressed")
			}
			b := batch(c, 3, 4, min(c.Context, 6), true)
			losses := func(m *Model) []float64 {
				list := make([]float64, c.Rows(b.B, b.N))
				if err := m.Losses(t.Context(), b, list); err != nil {
					t.Fatal(err)
				}
				return list
			}
			want, got := losses(rounded), losses(half)
			if !slices.Equal(got, want) {
				t.Errorf("losses %v, of rounded weights %v", got, want)
			}
			sum, off, plain := 0., 0., losses(exact)
			for i, x := range losses(bytes) {
				sum, off = sum+plain[i], off+math.Abs(x-plain[i])
			}
			if !(off <= 0.02*math.Abs(sum)) {
				t.Errorf("losses with 8 bits are off by %g of %g", off, sum)
			}
			if _, err := half.Forward(t.Context(), b); !errors.Is(err, ErrCompressed) {
				t.Errorf("a compressed model learns: %v", err)
			}
			if err := half.Save(t.TempDir()); !errors.Is(err, ErrCompressed) {
				t.Errorf("a compressed model is saved: %v", err)
			}
			if !c.HasSessions() {
				return
			}
			step := func(m *Model) []float32 {
				packed := newPackedModel(m, nn.GEMVRows+1)
				packed.first = nil // it rounds in another order, and compressed models have none
				s, err := sessionMaker{m, packed}.start(1)
				if err != nil {
					t.Fatal(err)
				}
				var all []float32
				for _, n := range []int{1, 3, 1} {
					logits, err := s.Step(t.Context(), tokensOf(c, 5, n), n)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, logits...)
				}
				return all
			}
			if !slices.Equal(step(half), step(rounded)) {
				t.Error("a session differs from one of rounded weights")
			}
		})
	}
}
