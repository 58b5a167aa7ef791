// Package rowstats accumulates the statistics of a row of weights, for attention.Diagnosis.
package rowstats

import "math"

// Row accumulates the statistics of one row, weight by weight. Weights of the
// exponential are kept divided by e^top, where top is the largest score so far.
type Row struct {
	SeenKeys    int64
	DecayedKeys float64 // sum of the decay factors of the keys seen
	Sum, Size   float64 // Σw, Σ|w|
	log         float64 // Σ|w|·ln|w|
	top         float64
}

// AddWeight adds the weight w of a key whose decay factor is left.
func (r *Row) AddWeight(w, left float64) {
	r.SeenKeys++
	r.DecayedKeys += left
	r.Sum += w
	if w = math.Abs(w); w > 0 {
		r.Size += w
		r.log += w * math.Log(w)
	}
}

// AddExponential adds a key with the score s, whose weight is e^s.
func (r *Row) AddExponential(s float64) {
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
func (r *Row) Entropy() float64 {
	if r.Size == 0 {
		return 0
	}
	return max(0, math.Log(r.Size)-r.log/r.Size)
}

// LogSum returns ln Σw for weights that were added with AddExponential.
func (r *Row) LogSum() float64 { return math.Log(r.Size) + r.top }
