package inference

import (
	"math"

	"github.com/farfield-ml/farfield/tensor"
)

// Locality describes where the weights of one query head lie. Each figure is a mean over the
// queries that see a key, of p_j = |w_j| / Σ|w| as in attention.Diagnosis. Query i has the position i +
// (M-N) among the M keys.
type Locality struct {
	Queries  int     `json:"queries"`   // number of queries that see a key
	Entropy  float64 `json:"entropy"`   // -Σ p_j ln p_j, in nats
	Distance float64 `json:"distance"`  // Σ p_j |j - position|, in tokens
	Diagonal float64 `json:"diagonal"`  // p of the key at the query's position
	Column   float64 `json:"column"`    // mean p of the key that gets the most weight over all queries
	ColumnAt int     `json:"column_at"` // index of that key
}

// Locate returns the locality of rows of the attention matrix a [rows,M], as returned by
// Weights of attention.Mechanism. place is the position of the first row's query.
func Locate(a tensor.Mat, place int) Locality {
	var l Locality
	columns := make([]float64, a.Cols)
	for r := range a.Rows {
		row := a.Row(r)
		var sum float64
		for _, w := range row {
			sum += math.Abs(float64(w))
		}
		if sum == 0 {
			continue
		}
		l.Queries++
		for j, w := range row {
			p := math.Abs(float64(w)) / sum
			if p == 0 {
				continue
			}
			columns[j] += p
			l.Entropy -= p * math.Log(p)
			l.Distance += p * math.Abs(float64(j-place-r))
			if j == place+r {
				l.Diagonal += p
			}
		}
	}
	if l.Queries == 0 {
		return l
	}
	for j, p := range columns {
		if p > columns[l.ColumnAt] {
			l.ColumnAt = j
		}
	}
	n := float64(l.Queries)
	l.Entropy, l.Distance, l.Diagonal, l.Column = l.Entropy/n, l.Distance/n, l.Diagonal/n, columns[l.ColumnAt]/n
	return l
}
