package oracle

import "math"

// NewLinformer returns softmax(s q (EᵀK)ᵀ) FᵀV (Wang et al. 2020, Linformer, eq. 7). e and f
// are [L][r], or [H][L][r] with perHead set. A projected key to which no unmasked key
// contributes is left out, unless all is set.
func NewLinformer(e, f []float64, length, rank int, perHead, all bool) HeadMatrix {
	return func(h *Head) [][]float64 {
		at := func(x []float64, j, c int) float64 {
			if perHead {
				x = x[h.Head*length*rank:]
			}
			if !h.Exist[j] {
				return 0
			}
			return x[j*rank+c]
		}
		a := make([][]float64, len(h.Q))
		for i, q := range h.Q {
			a[i] = make([]float64, len(h.K))
			scores, reached := make([]float64, rank), make([]bool, rank)
			products := make([]float64, len(h.K))
			for j, k := range h.K {
				products[j] = dotProduct(q, k) / math.Sqrt(float64(len(q)))
			}
			top, sum := math.Inf(-1), 0.0
			for c := range rank {
				reached[c] = all
				for j, x := range products {
					scores[c] += at(e, j, c) * x
					reached[c] = reached[c] || at(e, j, c) != 0 || at(f, j, c) != 0
				}
				if reached[c] {
					top = max(top, scores[c])
				}
			}
			for c := range rank {
				if reached[c] {
					sum += math.Exp(scores[c] - top)
				}
			}
			for c := range rank {
				if !reached[c] {
					continue
				}
				weight := math.Exp(scores[c]-top) / sum
				for j := range h.K {
					a[i][j] += weight * at(f, j, c)
				}
			}
		}
		return a
	}
}
