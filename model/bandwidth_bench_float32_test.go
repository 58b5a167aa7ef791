//go:build !float64

package model

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
)

// reading sums numbers: it reads them at the bandwidth of memory or of a cache.
type reading struct{ data, sums []float32 }

func (r *reading) RunRange(i0, i1 int) {
	r.sums[i0/readingPiece] = kernel.Active[float32]().Sum(r.data[i0:i1])
}

// BenchmarkStepBandwidth compares shared steps of the default near-far model with the reading of as
// many bytes, in turns.
func BenchmarkStepBandwidth(b *testing.B) {
	m := made(b, nearFar())
	weights, state := stepBytes(m)
	for _, count := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			g := group(b, m)
			steps := make([]SessionStep, count)
			for i := range steps {
				s, err := g.NewSession(1)
				if err != nil {
					b.Fatal(err)
				}
				steps[i] = SessionStep{Session: s, Tokens: tokensOf(m.config, uint64(i), 500+i)}
			}
			g.StepTogether(steps)
			bytes := weights + float64(count)*state
			r := reading{data: make([]float32, int(bytes)/4)}
			r.sums = make([]float32, len(r.data)/readingPiece+1)
			for i := range r.data {
				r.data[i] = 1
			}
			var step, read, share []float64
			for b.Loop() {
				start := time.Now()
				par.Run(len(r.data), readingPiece, float64(len(r.data)), r)
				middle := time.Now()
				for i := range steps {
					steps[i].Tokens = append(steps[i].Tokens[:0], int32(i))
				}
				g.StepTogether(steps)
				x, y := middle.Sub(start).Seconds(), time.Since(middle).Seconds()
				step, read, share = append(step, y), append(read, x), append(share, x/y)
			}
			for i := range steps {
				if steps[i].Err != nil {
					b.Fatal(steps[i].Err)
				}
			}
			b.ReportMetric(bytes/1e6, "MB/step")
			median := func(list []float64) float64 {
				slices.Sort(list)
				return list[len(list)/2]
			}
			b.ReportMetric(bytes/median(step)/1e9, "GB/s")
			b.ReportMetric(bytes/median(read)/1e9, "reading-GB/s")
			b.ReportMetric(100*median(share), "%-of-reading")
		})
	}
}
