package oracle

import (
	"math"
	"slices"
)

// Reformer is LSH attention (Kitaev et al. 2020, arXiv 2001.04451). Keys are the first queries,
// divided by their lengths. In each round tokens are sorted by the bucket of their angle and
// divided into chunks of Bucket keys. A query sees the keys of its own chunk and of the chunk
// before it, over all rounds. In a causal call keys are the queries at their positions, and
// causalWeights divides them into chunks.
type Reformer struct {
	Bucket, Rounds, Buckets int
	Rotations               []float64 // [Rounds][Buckets/2][D]
	SeparateRounds          bool      // outputs are the mean of the rounds, each a softmax of its own, with all buckets
	Counted                 bool      // a key counts as often as it is found in the chunks
	Self                    bool      // a token also sees itself
	MaskedKeysSort          bool      // masked keys take up room in chunks
	Scale                   float64   // 0: 1/√D
}

// overLength returns x divided by its length, or zeros if x is zero.
func overLength(x []float64) []float64 {
	y := make([]float64, len(x))
	if length := euclideanNorm(x); length > 0 {
		for c := range x {
			y[c] = x[c] / length
		}
	}
	return y
}

// bucket returns the bucket of q in round t: the axis, or negative axis, with the largest
// product with q. Of equal products it takes the first.
func (r *Reformer) bucket(t, buckets int, q []float64) (bucket int) {
	top := math.Inf(-1)
	for b := range buckets {
		axis, sign := b, 1.0
		if b >= buckets/2 {
			axis, sign = b-buckets/2, -1
		}
		if x := sign * dotProduct(q, r.Rotations[(t*r.Buckets/2+axis)*len(q):][:len(q)]); x > top {
			top, bucket = x, b
		}
	}
	return bucket
}

// causalWeights is Weights for a causal call, in which each bucket is divided into chunks
// separately: a token with c unmasked keys of its bucket before it is in chunk ⌊c/Bucket⌋. It
// sees the keys of this chunk and of the chunk before, up to its own position.
func (r *Reformer) causalWeights(h *Head) [][]float64 {
	m := len(h.K)
	keys := make([][]float64, m)
	for j := range m { // the query at the position of key j
		keys[j] = overLength(h.Q[j-h.Offset])
	}
	bucket, chunk := make([][]int, r.Rounds), make([][]int, r.Rounds) // of each query
	for t := range r.Rounds {
		before := map[int]int{} // unmasked keys of each bucket
		for i, q := range h.Q {
			b := r.bucket(t, r.Buckets, q)
			bucket[t], chunk[t] = append(bucket[t], b), append(chunk[t], before[b]/r.Bucket)
			if j := i + h.Offset; j >= 0 && j < m && h.Exist[j] {
				before[b]++
			}
		}
	}
	return r.combine(h, keys, r.Rounds, h.Offset, func(t, i, j int) float64 {
		at := j - h.Offset
		if h.Sees(i, j) && (at != i || r.Self) && bucket[t][at] == bucket[t][i] && chunk[t][at] >= chunk[t][i]-1 {
			return 1
		}
		return 0
	})
}

// Weights returns the attention matrix of a head. It is a HeadMatrix.
func (r *Reformer) Weights(h *Head) [][]float64 {
	if h.Causal {
		return r.causalWeights(h)
	}
	n, m := len(h.Q), len(h.K)
	keys := make([][]float64, m)
	holds := make([]bool, n)
	held := 0
	for j := range m {
		keys[j] = overLength(h.Q[j])
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
			order[i], bucket[i] = i, r.bucket(t, buckets, q)
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
	// found returns how often query i finds key j in the chunks that it sees in round t.
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
	return r.combine(h, keys, rounds, 0, found)
}

// combine returns the weights of all queries. found returns how often query i finds key j in
// round t. Query i has the position of key i+offset.
func (r *Reformer) combine(h *Head, keys [][]float64, rounds, offset int, found func(t, i, j int) float64) [][]float64 {
	n, m := len(h.Q), len(h.K)
	scale := r.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(len(h.Q[0])))
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
		own := i + offset
		if sum == 0 && (own < 0 || own >= m || !h.Exist[own]) {
			return nil
		}
		if sum == 0 {
			w[own], sum = 1, 1
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
