package oracle

import (
	"math"
	"slices"
)

// NewInformer returns ProbSparse attention (Zhou et al. 2021, arXiv 2012.07436). Each query
// gets a measure (eq. 4) from a sample of keys. The queries with the largest measure get
// softmax attention; the output of the others is the mean of the values. sample returns a
// number in [0,1) that selects one of the unmasked keys. With code set, the measure is computed
// as in the authors' program: the sum of sampled scores is divided by the number of all keys.
func NewInformer(factor int, code bool, sample func(token, sample int) float64) HeadMatrix {
	count := func(n int) int {
		return min(n, max(1, factor*int(math.Ceil(math.Log(float64(n))))))
	}
	return func(h *Head) [][]float64 {
		keys := h.unmaskedKeys()
		order, measure := make([]int, len(h.Q)), make([]float64, len(h.Q))
		for i, q := range h.Q {
			order[i] = i
			top := math.Inf(-1)
			var scores []float64
			for u := range count(len(keys)) {
				scores = append(scores, dotProduct(q, keys[int(sample(i, u)*float64(len(keys)))]))
				top = max(top, scores[u])
			}
			var sum, above float64
			for _, x := range scores {
				sum += x
				above += top - x
			}
			if measure[i] = above / float64(len(scores)); code {
				measure[i] = top - sum/float64(len(keys))
			}
		}
		slices.SortStableFunc(order, func(i, j int) int {
			switch {
			case measure[i] > measure[j]:
				return -1
			case measure[i] < measure[j]:
				return 1
			}
			return 0
		})
		a := h.Softmax(productsOf(1/math.Sqrt(float64(len(h.Q[0]))), h.Q, h.K))
		for _, i := range order[count(len(h.Q)):] {
			for j, exists := range h.Exist {
				if a[i][j] = 0; exists {
					a[i][j] = 1 / float64(len(keys))
				}
			}
		}
		return a
	}
}
