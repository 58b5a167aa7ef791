package oracle

// unmaskedKeys returns the rows of the unmasked keys.
func (h *Head) unmaskedKeys() (keys [][]float64) {
	for j, k := range h.K {
		if h.Exist[j] {
			keys = append(keys, k)
		}
	}
	return keys
}

// partRange returns the rows i0 ≤ i < i1 of part p of n rows cut into parts of
// neighbours.
func partRange(p, parts, n int) (i0, i1 int) { return p * n / parts, (p + 1) * n / parts }

// partMeans returns the means of l parts of neighbouring rows.
func partMeans(x [][]float64, l int) (list [][]float64) {
	for p := range l {
		i0, i1 := partRange(p, l, len(x))
		mean := make([]float64, len(x[0]))
		for _, row := range x[i0:i1] {
			for e, v := range row {
				mean[e] += v / float64(i1-i0)
			}
		}
		list = append(list, mean)
	}
	return list
}

// productsOf are the products of queries and keys.
func productsOf(scale float64, q, k [][]float64) [][]float64 {
	s := make([][]float64, len(q))
	for i := range q {
		for j := range k {
			s[i] = append(s[i], scale*dotProduct(q[i], k[j]))
		}
	}
	return s
}

// softmaxOf is Softmax of scores that all take part.
func softmaxOf(s [][]float64) [][]float64 {
	all := make([]bool, len(s[0]))
	for j := range all {
		all[j] = true
	}
	return (&Head{Exist: all}).Softmax(s)
}
