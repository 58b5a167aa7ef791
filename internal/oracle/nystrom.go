package oracle

import "math"

// NewNystrom returns the attention of Nyströmformer (Xiong et al. 2021, arXiv 2102.03902, eq.
// 13), with the means of eq. 15. The iteration of eq. 14 starts from Aᵀ, divided by the largest
// sum of a column. conv [H][width], or [width] for all heads, holds the weights of a
// convolution over values; a width of 0 means none. With zeros set, masked keys count as zeros
// in the means; otherwise they are absent.
func NewNystrom(landmarks, iterations int, conv []float64, width int, zeros bool) HeadMatrix {
	return func(h *Head) [][]float64 {
		keys := h.K
		if !zeros {
			keys = h.unmaskedKeys()
		}
		scale := 1 / math.Sqrt(float64(len(h.Q[0])))
		l := min(landmarks, len(h.Q), len(keys))
		ql, kl := partMeans(h.Q, l), partMeans(keys, l)
		a := softmaxOf(productsOf(scale, ql, kl))
		z := approximateInverse(a, iterations)
		f := softmaxOf(productsOf(scale, h.Q, kl))
		near := &Head{Q: ql, K: h.K, Exist: h.Exist}
		w := multiplyMatrices(multiplyMatrices(f, z), near.Softmax(productsOf(scale, ql, h.K)))
		for i := range w {
			for t := range width {
				at := t
				if len(conv) > width {
					at += h.Head * width
				}
				if j := i + t - width/2; j >= 0 && j < len(h.K) && h.Exist[j] {
					w[i][j] += conv[at]
				}
			}
		}
		return w
	}
}

// approximateInverse is eq. 14.
func approximateInverse(a [][]float64, iterations int) [][]float64 {
	var most float64
	z := make([][]float64, len(a))
	for j := range a {
		var sum float64
		for i := range a {
			sum += a[i][j]
			z[j] = append(z[j], a[i][j])
		}
		most = max(most, sum)
	}
	z = combineMatrices(1/most, z, 0)
	for range iterations {
		az := multiplyMatrices(a, z)
		x := combineMatrices(-1, az, 7)
		x = combineMatrices(-1, multiplyMatrices(az, x), 15)
		x = combineMatrices(-1, multiplyMatrices(az, x), 13)
		z = combineMatrices(0.25, multiplyMatrices(z, x), 0)
	}
	return z
}

// combineMatrices is f·x + d·I.
func combineMatrices(f float64, x [][]float64, d float64) [][]float64 {
	y := make([][]float64, len(x))
	for i := range x {
		for j, v := range x[i] {
			y[i] = append(y[i], f*v)
			if i == j {
				y[i][j] += d
			}
		}
	}
	return y
}

func multiplyMatrices(a, b [][]float64) [][]float64 {
	c := make([][]float64, len(a))
	for i := range a {
		c[i] = make([]float64, len(b[0]))
		for l, x := range a[i] {
			for j, y := range b[l] {
				c[i][j] += x * y
			}
		}
	}
	return c
}
