package model

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

import ()

// smolLM is the shape of SmolLM-135M.
func smolLM() Config {
	return Config{
		Kind: Decoder, Vocab: 49152, Context: 2048, Layers: 30, Width: 576, Heads: 9, KVHeads: 3, Hidden: 1536,
		Norm: RMSNorm, Activation: SwiGLU, Positions: Rotary, Mechanism: "softmax", Tied: true,
	}
}

// filled returns a model whose weights are small and repeat, for measurements.
func filled(b *testing.B, c Config) *Model {
	b.Helper()
	m, err := newUndrawn(c, map[string]uint64{})
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range m.params.All() {
		for i := range p.Data {
			p.Data[i] = float(i%61-30) / 1500
		}
	}
	return m
}

// BenchmarkStepTogether compares steps of sessions together with steps one by one, in
// turns: tokens after 64 others each.
func BenchmarkStepTogether(b *testing.B) {
	m := filled(b, smolLM())
	one, err := m.NewSession(1)
	if err != nil {
		b.Fatal(err)
	}
	prompt := tokensOf(m.config, 1, 64)
	if _, err := one.Step(b.Context(), prompt, len(prompt)); err != nil {
		b.Fatal(err)
	}
	snapshot, err := one.AppendBinary(nil)
	if err != nil {
		b.Fatal(err)
	}
	g := group(b, m)
	for _, count := range []int{1, 2, 4, 8, 16, 32, 64} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			alone, steps := make([]*Session, count), make([]SessionStep, count)
			for i := range steps {
				s, err := g.RestoreSession(snapshot)
				if err != nil {
					b.Fatal(err)
				}
				alone[i] = one.Clone()
				steps[i] = SessionStep{Session: s, Tokens: []int32{int32(i)}}
			}
			var ratios, times, singles []float64
			for b.Loop() {
				start := time.Now()
				for i, s := range alone {
					if _, err := s.Step(b.Context(), steps[i].Tokens, 1); err != nil {
						b.Fatal(err)
					}
				}
				single := time.Since(start).Seconds()
				start = time.Now()
				g.StepTogether(steps)
				together := time.Since(start).Seconds()
				ratios, times, singles = append(ratios, single/together), append(times, together), append(singles, single)
			}
			for _, x := range [][]float64{ratios, times, singles} {
				slices.Sort(x)
			}
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
			b.ReportMetric(1e3*times[len(times)/2], "ms-together")
			b.ReportMetric(1e3*singles[len(times)/2]/float64(count), "ms-each-alone")
			b.ReportMetric(0, "ns/op")
		})
	}
}
