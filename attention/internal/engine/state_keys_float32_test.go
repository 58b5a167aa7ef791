//go:build !float64

package engine

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention/internal/calltest"
)

func TestCacheIgnoresMaskedTokens(t *testing.T) {
	c := stateCall(40, 5, 3, 0)
	_, st := softmaxState(t, c)
	want := calltest.Poisoned(2, 6, 40, 3)
	steps(t, st, want, c, 0, 40)
	for b := range 2 {
		for j := range 40 {
			if c.KeyMask[b*40+j] {
				continue
			}
			for h := range 2 {
				c.K.Head(b, h).Row(j)[0] = float32(math.NaN())
				c.V.Head(b, h).Row(j)[0] = float32(math.Inf(1))
			}
		}
	}
	_, st = softmaxState(t, c)
	out := calltest.Poisoned(2, 6, 40, 3)
	steps(t, st, out, c, 0, 11, 40)
	if !slices.Equal(out.Data, want.Data) {
		t.Error("masked tokens change outputs")
	}
}
