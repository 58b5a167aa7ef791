package model

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/nn"
)

// nearFar is the model of the preset default.
func nearFar() Config {
	return Config{
		Kind: Decoder, Vocab: 256, Context: 4096, Layers: 3, Width: 128, Heads: 8, Conv: 4, Positions: Rotary,
		Mechanism: "fastmax", Order: 4, Set: map[string]string{"window": "64", "scale": "1/sqrt(D)", "tau": "1"}, Tied: true,
		AttentionNorm: true, LayerWindows: []int{0, 64, 64},
	}
}

// stepBytes counts the bytes of memory that a step of a near-far model moves: weights, once for all
// sessions, and the state of each session.
//
// A head of a layer with a far field reads its sums, the keys and values of its window, and on average of half an
// open chunk. Its token's rows are written to both. The end of a chunk reads the chunk, and reads
// and writes the sums. A head with the near field alone reads its keys and values.
func stepBytes(m *Model) (weights, state float64) {
	c := m.config
	const window = 64
	a := m.main.blocks[0].mixer.(*nn.Attention)
	d := float64(c.Width / c.Heads)
	p := a.Mechanism.Plan(attention.Shape{B: 1, H: c.Heads, Hkv: c.Heads, N: 1, M: 1, D: int(d), Dv: int(d), Form: attention.Step, Causal: true})
	chunk, sums, row := float64(p.Chunk), float64(p.F)*(d+1), 2*d
	head := sums + window*row + (chunk+1)/2*row + // read
		row + 3*d + // written
		(chunk*row+2*sums)/chunk // at the end of a chunk
	heads, convs := 0.0, 0.0
	for i := range c.Layers {
		if c.layerWindow(i) > 0 {
			heads += float64(c.Heads) * (window*row + row + d)
		} else {
			heads += float64(c.Heads) * head
		}
	}
	for i := range m.main.blocks {
		if b := &m.main.blocks[i]; b.conv != nil {
			convs += 2 * float64(b.conv.PastSize()) // read and written
		}
	}
	return 4 * float64(m.params.Size()), 4 * (heads + convs)
}

// readingPiece is the number of elements of a piece.
const readingPiece = 1 << 14

// reading sums numbers: it reads them at the bandwidth of memory or of a cache.
type reading struct{ data, sums []float }

func (r *reading) RunRange(i0, i1 int) {
	r.sums[i0/readingPiece] = kernel.Active[float]().Sum(r.data[i0:i1])
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
			r := reading{data: make([]float, int(bytes)/4)}
			r.sums = make([]float, len(r.data)/readingPiece+1)
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
