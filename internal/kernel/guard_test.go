package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// sizes lie around the lengths of vectors (16), unrolled loops (32, 64) and blocks.
var sizes = []int{0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 79, 97, 127, 129, 193}

// each runs f once for every table of T.
func each[T Float](t *testing.T, f func(t *testing.T, k *Table[T])) {
	for _, k := range Tables[T]() {
		t.Run(k.Name, func(t *testing.T) { f(t, k) })
	}
}

// guarded is an unaligned slice of T between two bands of NaNs with a marked payload.
type guarded[T Float] struct {
	all  []T
	skip int
	data []T
}

const band = 37

func mark[T Float]() T {
	return T(math.Float32frombits(0x7fc0beef))
}

func bits[T Float](x T) uint64 { return math.Float64bits(float64(x)) }

func guard[T Float](n, skip int) *guarded[T] {
	all := make([]T, band+skip+n+band)
	for i := range all {
		all[i] = mark[T]()
	}
	return &guarded[T]{all, band + skip, all[band+skip:][:n:n]}
}

// random fills the slice with numbers of a normal distribution.
func (g *guarded[T]) random(r *rand.Rand) *guarded[T] {
	for i := range g.data {
		g.data[i] = T(r.NormFloat64())
	}
	return g
}

// intact fails the test when a number outside the slice has changed.
func (g *guarded[T]) intact(t *testing.T, name string) {
	t.Helper()
	for i, x := range g.all {
		if inside := i >= g.skip && i < g.skip+len(g.data); !inside && bits(x) != bits(mark[T]()) {
			t.Fatalf("%s: written outside, at %d of %d", name, i-g.skip, len(g.data))
		}
	}
}

// same reports whether two slices hold the same bits, any NaN equal to any.
func same[T Float](x, y []T) bool {
	for i := range x {
		if bits(x[i]) != bits(y[i]) && (x[i] == x[i] || y[i] == y[i]) {
			return false
		}
	}
	return len(x) == len(y)
}

// unit returns the unit roundoff of T.
func unit[T Float]() float64 {
	if T(1)+T(0x1p-40) == 1 {
		return 0x1p-24
	}
	return 0x1p-53
}

func near(got, want, tolerance float64) bool {
	if math.IsNaN(want) || math.IsInf(want, 0) {
		return got == want || math.IsNaN(got) && math.IsNaN(want)
	}
	return math.Abs(got-want) <= tolerance
}

func source() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
