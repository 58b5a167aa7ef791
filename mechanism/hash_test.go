package mechanism

import (
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/mechanism/internal/zoo"
	"github.com/farfield-ml/farfield/rng"
)

func TestSortGroupsIsStable(t *testing.T) {
	ar := arena.Acquire()
	defer ar.Release()
	order, begin := entry.SortGroups(ar, []int32{2, 0, 2, 3, 0}, 5)
	if want := []int32{1, 4, 0, 2, 3}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if want := []int32{0, 2, 2, 4, 5, 5}; !slices.Equal(begin, want) {
		t.Errorf("begin %v, want %v", begin, want)
	}
}

// K-means by bits that are looked at one by one.
func TestHammingMeans(t *testing.T) {
	ar := arena.Acquire()
	defer ar.Release()
	for seed := range uint64(20) {
		key := rng.New(seed)
		hashes, means := make([]uint64, 30), make([]uint64, 5)
		for i := range hashes {
			hashes[i] = key.Uint64(uint64(i)) & key.Uint64(uint64(100+i))
		}
		copy(means, hashes)
		means[3] = means[1] // stays without hashes
		groups, want := make([]int32, 30), make([]int32, 30)
		slow := slices.Clone(means)
		for t := range 6 {
			for i, x := range hashes {
				want[i] = 0
				for c, m := range slow {
					if bits.OnesCount64(x^m) < bits.OnesCount64(x^slow[want[i]]) {
						want[i] = int32(c)
					}
				}
			}
			for c := 0; c < 5 && t < 5; c++ {
				var mean uint64
				members := 0
				for b := range 64 {
					ones := 0
					members = 0
					for i, x := range hashes {
						if want[i] == int32(c) {
							members++
							ones += int(x >> b & 1)
						}
					}
					if 2*ones > members {
						mean |= 1 << b
					}
				}
				if members > 0 {
					slow[c] = mean
				}
			}
		}
		zoo.HammingMeans(ar, groups, hashes, means, 6)
		if !slices.Equal(groups, want) {
			t.Errorf("seed %d: %v, want %v", seed, groups, want)
		}
	}
}

func TestLargest(t *testing.T) {
	key := rng.New(5)
	for n := range 40 {
		x, exist := make([]float, n), make([]bool, n)
		var all []int32
		for i := range x {
			x[i] = float(key.Fold(uint64(n)).Intn(uint64(i), 7)) // with ties
			if exist[i] = key.Fold(uint64(n)).Intn(uint64(100+i), 3) > 0; exist[i] {
				all = append(all, int32(i))
			}
		}
		slices.SortStableFunc(all, func(a, b int32) int { return int(x[b] - x[a]) })
		for k := range len(all) + 1 {
			got, want := make([]int32, k), slices.Clone(all[:k])
			zoo.Largest(got, x, exist)
			if slices.Sort(want); !slices.Equal(got, want) {
				t.Fatalf("%d largest of %v where %v: %v, want %v", k, x, exist, got, want)
			}
		}
	}
	nan := float(math.NaN())
	zoo.Largest([]int32{0, 0}, []float{nan, nan, 1}, nil) // ends
}
