package oracle

import (
	"math"
	"slices"
)

// InputMultipole is softmax with its keys in clusters. A cluster is near to a query, and its
// keys are weighed exactly, if the weights within it deviate much from their approximation;
// otherwise it is far.
type InputMultipole struct {
	Sinks, Ends int     // first keys, and last keys of a call that is not causal, near to all queries
	Tol         float64 // of a query: the root of the sum of the squares of the deviations of far weights, as a share of Z
	Size        int     // keys of a cluster on average; 0: √(n/8) of n keys that are clustered together, at least 16
	Span        int     // keys of a causal call that are clustered at once
	Least       int     // unmasked keys up to which all keys are near in a call that is not causal
	Scale       float64 // s; 0: 1/√D
}

// keyCluster is a cluster of keys.
type keyCluster struct {
	keys            []int
	distances       [][]float64 // k-c̄ of each key
	mean, variances []float64
	spread          float64 // Σ|k-c̄|²
}

// Weights returns the attention matrix of a head. It is a HeadMatrix. A near key has the weight
// exp(s q·k). A far cluster of n keys with mean c̄ and variances σ² has the weight n·w, where w
// = exp(s q·c̄)·(1 + h) and h = ½ s² Σ_a q_a² σ²_a.
//
// All far clusters of a group together get one term of first order: every key k of the group
// gets Σ w·t times s q·(k-c̄), where the sum is over the far clusters, and t is a cluster's
// share of the group's Σ|k-c̄|². The term is left out if its deviation over the keys of the
// group exceeds Tol·Z, because these keys differ too much.
//
// In a causal call all clusters that a query sees are one group.
//
// A cluster is near in two cases. The first is that the deviation of its weights, exp(s
// q·c̄)·√(2h), exceeds Tol·Z/√N, where N is the number of keys in all clusters that the query
// sees and Z is the denominator without near clusters. The second is that one of its keys can
// weigh more than 2·Tol·Z, which is bounded by exp(s q·c̄)·exp(√(4h(min(n,16)-1))).
func (m *InputMultipole) Weights(h *Head) [][]float64 {
	scale := m.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(len(h.K[0])))
	}
	known := map[[2]int][][]keyCluster{}
	a := make([][]float64, len(h.Q))
	for i, q := range h.Q {
		var groups [][]keyCluster
		far := map[int]bool{}
		for _, b := range m.blocks(h, i) {
			if known[b] == nil {
				known[b] = m.groups(h, b[0], b[1])
			}
			groups = append(groups, known[b]...)
		}
		for _, group := range groups {
			for _, c := range group {
				for _, j := range c.keys {
					far[j] = true
				}
			}
		}
		if h.Causal && len(groups) > 0 {
			groups = [][]keyCluster{slices.Concat(groups...)}
		}
		top := math.Inf(-1)
		for j, k := range h.K {
			if h.Sees(i, j) {
				top = max(top, scale*dotProduct(q, k))
			}
		}
		a[i] = make([]float64, len(h.K))
		exact := func(j int) { a[i][j] += math.Exp(scale*dotProduct(q, h.K[j]) - top) }
		total := 0.0
		for j := range h.K {
			if h.Sees(i, j) && !far[j] {
				exact(j)
				total += a[i][j]
			}
		}
		// exp(s q·c̄) and h of a cluster.
		terms := func(c *keyCluster) (weight, second float64) {
			for e, x := range c.variances {
				second += scale * scale * q[e] * q[e] * x / 2
			}
			return math.Exp(scale*dotProduct(q, c.mean) - top), second
		}
		for _, group := range groups {
			for _, c := range group {
				weight, second := terms(&c)
				total += float64(len(c.keys)) * weight * (1 + second)
			}
		}
		for _, group := range groups {
			spread, dipole, deviations := 0.0, 0.0, 0.0
			for _, c := range group {
				spread += c.spread
			}
			for _, c := range group {
				weight, second := terms(&c)
				gap := math.Log(2 * m.Tol * total / weight) // of the score of a key that weighs 2·Tol·Z to the mean's
				near := weight*math.Sqrt(2*second*float64(len(far))) > m.Tol*total || 4*second*float64(min(len(c.keys), 16)-1) > gap*gap ||
					m.Tol == 0 && second > 0 && len(c.keys) > 1
				deviations += 2 * second * float64(len(c.keys))
				if !near && spread > 0 {
					dipole += weight * (1 + second) * c.spread / spread
				}
				for _, j := range c.keys {
					if near {
						exact(j)
					} else {
						a[i][j] += weight * (1 + second)
					}
				}
			}
			if dipole*dipole*deviations > m.Tol*m.Tol*total*total {
				dipole = 0
			}
			for _, c := range group {
				for r, j := range c.keys {
					a[i][j] += dipole * scale * dotProduct(q, c.distances[r])
				}
			}
		}
		sum := 0.0
		for _, w := range a[i] {
			sum += w
		}
		for j := range a[i] {
			a[i][j] /= sum
		}
	}
	return a
}

// blocks returns the ranges of keys that are clustered together and that query i sees as clusters. In a
// causal call they are the spans before the span of the query: the last of them, and before it the
// largest 16·4^l spans, or single spans, that begin at multiples of their length, in order.
func (m *InputMultipole) blocks(h *Head, i int) (list [][2]int) {
	if !h.Causal {
		unmasked := 0
		for _, exists := range h.Exist {
			if exists {
				unmasked++
			}
		}
		if unmasked <= m.Least {
			return nil
		}
		return [][2]int{{m.Sinks, h.end() - m.Ends}}
	}
	open := int(math.Floor(float64(i+h.Shift) / float64(m.Span)))
	for at := 0; at < open; {
		length := 1
		for next := 16; at%next == 0 && at+next < open; next *= 4 {
			length = next
		}
		list = append(list, [2]int{max(at*m.Span, m.Sinks), min((at+length)*m.Span, len(h.K))})
		at += length
	}
	return list
}

// groups returns the clusters of the keys begin ≤ j < end that are not masked, by groups: k-means
// into groups, and within each.
func (m *InputMultipole) groups(h *Head, begin, end int) (list [][]keyCluster) {
	var keys []int
	for j := begin; j < end; j++ {
		if h.Exist[j] {
			keys = append(keys, j)
		}
	}
	if len(keys) == 0 {
		return [][]keyCluster{}
	}
	size := m.Size
	if size == 0 {
		size = max(int(math.Sqrt(float64(len(keys))/8)), 16)
	}
	total := math.Ceil(float64(len(keys)) / float64(size))
	for _, group := range lloyd(h.K, keys, min(int(math.Round(math.Sqrt(total))), max(len(keys)/512, 1), 16)) {
		if len(group) == 0 {
			continue
		}
		share := math.Floor(total*float64(len(group))/float64(len(keys)) + 0.5)
		var clusters []keyCluster
		for _, members := range lloyd(h.K, group, int(max(share, 1))) {
			if len(members) > 0 {
				clusters = append(clusters, newKeyCluster(h.K, members))
			}
		}
		list = append(list, clusters)
	}
	return list
}

// newKeyCluster returns the cluster of keys. Distances are those from the first key less their mean,
// so that they add up to 0 whatever the size of the keys.
func newKeyCluster(k [][]float64, keys []int) keyCluster {
	d, n := len(k[0]), float64(len(keys))
	c := keyCluster{keys: keys, mean: make([]float64, d), variances: make([]float64, d)}
	for _, j := range keys {
		row := make([]float64, d)
		for a, x := range k[keys[0]] {
			row[a] = k[j][a] - x
			c.mean[a] += row[a] / n
		}
		c.distances = append(c.distances, row)
	}
	for _, row := range c.distances {
		for a := range row {
			row[a] -= c.mean[a]
			c.variances[a] += row[a] * row[a] / n
			c.spread += row[a] * row[a]
		}
	}
	for a, x := range k[keys[0]] {
		c.mean[a] += x
	}
	return c
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
