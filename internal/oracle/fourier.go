package oracle

import "math"

// NewFourier returns FourierFormer attention, Σ w v / (Σ w + eps) with w = (Π_d
// sin(R_d(q_d-k_d))/(R_d(q_d-k_d)))⁴ (Nguyen et al. 2022, eq. 13 with φ the fourth power). r is
// [1] or [D]. If scaled is set, scores are multiplied by Π R_d, so that eps is relative to its
// fourth power.
func NewFourier(r []float64, eps float64, scaled bool) HeadMatrix {
	return func(h *Head) [][]float64 {
		a := make([][]float64, len(h.Q))
		for i, q := range h.Q {
			a[i] = make([]float64, len(h.K))
			logs := make([]float64, len(h.K))
			top := math.Inf(-1)
			whole := 0.0
			for d := range q {
				whole += math.Log(math.Abs(r[d%len(r)]))
			}
			for j, k := range h.K {
				if !h.Sees(i, j) {
					continue
				}
				for d := range q {
					if x := r[d%len(r)] * (q[d] - k[d]); x != 0 {
						logs[j] += 4 * math.Log(math.Abs(math.Sin(x)/x))
					}
				}
				top = max(top, logs[j])
			}
			small := math.Log(eps)
			if scaled {
				small -= 4 * whole
			}
			sum := math.Exp(small - top)
			for j := range h.K {
				if h.Sees(i, j) {
					sum += math.Exp(logs[j] - top)
				}
			}
			for j := range h.K {
				if h.Sees(i, j) {
					a[i][j] = math.Exp(logs[j]-top) / sum
				}
			}
		}
		return a
	}
}
