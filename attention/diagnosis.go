package attention

import "math"

// Diagnosis describes the weights of one query head of one batch row. A row is the weights of
// one query. Queries that see no key are counted and otherwise ignored.
//
// Weights w_j are computed in the direct form and summed in float64. They are taken before the
// division by the denominator, and of mechanisms of package headwise, such as multipole, after it.
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

	// KeyDistance is the root mean square distance of keys from the centres of their cells, with a
	// codebook (multipole); otherwise 0. An exchange tells the same of its held-out texts.
	KeyDistance float64
	// WildShare is the mean over rows of the share of Σ|w| on wild weights, and MaxWildShare the
	// largest. Multipole weighs a far key by exp(s q·c̄)·T_p(x), x = s q·(k-c̄), in place of exp(s q·k);
	// with tilt x = s (q-r)·(k-c̄). The weight is wild if x < -p: it is negative with p = 1, and larger
	// than that of a key at c̄ with p = 2. WildShare is 0 for p = 0 and other mechanisms.
	WildShare      float64
	MaxWildShare   float64
	MaxWildShareAt int // query
}

// Merge adds the rows of x to d. Means over rows are sums until all are merged: in d, in x and in the
// result. The queries of x are renumbered to begin at query at.
// logarithms reports whether MinDen holds a logarithm in both.
func (d *Diagnosis) Merge(x *Diagnosis, at int, logarithms bool) {
	if x.Rows > 0 {
		if d.Rows == 0 || x.MinEntropy < d.MinEntropy {
			d.MinEntropy, d.MinEntropyAt = x.MinEntropy, at+x.MinEntropyAt
		}
		if d.Rows == 0 || x.MaxCondition > d.MaxCondition {
			d.MaxCondition, d.MaxConditionAt = x.MaxCondition, at+x.MaxConditionAt
		}
		if d.Rows == 0 || x.MaxWildShare > d.MaxWildShare {
			d.MaxWildShare, d.MaxWildShareAt = x.MaxWildShare, at+x.MaxWildShareAt
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
		d.KeyDistance = math.Hypot(d.KeyDistance*math.Sqrt(float64(d.Rows)/float64(rows)), x.KeyDistance*math.Sqrt(float64(x.Rows)/float64(rows)))
	}
	d.Rows += x.Rows
	d.UnseenCount += x.UnseenCount
	d.WeakCount += x.WeakCount
	d.Entropy += x.Entropy
	d.Condition += x.Condition
	d.WildShare += x.WildShare
}
