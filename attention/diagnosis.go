package attention

import "math"

// Diagnosis describes the weights of one query head of one batch row. Rows are queries.
// Queries that see no key are counted and otherwise ignored.
//
// The weights w_j of a row are taken before any division. They are computed in the
// direct form and summed in float64.
type Diagnosis struct {
	Rows        int64 // queries that see a key
	UnseenCount int64 // queries that see none
	WeakCount   int64 // rows with a doubtful denominator, as in Saved.WeakCount

	// Entropy is the mean over rows of -Σ p_j ln p_j with p_j = |w_j| / Σ|w|, in
	// nats: e to this power is the number of keys that a row spreads over. Where
	// weights are negative, p is how much each of them moves the output.
	Entropy      float64
	MinEntropy   float64 // of the row that is most concentrated
	MinEntropyAt int     // query

	// Condition is the mean over rows of Σ|w| / |Σw + eps|, 1 where no weight is
	// negative and no eps is added: how much larger the output may be than any
	// value, and by how much a relative error of weights grows. It is +Inf where
	// a denominator is 0.
	Condition      float64
	MaxCondition   float64
	MaxConditionAt int // query

	// MinDen is the denominator of least absolute value, of the exponential the
	// least logarithm of one, as in Saved.Den.
	MinDen   float64
	MinDenAt int // query

	// ExactShare is Saved.ExactShare of the head.
	ExactShare float64
}

// Merge joins to d the rows of x, which come after its own: their queries are
// counted from query at on. Denominators are logarithms or not.
func (d *Diagnosis) Merge(x *Diagnosis, at int, logarithms bool) {
	if x.Rows > 0 {
		if d.Rows == 0 || x.MinEntropy < d.MinEntropy {
			d.MinEntropy, d.MinEntropyAt = x.MinEntropy, at+x.MinEntropyAt
		}
		if d.Rows == 0 || x.MaxCondition > d.MaxCondition {
			d.MaxCondition, d.MaxConditionAt = x.MaxCondition, at+x.MaxConditionAt
		}
		smaller := math.Abs(x.MinDen) < math.Abs(d.MinDen)
		if logarithms {
			smaller = x.MinDen < d.MinDen
		}
		if d.Rows == 0 || smaller {
			d.MinDen, d.MinDenAt = x.MinDen, at+x.MinDenAt
		}
	}
	if rows := d.Rows + x.Rows; rows > 0 {
		d.ExactShare = (d.ExactShare*float64(d.Rows) + x.ExactShare*float64(x.Rows)) / float64(rows)
	}
	d.Rows += x.Rows
	d.UnseenCount += x.UnseenCount
	d.WeakCount += x.WeakCount
	d.Entropy += x.Entropy
	d.Condition += x.Condition
}

// RowDiagnosis accumulates statistics of a row's weights, one after another. Weights of the
// exponential are divided by e^top, the largest so far.
type RowDiagnosis struct {
	SeenKeys    int64
	DecayedKeys float64 // of the keys seen, after their decay
	Sum, Size   float64 // Σw, Σ|w|
	log         float64 // Σ|w|·ln|w|
	top         float64
}

// AddWeight counts the weight w of a key whose decay factor is left.
func (r *RowDiagnosis) AddWeight(w, left float64) {
	r.SeenKeys++
	r.DecayedKeys += left
	r.Sum += w
	if w = math.Abs(w); w > 0 {
		r.Size += w
		r.log += w * math.Log(w)
	}
}

// AddExponential counts the weight e^s of a key.
func (r *RowDiagnosis) AddExponential(s float64) {
	if r.SeenKeys == 0 {
		r.top = math.Inf(-1)
	}
	r.SeenKeys++
	if s > r.top {
		// e^(x-top) becomes e^(x-s), and so do the factors of its logarithm.
		if fade := math.Exp(r.top - s); r.Size > 0 {
			r.log = fade * (r.log + (r.top-s)*r.Size)
			r.Size *= fade
		}
		r.top = s
	}
	if w := math.Exp(s - r.top); w > 0 {
		r.Size += w
		r.log += w * (s - r.top)
	}
}

// Entropy is -Σ p ln p with p = |w|/Σ|w|: ln Σ|w| - Σ|w|ln|w| / Σ|w|.
func (r *RowDiagnosis) Entropy() float64 {
	if r.Size == 0 {
		return 0
	}
	return max(0, math.Log(r.Size)-r.log/r.Size)
}

// LogSum returns ln Σw of weights of the exponential.
func (r *RowDiagnosis) LogSum() float64 { return math.Log(r.Size) + r.top }
