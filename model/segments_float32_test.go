//go:build !float64

package model

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
)

func TestSegmentsAreTheSameOnThreads(t *testing.T) {
	defer par.SetThreads(0)
	c := with(tiny(Decoder, "fastmax"), func(c *Config) {
		c.Positions, c.Conv, c.Width, c.Heads, c.Context = Rotary, 3, 64, 4, 600
	})
	b := batch(c, 3, 1, 600, false)
	var first [][]float32
	for _, threads := range []int{1, 3} {
		par.SetThreads(threads)
		_, all := segmentGrads(t, made(t, c), b, 100)
		if first == nil {
			first = all
			continue
		}
		for i, g := range all {
			if !slices.Equal(g, first[i]) {
				t.Errorf("gradient %d depends on the threads", i)
			}
		}
	}
}
