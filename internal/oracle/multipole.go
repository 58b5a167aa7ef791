package oracle

import (
	"math"
	"slices"
)

// Multipole is softmax in which near keys are weighed exactly and the weights of far keys are
// Taylor polynomials about the mean of their cell. The cell of a key is the nearest row of a
// codebook.
type Multipole struct {
	Codebook                   []float64 // [heads][Cells][D], of one head, of key heads or of query heads
	Tilt                       []float64 // r of each row of Codebook; nil: zeros
	Cells                      int
	Order                      int // degree p of the polynomial
	Block, Window, Sinks, Ends int
	Adapt                      int     // Lloyd steps on the keys that are neither sinks nor ends
	Scale                      float64 // s; 0: 1/√D
}

// Weights returns the attention matrix of a head. It is a HeadMatrix. Query i has the position
// p = i+M-N, in block b = ⌊p/B⌋. A key j is near if it is one of the first Sinks; if bB-Window
// ≤ j < (b+1)B+Window; or if the call is not causal and it is one of the last Ends, where
// masked keys at the end do not count. All other keys are far.
//
// A near key has the weight exp(s q·k). A far key has the weight exp(s q·c̄)·T_p(s q·(k-c̄)),
// where c̄ is the mean of the far keys in its cell. With a tilt r of the cell and order 0 or 1,
// the weight is exp(s r·k)·exp(s (q-r)·c̄)·T_p(s (q-r)·(k-c̄)), where c̄ is the mean weighted by exp(s r·k). Let C be
// the centre of the cell. The exponents s r·(k-C) and s r·(C-c̄) are clamped to [-10,10].
func (m *Multipole) Weights(h *Head) [][]float64 {
	d := len(h.K[0])
	scale := m.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d))
	}
	cells := m.cells(h)
	tilt := func(j int, x []float64) float64 {
		if m.Tilt == nil {
			return 0
		}
		row := m.row(h, cells[j]) * d
		var sum float64
		for e := range x {
			sum += scale * m.Tilt[row+e] * (x[e] - m.Codebook[row+e])
		}
		return max(min(sum, 10), -10)
	}
	a := make([][]float64, len(h.Q))
	for i, q := range h.Q {
		block := int(math.Floor(float64(i+h.Shift) / float64(m.Block)))
		near := func(j int) bool {
			return j < m.Sinks || !h.Causal && j >= h.end()-m.Ends ||
				block*m.Block-m.Window <= j && j < (block+1)*m.Block+m.Window
		}
		means, counts := make([][]float64, m.Cells), make([]float64, m.Cells)
		for c := range means {
			means[c] = make([]float64, d)
		}
		for j, k := range h.K {
			if h.Sees(i, j) && !near(j) {
				w := math.Exp(tilt(j, k))
				counts[cells[j]] += w
				for e := range k {
					means[cells[j]][e] += w * k[e]
				}
			}
		}
		for c := range means {
			for e := range means[c] {
				if counts[c] > 0 {
					means[c][e] /= counts[c]
				}
			}
		}
		// The exponent of a key, and the polynomial that multiplies its exponential.
		exponents, factors := make([]float64, len(h.K)), make([]float64, len(h.K))
		top, sum := math.Inf(-1), 0.0
		for j, k := range h.K {
			if !h.Sees(i, j) {
				continue
			}
			exponents[j], factors[j] = scale*dotProduct(q, k), 1
			if !near(j) {
				mean := means[cells[j]]
				var x float64
				for e := range k {
					y := q[e]
					if m.Tilt != nil {
						y -= m.Tilt[m.row(h, cells[j])*d+e]
					}
					x += scale * y * (k[e] - mean[e])
				}
				exponents[j] = scale*dotProduct(q, mean) - tilt(j, mean)
				factors[j] = math.Exp(tilt(j, k)) * taylor(m.Order, x)
			}
			top = max(top, exponents[j])
		}
		a[i] = make([]float64, len(h.K))
		for j := range h.K {
			if h.Sees(i, j) {
				a[i][j] = math.Exp(exponents[j]-top) * factors[j]
				sum += a[i][j]
			}
		}
		for j := range a[i] {
			a[i][j] /= sum
		}
	}
	return a
}

// row returns the row of Codebook of cell c of a head.
func (m *Multipole) row(h *Head, c int) int {
	heads, head := len(m.Codebook)/(m.Cells*len(h.K[0])), 0
	switch {
	case heads == 1:
	case heads == h.Heads:
		head = h.Head - h.Head%h.Group
	default:
		head = h.Head / h.Group
	}
	return head*m.Cells + c
}

// taylor returns the sum of x^l/l! for l ≤ p.
func taylor(p int, x float64) float64 {
	sum, term := 1.0, 1.0
	for l := 1; l <= p; l++ {
		term *= x / float64(l)
		sum += term
	}
	return sum
}

// cells returns the cell of each key: the nearest row of the codebook, after the Lloyd steps.
// A codebook of all query heads serves a key head with the rows of the first query head that
// shares it.
func (m *Multipole) cells(h *Head) []int {
	d := len(h.K[0])
	book := make([][]float64, m.Cells)
	for c := range book {
		book[c] = slices.Clone(m.Codebook[m.row(h, c)*d:][:d])
	}
	cells := make([]int, len(h.K))
	for t := 0; ; t++ {
		for j, k := range h.K {
			cells[j] = nearestRow(book, k)
		}
		if t == m.Adapt {
			return cells
		}
		for c := range book {
			mean, count := make([]float64, d), 0.0
			for j, k := range h.K {
				if cells[j] == c && h.Exist[j] && j >= m.Sinks && j < h.end()-m.Ends {
					count++
					for e := range mean {
						mean[e] += k[e]
					}
				}
			}
			for e := range mean {
				if count > 0 {
					book[c][e] = mean[e] / count
				}
			}
		}
	}
}

// nearestRow returns the row c of the book of least |c|²/2 - k·c, which is half the squared
// distance without |k|². Of equal distances the first row wins.
func nearestRow(book [][]float64, k []float64) int {
	cell, least := 0, math.Inf(1)
	for c, row := range book {
		if distance := dotProduct(row, row)/2 - dotProduct(k, row); distance < least {
			cell, least = c, distance
		}
	}
	return cell
}
