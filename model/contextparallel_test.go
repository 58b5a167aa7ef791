//go:build float64

package model

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/rng"
)

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

func TestDividedRefuses(t *testing.T) {
	c := decoders()["conv"]
	m := made(t, c)
	b := batch(c, 3, 2, 5, false)
	models := []*Model{m, made(t, c), made(t, c), made(t, c)}
	err := comm.RunLocal(4, func(ranks *comm.Comm) error {
		_, err := models[ranks.Rank()].TrainDivided(t.Context(), ranks, b, 1)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "segment: 2 tokens, needs 1 or more, and those of the convolution") {
		t.Errorf("parts shorter than the convolution: %v", err)
	}
	if err := m.CanDivide(); err != nil {
		t.Error(err)
	}
	c.Mechanism, c.Set, c.Order = "softmax", nil, 0
	m, err = New(c, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.CanDivide(); err == nil || !strings.Contains(fmt.Sprint(err), "softmax") {
		t.Errorf("softmax: %v", err)
	}
}
