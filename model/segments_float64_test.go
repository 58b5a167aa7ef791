//go:build float64

package model

import (
	"github.com/farfield-ml/farfield/rng"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/check"
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

// Ranks that divide sequences have the loss and the gradient of the whole, padded ones
// too, however many they are.
func TestDividedIsTheWhole(t *testing.T) {
	cases := segmented()
	divided := 0
	for name, c := range cases {
		c.Context = 23
		m := made(t, c)
		if err := m.CanDivide(); err != nil {
			continue
		}
		divided++
		b := batch(c, 3, 2, 23, true)
		whole, want := grads(t, m, b), loss(t, m, b)
		for _, size := range []int{1, 2, 3, 4} {
			if (b.N+size-1)/size < c.Conv {
				continue
			}
			models := make([]*Model, size)
			for r := range models {
				models[r] = made(t, c)
			}
			losses, parts := make([]float64, size), make([][][]float64, size)
			err := comm.RunLocal(size, func(ranks *comm.Comm) error {
				own := models[ranks.Rank()]
				for range 2 { // the memory of the first serves the second
					own.Params().ZeroGrad()
					l, err := own.TrainDivided(t.Context(), ranks, b, 1)
					if err != nil {
						return err
					}
					losses[ranks.Rank()] = l
				}
				for _, p := range own.Params().All() {
					parts[ranks.Rank()] = append(parts[ranks.Rank()], slices.Clone(p.Grad))
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s, %d ranks: %v", name, size, err)
				continue
			}
			sum := 0.0
			for _, l := range losses {
				sum += l
			}
			// As in TestSegmentsAreTheWhole.
			if d := math.Abs(sum - want); !(d <= 16*0x1p-53*want) {
				t.Errorf("%s, %d ranks: loss is %v, of the whole %v", name, size, sum, want)
			}
			for i, w := range whole {
				all := make([]float64, len(w))
				for r := range parts {
					for j, g := range parts[r][i] {
						all[j] += g
					}
				}
				limit := 512 * 0x1p-53 * max(check.MaxAbs(w), 1e-2)
				if r := check.ErrorRatio(all, w, limit); !(r <= 1) {
					t.Errorf("%s, %d ranks: gradient of %s is off by %.3g limits", name, size, m.Params().All()[i].Name, r)
				}
			}
		}
	}
	if divided < 7 {
		t.Errorf("%d decoders can be divided among ranks", divided)
	}
}
