package oracle

import "math"

// NewLuna returns the attention of Luna (Ma et al. 2021, arXiv 2106.01540). p holds the packed
// queries, [H][length][D] or [length][D] for all heads. Without omega it is two softmax
// attentions (eq. 7-8), with omega the causal form (section 3.3), where omega is ω. A scale of
// 0 means 1/√D.
func NewLuna(p []float64, length int, omega func(x float64) float64, scale float64) HeadMatrix {
	return func(h *Head) [][]float64 {
		d, scale := len(h.Q[0]), scale
		if scale == 0 {
			scale = 1 / math.Sqrt(float64(d))
		}
		var rows [][]float64
		for l := range length {
			at := l * d
			if len(p) > length*d {
				at += h.Head * length * d
			}
			rows = append(rows, p[at:at+d])
		}
		if omega == nil {
			pack := (&Head{Exist: h.Exist}).Softmax(productsOf(scale, rows, h.K))
			return multiplyMatrices(softmaxOf(productsOf(scale, h.Q, multiplyMatrices(pack, h.K))), pack)
		}
		a := productsOf(scale, h.K, rows)
		for j := range a {
			for l := range a[j] {
				a[j][l] = omega(a[j][l])
			}
		}
		w := make([][]float64, len(h.Q))
		for i, q := range h.Q {
			w[i] = make([]float64, len(h.K))
			if !h.SeesAny(i) {
				continue
			}
			seen, s := 0.0, make([]float64, length)
			for j, k := range h.K {
				if h.Sees(i, j) {
					seen++
					for l := range s {
						s[l] += dotProduct(q, k) * a[j][l]
					}
				}
			}
			for l := range s {
				s[l] *= scale / seen
			}
			u := softmaxOf([][]float64{s})[0]
			for j := range h.K {
				if h.Sees(i, j) {
					w[i][j] = dotProduct(u, a[j]) / seen
				}
			}
		}
		return w
	}
}
