package oracle

import (
	"math"
	"slices"
)

// ExactTopK returns softmax over the k largest scores of each query. Of equal scores it takes
// the first keys.
func ExactTopK(k int, scale float64) HeadMatrix {
	return func(h *Head) [][]float64 {
		if scale == 0 {
			scale = 1 / math.Sqrt(float64(len(h.Q[0])))
		}
		s := productsOf(scale, h.Q, h.K)
		a := make([][]float64, len(s))
		for i, row := range s {
			a[i] = make([]float64, len(row))
			var seen []int
			for j := range row {
				if h.Sees(i, j) {
					seen = append(seen, j)
				}
			}
			slices.SortStableFunc(seen, func(b, c int) int {
				switch {
				case row[b] > row[c]:
					return -1
				case row[b] < row[c]:
					return 1
				}
				return 0
			})
			seen = seen[:min(k, len(seen))]
			var sum float64
			for _, j := range seen {
				a[i][j] = math.Exp(row[j] - row[seen[0]])
				sum += a[i][j]
			}
			for _, j := range seen {
				a[i][j] /= sum
			}
		}
		return a
	}
}
