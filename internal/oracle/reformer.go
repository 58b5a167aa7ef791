package oracle

import (
	"math"
	"slices"
)

// Reformer is LSH attention (Kitaev et al. 2020, arXiv 2001.04451). Keys are the
// first queries over their lengths. In each round tokens are sorted by the bucket
// of their angle; a query sees the Bucket keys of its own chunk and of the chunk before
// it, across rounds.
type Reformer struct {
	Bucket, Rounds, Buckets int
	Rotations               []float64 // [Rounds][Buckets/2][D]
	SeparateRounds          bool      // the mean of the rounds, which do not see each other's chunks; all buckets are used
	Counted                 bool      // a key counts as often as it is found
	Self                    bool      // a token sees itself, too
	MaskedKeysSort          bool      // masked keys take a place in chunks
	Scale                   float64   // 0: 1/√D
}

// Weights is the Whole of r.
func (r *Reformer) Weights(h *Head) [][]float64 {
	n, m, d := len(h.Q), len(h.K), len(h.Q[0])
	scale := r.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d))
	}
	keys := make([][]float64, m)
	holds := make([]bool, n)
	held := 0
	for j := range m {
		keys[j] = make([]float64, d)
		if length := euclideanNorm(h.Q[j]); length > 0 {
			for c, x := range h.Q[j] {
				keys[j][c] = x / length
			}
		}
		if holds[j] = r.MaskedKeysSort || h.Exist[j]; holds[j] {
			held++
		}
	}
	chunks := (held + r.Bucket - 1) / r.Bucket
	buckets, rounds := r.Buckets, r.Rounds
	if !r.SeparateRounds {
		buckets = min(buckets, max(2, chunks+chunks%2))
	}
	if chunks == 1 {
		rounds = 1
	}

	// Tokens ask in a chunk of each round; keys lie in one.
	chunk := make([][]int, rounds)
	for t := range rounds {
		order, bucket := make([]int, n), make([]int, n)
		for i, q := range h.Q {
			order[i] = i
			top := math.Inf(-1)
			for b := range buckets {
				axis, sign := b, 1.0
				if b >= buckets/2 {
					axis, sign = b-buckets/2, -1
				}
				if x := sign * dotProduct(q, r.Rotations[(t*r.Buckets/2+axis)*d:][:d]); x > top {
					top, bucket[i] = x, b
				}
			}
		}
		slices.SortStableFunc(order, func(i, j int) int { return bucket[i] - bucket[j] })
		chunk[t] = make([]int, n)
		before := 0
		for _, i := range order {
			chunk[t][i] = min(before/r.Bucket, chunks-1)
			if holds[i] {
				before++
			}
		}
	}
	// found counts how often query i finds key j in the chunks that it sees in
	// round t.
	found := func(t, i, j int) (times float64) {
		own := chunk[t][i]
		if !holds[j] || !h.Exist[j] || i == j && !r.Self {
			return 0
		}
		if chunk[t][j] == own || own > 0 && chunk[t][j] == own-1 {
			times++
		}
		if own == 0 && chunks > 1 && !r.SeparateRounds && chunk[(t+rounds-1)%rounds][j] == chunks-1 {
			times++
		}
		return times
	}
	softmax := func(i int, times func(j int) float64) []float64 {
		w := make([]float64, m)
		top, sum := math.Inf(-1), 0.0
		for j := range m {
			if times(j) > 0 {
				top = max(top, scale*dotProduct(h.Q[i], keys[j]))
			}
		}
		for j := range m {
			if c := times(j); c > 0 {
				w[j] = c * math.Exp(scale*dotProduct(h.Q[i], keys[j])-top)
				sum += w[j]
			}
		}
		if sum == 0 && (i >= m || !h.Exist[i]) {
			return nil
		}
		if sum == 0 {
			w[i], sum = 1, 1
		}
		for j := range w {
			w[j] /= sum
		}
		return w
	}
	a := make([][]float64, n)
	for i := range a {
		if !r.SeparateRounds {
			a[i] = softmax(i, func(j int) float64 {
				var times float64
				for t := range rounds {
					times += found(t, i, j)
				}
				if !r.Counted {
					times = min(times, 1)
				}
				return times
			})
			continue
		}
		var rows [][]float64
		for t := range rounds {
			if w := softmax(i, func(j int) float64 { return found(t, i, j) }); w != nil {
				rows = append(rows, w)
			}
		}
		for _, w := range rows {
			if a[i] == nil {
				a[i] = make([]float64, m)
			}
			for j := range w {
				a[i][j] += w[j] / float64(len(rows))
			}
		}
	}
	return a
}
