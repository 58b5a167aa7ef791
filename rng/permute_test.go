package rng

import "testing"

// Every number once, and every number in every place about equally often: with
// 6000 keys the count of each of 36 cells is 1000 ± 29 (one deviation of a binomial
// distribution); five of these are allowed.
func TestPermuteIsUniform(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 16, 17, 1000} {
		seen := make([]bool, n)
		for i := range n {
			x := New(3).Permute(i, n)
			if x < 0 || x >= n || seen[x] {
				t.Fatalf("n = %d: %d comes to %d", n, i, x)
			}
			seen[x] = true
		}
	}
	const n, keys = 6, 6000
	var cells [n][n]int
	for key := range uint64(keys) {
		for i := range n {
			cells[i][New(9).Fold(key).Permute(i, n)]++
		}
	}
	for i, row := range cells {
		for x, got := range row {
			if got < keys/n-145 || got > keys/n+145 {
				t.Errorf("%d comes to %d in %d of %d orders", i, x, got, keys)
			}
		}
	}
}
