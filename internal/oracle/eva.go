package oracle

import "math"

// EVA is EVA attention in one dimension (Zheng et al. 2023, arXiv 2302.04542, section 4).
type EVA struct {
	Window, Overlap, Landmarks int
	Chunk                      int  // tokens of a chunk, without overlap and with μ the sum of both means; 0: use Landmarks chunks, with μ half the sum
	Zeros                      bool // masked tokens count as zeros in means
	MapQ, MapK                 EVAMap
	RPE                        []float64 // [H][window][window+2·overlap], or without H; nil: none
	Noise                      []float64 // [H][landmarks][D], or without H; nil: none
}

// EVAMap is a linear map [D][D] followed by a layer norm.
type EVAMap struct{ W, B, Gain, Bias []float64 }

func (m *EVAMap) apply(x []float64) []float64 {
	d := len(x)
	y := make([]float64, d)
	var mean, square float64
	for o := range y {
		y[o] = m.B[o] + dotProduct(m.W[o*d:][:d], x)
		mean += y[o] / float64(d)
	}
	for o := range y {
		y[o] -= mean
		square += y[o] * y[o] / float64(d)
	}
	for o := range y {
		y[o] = y[o]/math.Sqrt(square+1e-5)*m.Gain[o] + m.Bias[o]
	}
	return y
}

// Weights returns the attention matrix of a head. It is a HeadMatrix.
func (m *EVA) Weights(h *Head) [][]float64 {
	d := len(h.Q[0])
	scale := 1 / math.Sqrt(float64(d))
	tokens := max(len(h.Q), len(h.K))
	chunks, reach := min(m.Landmarks, tokens), m.Overlap
	if m.Chunk > 0 {
		chunks, reach = (len(h.K)+m.Chunk-1)/m.Chunk, 0
	}
	var keys [][]float64 // k̄ of chunks that have a key
	var beta [][]float64 // weights of their values
	var ends []int       // and the first token after each
	for c := range chunks {
		i0, i1 := partRange(c, chunks, tokens)
		if m.Chunk > 0 {
			i0, i1 = c*m.Chunk, (c+1)*m.Chunk
		}
		q, k, count := make([]float64, d), make([]float64, d), 0.0
		var members []int
		for j := max(0, i0-reach); j < min(len(h.K), i1+reach); j++ {
			if !h.Exist[j] {
				continue
			}
			members = append(members, j)
			count++
			for e := range d {
				k[e] += h.K[j][e]
				if i := j - h.Offset; i >= 0 && i < len(h.Q) {
					q[e] += h.Q[i][e]
				}
			}
		}
		if len(members) == 0 {
			continue
		}
		if m.Zeros {
			count = float64(i1 - i0 + 2*reach)
		}
		for e := range d {
			q[e] /= count
			k[e] /= count
		}
		qb, kb := m.MapQ.apply(q), m.MapK.apply(k)
		mu := make([]float64, d)
		for e := range mu {
			mu[e] = qb[e] + kb[e]
			if m.Chunk == 0 {
				mu[e] /= 2
			}
			if m.Noise != nil {
				at := c*d + e
				if len(m.Noise) > m.Landmarks*d {
					at += h.Head * m.Landmarks * d
				}
				mu[e] += m.Noise[at]
			}
		}
		s := make([]float64, len(members))
		for i, j := range members {
			s[i] = scale * (dotProduct(h.K[j], mu) - dotProduct(h.K[j], h.K[j])/2)
		}
		row := make([]float64, len(h.K))
		for i, p := range softmaxOf([][]float64{s})[0] {
			row[members[i]] = p
		}
		keys, beta, ends = append(keys, kb), append(beta, row), append(ends, i1)
	}
	a := make([][]float64, len(h.Q))
	for i, q := range h.Q {
		place := i + h.Offset
		first := place / m.Window * m.Window
		var near []int
		var s []float64
		for j := max(0, first-m.Overlap); j < min(len(h.K), first+m.Window+m.Overlap); j++ {
			if !h.Sees(i, j) {
				continue
			}
			near = append(near, j)
			x := scale * dotProduct(q, h.K[j])
			if m.RPE != nil {
				cols := m.Window + 2*m.Overlap
				at := (place-first)*cols + j - first + m.Overlap
				if len(m.RPE) > m.Window*cols {
					at += h.Head * m.Window * cols
				}
				x += m.RPE[at]
			}
			s = append(s, x)
		}
		for c, k := range keys {
			if h.Causal && ends[c] > place/m.Chunk*m.Chunk {
				break // its own chunk or a later one
			}
			s = append(s, scale*dotProduct(q, k))
		}
		a[i] = make([]float64, len(h.K))
		for x, p := range softmaxOf([][]float64{s})[0] {
			if x < len(near) {
				a[i][near[x]] += p
				continue
			}
			for j, y := range beta[x-len(near)] {
				a[i][j] += p * y
			}
		}
	}
	return a
}
