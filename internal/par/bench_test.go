package par_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
)

// tiles are products in the first-level cache, at the kernels' speed.
type tiles struct{ a, b, c []float32 }

const (
	tileSide  = 32
	tileFLOPs = 2 * tileSide * tileSide * tileSide
)

func (f *tiles) RunRange(i0, i1 int) {
	t := kernel.Active[float32]()
	for i := i0; i < i1; i++ {
		t.Block(tileSide, tileSide, tileSide, f.a, tileSide, 1, f.b, tileSide, f.c[i*tileSide*tileSide:], tileSide, false)
	}
}

// BenchmarkCrossover measures MinWork: the ratio of times on one and on two goroutines, taken in turn.
// "median" is the median ratio; "fastest" compares the fastest tenth of both, which other programs
// disturb least. "awake" is continuous work; "asleep" follows a serial phase in which workers fall
// asleep, as between the passes of a small model.
func BenchmarkCrossover(b *testing.B) {
	par.SetThreads(2)
	defer par.SetThreads(0)
	const most = 1 << 27 / tileFLOPs
	f := tiles{make([]float32, tileSide*tileSide), make([]float32, tileSide*tileSide), make([]float32, most*tileSide*tileSide)}
	took := func(n int, work float64) float64 {
		start := time.Now()
		par.Run(n, (n+7)/8, work, f)
		return time.Since(start).Seconds()
	}
	for _, idle := range []int{0, 64} {
		name := "awake"
		if idle > 0 {
			name = "asleep"
		}
		for n := 2; n <= most; n *= 2 {
			b.Run(fmt.Sprintf("%s/work=2^%d", name, int(math.Log2(float64(n*tileFLOPs)))), func(b *testing.B) {
				var ratios, serial, parallel []float64
				for b.Loop() {
					took(idle, 0)
					one := took(n, 0)
					took(idle, 0)
					two := took(n, math.Inf(1))
					ratios, serial, parallel = append(ratios, one/two), append(serial, one), append(parallel, two)
				}
				for _, x := range [][]float64{ratios, serial, parallel} {
					slices.Sort(x)
				}
				b.ReportMetric(ratios[len(ratios)/2], "median")
				b.ReportMetric(serial[len(serial)/10]/parallel[len(parallel)/10], "fastest")
				b.ReportMetric(1e6*serial[len(serial)/2], "µs-serial")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

type nothing struct{}

func (*nothing) RunRange(int, int) {}

// BenchmarkNothing measures a call that stays on its goroutine.
func BenchmarkNothing(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		par.Run(1, 1, 0, nothing{})
	}
}
