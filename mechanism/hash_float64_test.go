//go:build float64

package mechanism

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/rng"
)

func TestLargest(t *testing.T) {
	key := rng.New(5)
	for n := range 40 {
		x, exist := make([]float64, n), make([]bool, n)
		var all []int32
		for i := range x {
			x[i] = float64(key.Fold(uint64(n)).Intn(uint64(i), 7)) // with ties
			if exist[i] = key.Fold(uint64(n)).Intn(uint64(100+i), 3) > 0; exist[i] {
				all = append(all, int32(i))
			}
		}
		slices.SortStableFunc(all, func(a, b int32) int { return int(x[b] - x[a]) })
		for k := range len(all) + 1 {
			got, want := make([]int32, k), slices.Clone(all[:k])
			Largest(got, x, exist)
			if slices.Sort(want); !slices.Equal(got, want) {
				t.Fatalf("%d largest of %v where %v: %v, want %v", k, x, exist, got, want)
			}
		}
	}
	Largest([]int32{0, 0}, []float64{math.NaN(), math.NaN(), 1}, nil) // ends
}
