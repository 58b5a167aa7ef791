package kernel

import (
	"math"
	"slices"
	"testing"
)

// Every table finds the two largest numbers of each lane and the place of the first, over several calls,
// as plain Go does number by number.
func TestTopTwo(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testTopTwo[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testTopTwo[float64]) })
}

func testTopTwo[T Float](t *testing.T, k *Table[T]) {
	r := source()
	least := T(math.Inf(-1))
	for _, rows := range []int{0, 1, 2, 5, 24} {
		best, next := guard[T](rows*Lanes, 1), guard[T](rows*Lanes, 2)
		at, wantAt := make([]int32, rows*Lanes+1), make([]int32, rows*Lanes+1)
		for i := range best.data {
			best.data[i], next.data[i] = least, least
		}
		at[rows*Lanes], wantAt[rows*Lanes] = -7, -7
		wantBest, wantNext := slices.Clone(best.data), slices.Clone(next.data)
		first := 0
		for _, n := range []int{16, 0, 48, 256} {
			xrs := n + 3
			x, y := matrix[T](r, max(rows, 1), n, xrs).data, matrix[T](r, 1, n, n).data
			for i := range x {
				x[i] = T(int(4 * x[i])) // many are equal
			}
			for j := range y {
				if y[j] = T(int(4 * y[j])); j > 200 {
					y[j] = T(math.Inf(1)) // no number
				}
			}
			for i := range rows {
				for j := range n {
					z, l := x[i*xrs+j]-y[j], i*Lanes+j%Lanes
					if z > wantBest[l] {
						wantBest[l], wantNext[l], wantAt[l] = z, wantBest[l], int32(first+j)
					} else {
						wantNext[l] = max(wantNext[l], z)
					}
				}
			}
			k.TopTwo(x, xrs, n, y, first, best.data, next.data, at)
			first += n
			if !slices.Equal(best.data, wantBest) || !slices.Equal(next.data, wantNext) || !slices.Equal(at, wantAt) {
				t.Fatalf("%d rows after %d numbers: %v, %v at %v, want %v, %v at %v", rows, first, best.data, next.data, at, wantBest, wantNext, wantAt)
			}
		}
		best.intact(t, "TopTwo")
		next.intact(t, "TopTwo next")
	}
}
