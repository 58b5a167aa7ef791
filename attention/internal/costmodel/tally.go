package costmodel

// Tally is the work of a key head with its query heads in both forms. A multiply-add
// counts two operations, and columns of values count whole vectors.
type Tally struct {
	Tokens  float64 // queries and keys
	Pairs   float64 // operations of the direct form on pairs
	Open    float64 // operations of the linear form on pairs within chunks; causal
	Moments float64 // operations of the linear form on tokens and moments
	Causal  bool
}

// DirectCost returns the cost of the direct form.
func (t *Tally) DirectCost(s Speed) float64 { return t.Tokens*s.Token + t.Pairs/s.Direct }

// LinearCost returns the cost of the linear form. A single chunk is the same work in
// both forms.
func (t *Tally) LinearCost(s Speed) float64 {
	if t.Causal && t.Moments == 0 {
		return t.DirectCost(s)
	}
	cost := t.Moments / s.Linear
	if t.Causal {
		cost += s.Open * (t.Tokens*s.Token + t.Open/s.Direct)
	}
	return cost
}

// CausalPairs returns the number of pairs of n queries and m keys where query i sees
// keys j ≤ i.
func CausalPairs(n, m int) float64 {
	k := float64(min(max(n, 0), m))
	return k*(k+1)/2 + float64(max(n-m, 0))*float64(m)
}

// ChunkPairs returns the causal pairs of n queries and n keys within chunks of the
// given length.
func ChunkPairs(n, chunk int) float64 {
	n = max(n, 0)
	return float64(n/chunk)*CausalPairs(chunk, chunk) + CausalPairs(n%chunk, chunk)
}
