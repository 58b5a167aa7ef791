package oracle

import (
	"math"
	"slices"
)

// Scatterbrain is sparse plus low-rank attention (Chen et al. 2021, arXiv 2110.15343): weights
// of near keys are exact, weights of other keys are products of features.
type Scatterbrain struct {
	W       []float64 // [rows][D]; the features of a row use both w and -w
	Scale   float64   // 0: 1/√D
	Window  int       // near keys are -⌊w/2⌋ ≤ j-i < ⌈w/2⌉; 0: the keys of the same block
	Cluster int       // keys of a block
	Alpha   []float64 // [D+2] direction along which tokens are sorted into blocks
}

// Weights returns the attention matrix of a head. It is a HeadMatrix.
func (s *Scatterbrain) Weights(h *Head) [][]float64 {
	d := len(h.Q[0])
	scale := s.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d))
	}
	near := s.nearPairs(h)
	exponents := func(x []float64) (e []float64) {
		for w := 0; w < len(s.W); w += d {
			u := math.Sqrt(scale) * dotProduct(x, s.W[w:w+d])
			off := scale*dotProduct(x, x)/2 + math.Log(float64(2*len(s.W)/d))/2
			e = append(e, u-off, -u-off)
		}
		return e
	}
	ofKeys := make([][]float64, len(h.K))
	for j, k := range h.K {
		ofKeys[j] = exponents(k)
	}
	a := make([][]float64, len(h.Q))
	for i, q := range h.Q {
		a[i] = make([]float64, len(h.K))
		log := make([]float64, len(h.K))
		top, of := math.Inf(-1), exponents(q)
		for j, k := range h.K {
			if !h.Sees(i, j) {
				continue
			}
			log[j] = scale * dotProduct(q, k)
			if !near(i, j) {
				sum := make([]float64, len(of))
				for f, e := range ofKeys[j] {
					sum[f] = e + of[f]
				}
				most, all := slices.Max(sum), 0.0
				for _, e := range sum {
					all += math.Exp(e - most)
				}
				log[j] = most + math.Log(all)
			}
			top = max(top, log[j])
		}
		var den float64
		for j := range log {
			if h.Sees(i, j) {
				a[i][j] = math.Exp(log[j] - top)
				den += a[i][j]
			}
		}
		for j := range a[i] {
			a[i][j] /= den
		}
	}
	return a
}

func (s *Scatterbrain) nearPairs(h *Head) func(i, j int) bool {
	if s.Window > 0 {
		return func(i, j int) bool {
			distance := j - i - h.Offset
			return -(s.Window/2) <= distance && distance < (s.Window+1)/2
		}
	}
	longest := func(rows [][]float64) (most float64) {
		for _, x := range rows {
			most = max(most, dotProduct(x, x))
		}
		return most
	}
	d := len(h.Q[0])
	square := longest(h.Q) + longest(h.K) // masked keys are zeros
	// rank returns the place of each row when sorted.
	rank := func(rows [][]float64, exist []bool, place int) (at []int, n int) {
		var order []int
		along := make([]float64, len(rows))
		for i, x := range rows {
			along[i] = dotProduct(x, s.Alpha[:d]) + math.Sqrt(max(square-dotProduct(x, x), 0))*s.Alpha[d+place]
			if exist == nil || exist[i] {
				order = append(order, i)
			}
		}
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case along[a] < along[b]:
				return -1
			case along[a] > along[b]:
				return 1
			}
			return 0
		})
		at = make([]int, len(rows))
		for r, i := range order {
			at[i] = r
		}
		return at, len(order)
	}
	queries, _ := rank(h.Q, nil, 1)
	keys, m := rank(h.K, h.Exist, 0)
	blocks := (m + s.Cluster - 1) / s.Cluster
	each := (len(h.Q) + blocks - 1) / blocks
	return func(i, j int) bool { return queries[i]/each == keys[j]/s.Cluster }
}
