package kernel

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// share runs f, which does ops floating-point operations, and reports the speed of one core and its
// share of the peak. Both are medians of runs in turns, because the speed of a machine drifts.
func share(b *testing.B, isa string, operations float64, f func()) {
	// A sample must be long against the clock.
	repeat := max(1, int(2e7/operations))
	var speed, peak []float64
	for range b.N {
		if len(peak) <= len(speed)/10 || operations > 1e8 {
			b.StopTimer()
			peak = append(peak, FMAPeak(isa, 3*time.Millisecond))
			b.StartTimer()
		}
		start := time.Now()
		for range repeat {
			f()
		}
		speed = append(speed, float64(repeat)*operations/time.Since(start).Seconds())
	}
	slices.Sort(speed)
	slices.Sort(peak)
	s, p := speed[len(speed)/2], peak[len(peak)/2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(s/1e9, "GFLOP/s")
	b.ReportMetric(p/1e9, "peak-GFLOP/s")
	b.ReportMetric(100*s/p, "%-of-peak")
}

// normal returns n random numbers, aligned to a cache line.
func normal(n int) []float32 {
	r, x := source(), make([]float32, max(n, 1<<14))[:n]
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func BenchmarkGemm1024(b *testing.B) {
	const n = 1024
	x, y := normal(n*n), normal(n*n)
	c := make([]float32, n*n)
	scratch := make([]float32, GemmScratch(n, n, n))
	for _, tab := range Tables[float32]() {
		b.Run(tab.Name, func(b *testing.B) {
			share(b, tab.Name, 2*n*n*n, func() {
				Gemm(tab, false, false, n, n, n, x, n, y, n, false, c, n, scratch)
			})
		})
	}
}

// BenchmarkGemm runs shapes of models: few rows, B plain or transposed.
func BenchmarkGemm(b *testing.B) {
	for _, tab := range Tables[float32]() {
		for _, s := range [][3]int{{1, 1024, 1024}, {12, 1024, 1024}, {64, 1024, 1024}, {768, 128, 128}, {768, 512, 128}, {768, 65, 128}} {
			for _, tb := range []bool{false, true} {
				m, n, k := s[0], s[1], s[2]
				x, y := normal(m*k), normal(k*n)
				ldb := n
				if tb {
					ldb = k
				}
				c, scratch := make([]float32, m*n), make([]float32, GemmScratch(m, n, k))
				b.Run(fmt.Sprintf("%s/%dx%dx%d/tb=%v", tab.Name, m, n, k, tb), func(b *testing.B) {
					share(b, tab.Name, float64(2*m*n*k), func() {
						Gemm(tab, false, tb, m, n, k, x, k, y, ldb, false, c, n, scratch)
					})
				})
			}
		}
	}
}

// BenchmarkGradientOfWeights runs Aᵀ·B of small layers, over many rows.
func BenchmarkGradientOfWeights(b *testing.B) {
	const k = 4000
	for _, tab := range Tables[float32]() {
		for _, s := range [][2]int{{32, 32}, {64, 64}, {128, 64}, {64, 128}, {256, 64}} {
			m, n := s[0], s[1]
			x, y := normal(k*m), normal(k*n)
			c, scratch := make([]float32, m*n), make([]float32, GemmScratch(m, n, k))
			b.Run(fmt.Sprintf("%s/%dx%d", tab.Name, m, n), func(b *testing.B) {
				share(b, tab.Name, float64(2*m*n*k), func() {
					Gemm(tab, true, false, m, n, k, x, m, y, n, true, c, n, scratch)
				})
			})
		}
	}
}

// BenchmarkBlock runs the shapes of attention.
func BenchmarkBlock(b *testing.B) {
	for _, tab := range Tables[float32]() {
		for _, s := range [][3]int{{96, 16, 256}, {256, 16, 96}, {256, 32, 96}, {96, 64, 256}, {256, 64, 16}, {256, 64, 96}, {512, 128, 512}} {
			m, n, k := s[0], s[1], s[2]
			x, y := normal(m*k), normal(k*n)
			c := make([]float32, m*n)
			b.Run(fmt.Sprintf("%s/%dx%dx%d", tab.Name, m, n, k), func(b *testing.B) {
				share(b, tab.Name, float64(2*m*n*k), func() {
					tab.Block(m, n, k, x, k, 1, y, n, c, n, true)
				})
			})
		}
	}
}

// BenchmarkRow reports nanoseconds per 16 numbers of a row in the first-level cache.
func BenchmarkRow(b *testing.B) {
	const n = 1024
	x, y, dst, m, v := normal(n), normal(n), normal(n), normal(n), normal(n)
	v = slices.Repeat([]float32{1}, len(v))
	step := &AdamWStep[float32]{Rate: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Correct1: 1, Correct2: 1, GradScale: 1}
	src, turned := make([]float32, n), make([]float32, n)
	stats := []float32{0, 1}
	for _, k := range Tables[float32]() {
		type routine struct {
			name string
			run  func()
		}
		var all []routine
		for _, f := range rowRoutines[float32]() {
			all = append(all, routine{f.name, func() { f.run(k, dst, x, y) }})
		}
		all = append(all,
			routine{"LayerNorm", func() { k.LayerNorm(dst, n, x, n, 1, n, y, y, stats, 1e-5) }},
			routine{"LayerNormGrad", func() { k.LayerNormGrad(dst, n, m, v, x, n, y, n, 1, n, y, stats) }},
			routine{"AdamW", func() { k.AdamW(dst, x, m, v, step) }},
			routine{"Transpose", func() { k.Transpose(turned, 32, src, 32, 32, 32) }})
		for _, f := range all {
			b.Run(k.Name+"/"+f.name, func(b *testing.B) {
				for b.Loop() {
					f.run()
				}
				b.ReportMetric(b.Elapsed().Seconds()*1e9*16/n/float64(b.N), "ns/16")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkRows reports nanoseconds per row of 64 numbers, of 64 rows in one call.
func BenchmarkRows(b *testing.B) {
	const n, rows = 64, 64
	x, y, dst := normal(rows*n), normal(rows*n), normal(rows*n)
	gain, bias, dgain, dbias, stats := normal(n), normal(n), normal(n), normal(n), normal(2*rows)
	for _, k := range Tables[float32]() {
		for _, f := range []struct {
			name string
			run  func()
		}{
			{"AddRows", func() { k.AddRows(dst, n, x, n, y, n, rows, n) }},
			{"AddRows of one", func() { k.AddRows(dst, n, x, n, y, 0, rows, n) }},
			{"SumRows", func() { k.SumRows(dgain, x, n, rows) }},
			{"RowDots", func() { k.RowDots(dgain, x, n, y, n, n) }},
			{"LayerNorm", func() { k.LayerNorm(dst, n, x, n, rows, n, gain, bias, stats, 1e-5) }},
			{"LayerNormGrad", func() {
				clear(dst)
				k.LayerNormGrad(dst, n, dgain, dbias, y, n, x, n, rows, n, gain, stats)
			}},
		} {
			b.Run(k.Name+"/"+f.name, func(b *testing.B) {
				k.LayerNorm(dst, n, x, n, rows, n, gain, bias, stats, 1e-5)
				for b.Loop() {
					f.run()
				}
				clear(dgain)
				clear(dbias)
				b.ReportMetric(b.Elapsed().Seconds()*1e9/rows/float64(b.N), "ns/row")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkTranspose reports nanoseconds per 16 numbers, for sides divisible by 8 and others.
func BenchmarkTranspose(b *testing.B) {
	for _, k := range Tables[float32]() {
		for _, s := range [][2]int{{96, 32}, {96, 33}, {31, 64}, {33, 31}, {96, 4}} {
			rows, cols := s[0], s[1]
			src, dst := normal(rows*cols), normal(rows*cols)
			b.Run(fmt.Sprintf("%s/%dx%d", k.Name, rows, cols), func(b *testing.B) {
				for b.Loop() {
					k.Transpose(dst, rows, src, cols, rows, cols)
				}
				b.ReportMetric(b.Elapsed().Seconds()*1e9*16/float64(rows*cols)/float64(b.N), "ns/16")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
