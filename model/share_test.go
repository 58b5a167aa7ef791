package model

import (
	"slices"
	"sync"
	"testing"
)

// Models that share weights compute at the same time, each with the bits of one alone.
func TestSharedModelsComputeAtTheSameTime(t *testing.T) {
	all := catalogue(t)
	all["rope"] = with(tiny(Decoder, "fastmax"), func(c *Config) { c.Positions, c.Conv = Rotary, 3; c.Heads, c.Width = 3, 12 })
	all["pooled"] = with(tiny(Encoder, "linear"), func(c *Config) { c.Pool, c.HeadHidden, c.Tied = PoolMean, 5, false })
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			m := made(t, c)
			texts := []*Batch{batch(c, 1, 1, 7, false), batch(c, 2, 1, 3, false), batch(c, 3, 1, 6, false)}
			var want [][]float
			for _, b := range texts {
				v, _, err := m.Vectors(t.Context(), nil, b)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, v)
			}
			var ready sync.WaitGroup
			for worker := range 3 {
				own := m.Share()
				ready.Go(func() {
					for i := range 6 {
						k := (i + worker) % len(texts)
						if v, _, err := own.Vectors(t.Context(), nil, texts[k]); err != nil || !slices.Equal(v, want[k]) {
							t.Errorf("worker %d, text %d: %v, %v, want %v", worker, k, v, err, want[k])
						}
					}
				})
			}
			ready.Wait()
		})
	}
}
