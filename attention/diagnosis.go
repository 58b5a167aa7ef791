package attention

import "math"

// Diagnosis describes the weights of one query head of one batch row. A row is the weights of
// one query. Queries that see no key are counted and otherwise ignored.
//
// Weights w_j are computed in the direct form, summed in float64, and taken before the division
// by the denominator.
type Diagnosis struct {
	Rows        int64 // queries that see a key
	UnseenCount int64 // queries that see none
	WeakCount   int64 // rows with a doubtful denominator, as in Saved.WeakCount

	// Entropy is the mean over rows of -Σ p_j ln p_j with p_j = |w_j| / Σ|w|, in nats: a row
	// spreads over about e^Entropy keys. If weights are negative, p_j measures how much key j
	// moves the output.
	Entropy      float64
	MinEntropy   float64 // of the most concentrated row
	MinEntropyAt int     // its query

	// Condition is the mean over rows of Σ|w| / |Σw + eps|, the factor by which an output can
	// exceed the largest value and by which a relative error of the weights can grow. It is 1
	// if no weight is negative and eps is 0, and +Inf if a denominator is 0.
	Condition      float64
	MaxCondition   float64
	MaxConditionAt int // query

	// MinDen is the denominator with the smallest absolute value; for the exponential, the
	// smallest logarithm of a denominator, as in Saved.Den.
	MinDen   float64
	MinDenAt int // query

	// ExactShare is Saved.ExactShare for this head alone.
	ExactShare float64
}

// Merge adds the rows of x to d. The queries of x are renumbered to begin at query at.
// logarithms reports whether MinDen holds a logarithm in both.
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

// RowDiagnosis accumulates the statistics of one row, weight by weight. Weights of the
// exponential are kept divided by e^top, where top is the largest score so far.
type RowDiagnosis struct {
	SeenKeys    int64
	DecayedKeys float64 // sum of the decay factors of the keys seen
	Sum, Size   float64 // Σw, Σ|w|
	log         float64 // Σ|w|·ln|w|
	top         float64
}

// AddWeight adds the weight w of a key whose decay factor is left.
func (r *RowDiagnosis) AddWeight(w, left float64) {
	r.SeenKeys++
	r.DecayedKeys += left
	r.Sum += w
	if w = math.Abs(w); w > 0 {
		r.Size += w
		r.log += w * math.Log(w)
	}
}

// AddExponential adds a key with the score s, whose weight is e^s.
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

// Entropy returns -Σ p ln p with p = |w|/Σ|w|, computed as ln Σ|w| - Σ|w|ln|w| / Σ|w|.
func (r *RowDiagnosis) Entropy() float64 {
	if r.Size == 0 {
		return 0
	}
	return max(0, math.Log(r.Size)-r.log/r.Size)
}

// LogSum returns ln Σw for weights that were added with AddExponential.
func (r *RowDiagnosis) LogSum() float64 { return math.Log(r.Size) + r.top }
