package oracle

import (
	"math"
	"slices"
)

// Multipole is softmax with near keys weighed exactly and far keys by a Taylor polynomial
// about the mean of their cell.
type Multipole struct {
	Codebook                   []float64 // [heads][Cells][D], of one head, of key heads or of query heads
	Cells                      int
	Order                      int // degree p of the polynomial
	Block, Window, Sinks, Ends int
	Adapt                      int     // Lloyd steps on the keys that are neither sinks nor ends
	Scale                      float64 // s; 0: 1/√D

	// Input says that cells are clusters of the keys of the call, of which those with large
	// errors are near to a query. Then Codebook, Cells and Adapt are not read.
	Input bool
	Tol   float64 // of the sum of the errors of far clusters
	Size  int     // keys of a cluster on average; 0: half the square root of the keys, 32 in causal calls
	Span  int     // Block of causal calls
	Least int     // keys up to which all keys are near in a call that is not causal
}

// Weights is a HeadMatrix. Query i stands at p = i+M-N in block b = ⌊p/B⌋. A key is near if
// it is one of the first Sinks, one of the last Ends of a call that is not causal, or in
// bB-Window ≤ j < (b+1)B+Window. A near key weighs exp(s q·k). A far key weighs
// exp(s q·c̄)·T_p(s q·(k-c̄)), where c̄ is the mean of the far keys in its cell.
func (m *Multipole) Weights(h *Head) [][]float64 {
	d := len(h.K[0])
	scale := m.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d))
	}
	cells, count, length := []int(nil), m.Cells, m.Block
	if m.Input {
		cells, count = m.clusters(h)
	} else {
		cells = m.cells(h)
	}
	if m.Input && h.Causal {
		length = m.Span
	}
	a := make([][]float64, len(h.Q))
	for i, q := range h.Q {
		block := int(math.Floor(float64(i+h.Shift) / float64(length)))
		near := func(j int) bool {
			if m.Input && !h.Causal {
				return j < m.Sinks || j >= len(h.K)-m.Ends || len(h.K) <= m.Least
			}
			return j < m.Sinks || !h.Causal && j >= len(h.K)-m.Ends ||
				block*length-m.Window <= j && j < (block+1)*length+m.Window
		}
		means, counts := make([][]float64, count), make([]float64, count)
		for c := range means {
			means[c] = make([]float64, d)
		}
		for j, k := range h.K {
			if h.Sees(i, j) && !near(j) {
				counts[cells[j]]++
				for e := range k {
					means[cells[j]][e] += k[e]
				}
			}
		}
		for c := range means {
			for e := range means[c] {
				means[c][e] /= max(counts[c], 1)
			}
		}
		if m.Input {
			chosen := m.chooseClusters(h, i, cells, means, counts, near, scale)
			isNear := near
			near = func(j int) bool { return isNear(j) || chosen[cells[j]] }
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
					x += scale * q[e] * (k[e] - mean[e])
				}
				exponents[j], factors[j] = scale*dotProduct(q, mean), taylor(m.Order, x)
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
	heads, head := len(m.Codebook)/(m.Cells*d), 0
	switch {
	case heads == 1:
	case heads == h.Heads:
		head = h.Head - h.Head%h.Group
	default:
		head = h.Head / h.Group
	}
	book := make([][]float64, m.Cells)
	for c := range book {
		book[c] = slices.Clone(m.Codebook[(head*m.Cells+c)*d:][:d])
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
				if cells[j] == c && h.Exist[j] && j >= m.Sinks && j < len(h.K)-m.Ends {
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

// clusters returns the number of the cluster of each key, and the number of clusters. Keys
// that are not masked, nor sinks or ends, are clustered together, in a causal call those of
// each span. Numbers of other keys mean nothing.
func (m *Multipole) clusters(h *Head) (cells []int, count int) {
	cells = make([]int, len(h.K))
	last, span := len(h.K)-m.Ends, len(h.K)
	if h.Causal {
		last, span = len(h.K), m.Span
	}
	for begin := 0; begin < len(h.K); begin += span {
		var keys []int
		for j := max(begin, m.Sinks); j < min(begin+span, last); j++ {
			if h.Exist[j] {
				keys = append(keys, j)
			}
		}
		if len(keys) == 0 {
			continue
		}
		size := m.Size
		switch {
		case size == 0 && h.Causal:
			size = 32
		case size == 0:
			size = max(int(math.Sqrt(float64(len(keys)))/2), 8)
		}
		total := math.Ceil(float64(len(keys)) / float64(size))
		for _, group := range lloyd(h.K, keys, int(math.Round(math.Sqrt(total)))) {
			if len(group) == 0 {
				continue
			}
			share := math.Floor(total*float64(len(group))/float64(len(keys)) + 0.5)
			for _, members := range lloyd(h.K, group, int(max(share, 1))) {
				for _, j := range members {
					cells[j] = count
				}
				count++
			}
		}
	}
	return cells, max(count, 1)
}

// lloyd divides keys among the nearest of count centres, which begin at keys evenly apart and
// move to the means of their keys twice.
func lloyd(k [][]float64, keys []int, count int) [][]int {
	centres := make([][]float64, count)
	for c := range centres {
		centres[c] = k[keys[c*len(keys)/count]]
	}
	for step := 0; ; step++ {
		groups := make([][]int, count)
		for _, j := range keys {
			c := nearestRow(centres, k[j])
			groups[c] = append(groups[c], j)
		}
		if step == 2 {
			return groups
		}
		for c, members := range groups {
			if len(members) > 0 {
				centres[c] = meanOf(k, members)
			}
		}
	}
}

// meanOf returns the mean of some rows.
func meanOf(rows [][]float64, list []int) []float64 {
	mean := make([]float64, len(rows[0]))
	for _, j := range list {
		for e, x := range rows[j] {
			mean[e] += x / float64(len(list))
		}
	}
	return mean
}

// chooseClusters returns the clusters that are near to query i. The estimated error of a
// cluster is its weight n·exp(s q·c̄), as a share of the weights of all keys, times
// ½ s² Σ_a q_a² σ²_a, σ² the variances of its keys. Far are the clusters whose errors, over the
// number of their keys, are below the largest power of 2, up to 1, with Σ errors ≤ Tol over them.
func (m *Multipole) chooseClusters(h *Head, i int, cells []int, means [][]float64, counts []float64, near func(int) bool, scale float64) []bool {
	top := math.Inf(-1)
	for j, k := range h.K {
		if h.Sees(i, j) && near(j) {
			top = max(top, scale*dotProduct(h.Q[i], k))
		}
	}
	for c, mean := range means {
		if counts[c] > 0 {
			top = max(top, scale*dotProduct(h.Q[i], mean))
		}
	}
	total, errors := 0.0, make([]float64, len(means))
	for j, k := range h.K {
		if h.Sees(i, j) && near(j) {
			total += math.Exp(scale*dotProduct(h.Q[i], k) - top)
		}
	}
	for c, mean := range means {
		if counts[c] == 0 {
			continue
		}
		weight := counts[c] * math.Exp(scale*dotProduct(h.Q[i], mean)-top)
		total += weight
		for a, variance := range m.variances(h, cells, c) {
			errors[c] += weight / 2 * scale * scale * h.Q[i][a] * h.Q[i][a] * variance
		}
	}
	chosen := make([]bool, len(means))
	for exponent := 0; ; exponent-- {
		sum := 0.0
		for c := range errors {
			chosen[c] = errors[c]/total >= counts[c]*math.Ldexp(1, exponent) && counts[c] > 0
			if !chosen[c] {
				sum += errors[c] / total
			}
		}
		if sum <= m.Tol {
			return chosen
		}
		if exponent < -63 {
			for c := range errors {
				chosen[c] = errors[c] > 0
			}
			return chosen
		}
	}
}

// variances returns the variance of each channel over the keys of cluster c.
func (m *Multipole) variances(h *Head, cells []int, c int) []float64 {
	var members []int
	for j := range h.K {
		if h.Exist[j] && cells[j] == c && j >= m.Sinks && (h.Causal || j < len(h.K)-m.Ends) {
			members = append(members, j)
		}
	}
	variances, mean := make([]float64, len(h.K[0])), meanOf(h.K, members)
	for _, j := range members {
		for a, x := range h.K[j] {
			variances[a] += (x - mean[a]) * (x - mean[a]) / float64(len(members))
		}
	}
	return variances
}
