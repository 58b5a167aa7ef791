package oracle

import (
	"math"
	"slices"
)

// NewClustered returns clustered attention (Vyas et al. 2020, arXiv 2007.04825), in which a
// query takes the attention weights of the mean query of its cluster. K-means over hashes makes
// the clusters: each row of planes [bits,D+1] gives one bit, and the queries at ⌊n·start⌋ are
// the initial means. With top > 0 it is improved clustered attention: each query redistributes
// the weight of its cluster's top keys by its own softmax over these keys.
func NewClustered(planes, start []float64, iterations, top int, scale float64) HeadMatrix {
	return func(h *Head) [][]float64 {
		n, d := len(h.Q), len(h.Q[0])
		if scale == 0 {
			scale = 1 / math.Sqrt(float64(d))
		}
		groups := hammingGroups(h.Q, planes, start, iterations)
		a := make([][]float64, n)
		own := h.Softmax(productsOf(scale, h.Q, h.K))
		for c := range start {
			mean, members := make([]float64, d), []int{}
			for i, g := range groups {
				if g == c {
					members = append(members, i)
				}
			}
			for _, i := range members {
				for e := range mean {
					mean[e] += h.Q[i][e] / float64(len(members))
				}
			}
			shared := h.Softmax(productsOf(scale, [][]float64{mean}, h.K))[0]
			var onTop []int
			for j := range shared {
				if h.Exist[j] {
					onTop = append(onTop, j)
				}
			}
			slices.SortStableFunc(onTop, func(i, j int) int {
				switch {
				case shared[i] > shared[j]:
					return -1
				case shared[i] < shared[j]:
					return 1
				}
				return 0
			})
			onTop = onTop[:min(top, len(onTop))]
			var mass float64
			for _, j := range onTop {
				mass += shared[j]
			}
			for _, i := range members {
				a[i] = slices.Clone(shared)
				var sum float64
				for _, j := range onTop {
					sum += own[i][j]
				}
				for _, j := range onTop {
					a[i][j] = mass * own[i][j] / sum
				}
			}
		}
		return a
	}
}

// hammingGroups returns the cluster of each query.
func hammingGroups(q [][]float64, planes, start []float64, iterations int) []int {
	d := len(q[0])
	hashes := make([][]bool, len(q))
	for i := range q {
		for b := 0; b < len(planes); b += d + 1 {
			hashes[i] = append(hashes[i], dotProduct(q[i], planes[b:b+d]) > planes[b+d])
		}
	}
	means := make([][]bool, len(start))
	for c, at := range start {
		means[c] = slices.Clone(hashes[int(at*float64(len(q)))])
	}
	groups := make([]int, len(q))
	for t := range iterations {
		for i, x := range hashes {
			least := math.Inf(1)
			for c, m := range means {
				var distance float64
				for b := range m {
					if m[b] != x[b] {
						distance++
					}
				}
				if distance < least {
					groups[i], least = c, distance
				}
			}
		}
		if t == iterations-1 {
			break
		}
		for c, m := range means {
			for b := range m {
				members, ones := 0, 0
				for i, g := range groups {
					if g == c {
						members++
						if hashes[i][b] {
							ones++
						}
					}
				}
				if members > 0 {
					m[b] = 2*ones > members
				}
			}
		}
	}
	return groups
}
