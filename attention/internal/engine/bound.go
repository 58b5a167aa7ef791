package engine

import (
	"math"
	"unsafe"

	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/tensor"
)

// AccumulatedRounding is γ_n = n·u/(1-n·u): n roundings one after another change a
// number by no more than this part of it (Higham 2002, Accuracy and Stability of
// Numerical Algorithms, lemma 3.1). Beyond n·u = 1 nothing is promised.
func AccumulatedRounding(n, u float64) float64 {
	if n*u >= 1 {
		return math.Inf(1)
	}
	return n * u / (1 - n*u)
}

// Rounding is u, the largest relative error of one rounding to T.
func Rounding[T tensor.Float]() float64 {
	var z T
	if unsafe.Sizeof(z) == 8 {
		return math.Ldexp(1, -53)
	}
	return math.Ldexp(1, -24)
}

// Bound is Plan.Bound of a form, derived in docs/numerics.md.
func (e *Engine[T]) Bound(s contract.Shape, form contract.Form, chunk, features int) float64 {
	u := Rounding[T]()
	d, m := float64(e.Spec.Width(s.D)), float64(s.M)
	if e.Spec.WindowWidth > 0 {
		m = min(m, float64(e.Spec.WindowWidth))
	}
	rows, known := e.rowError(s.D, u)
	if !known || e.Spec.Unnormalized || e.Spec.OutputNorm || e.Spec.Similarity != nil {
		return 0
	}
	if e.Spec.Exp {
		return 4. / 3 * (AccumulatedRounding(d+m+32, u) + 2*rows)
	}
	p := float64(e.Spec.Degree())
	sum := m
	if form != contract.Direct {
		c := max(min(float64(chunk), m), 1)
		sum = float64(features) + c + carried(math.Ceil(m/c), s.Carry, u)
		if e.Spec.FeatureWidth(s.D, false) < e.Spec.Width(s.D) {
			// Reflected rows: an addition a channel, of the last one times 1/(√D-1).
			tilt := math.Sqrt(d) / (math.Sqrt(d) - 1)
			rows = (1 + tilt) * (rows + AccumulatedRounding(3, u))
		}
	}
	// A score errs by the rows and by its own sum, p of them make a term, and the
	// term goes through the polynomial or the products of its features, and sums.
	score := (1 + rows) * (1 + rows) * (1 + AccumulatedRounding(d, u))
	term := math.Pow(score, p)*(1+AccumulatedRounding(sum+2*p+16, u)) - 1
	return 4. / 3 * term
}

// carried returns the number of roundings of a sum to which the given number of chunks
// are added. A compensated sum is rounded when it is read; its loss until then is at
// most 2u² of the sizes of its terms a chunk.
func carried(chunks float64, c contract.Carry, u float64) float64 {
	if c == contract.Compensated {
		return 1 + math.Ceil(2*u*chunks)
	}
	return chunks
}

// rowError bounds the error of a prepared row's 2-norm in parts of the row's, for
// rows of width d; it is not known for all normalisations and feature maps.
func (e *Engine[T]) rowError(d int, u float64) (err float64, known bool) {
	w := float64(d)
	err = AccumulatedRounding(3, u) // scale and temperature
	switch e.Spec.Norm {
	case spec.NoNorm:
	case spec.Unit:
		err += AccumulatedRounding(w/8+8, u)
	case spec.Standard, spec.Bounded:
		centre := AccumulatedRounding(w+2*math.Sqrt(w)+8, u)
		err += centre/(1-centre/2) + AccumulatedRounding(w/8+8, u)
	default:
		return 0, false
	}
	if e.Spec.HasMap() {
		// What a map does to an error is its own affair.
		r, ok := e.Spec.Map.(spec.BoundedRounding)
		if !ok || e.Spec.Norm != spec.NoNorm || e.Spec.Scale != 1 || e.Spec.Tau != nil {
			return 0, false
		}
		err = AccumulatedRounding(r.Roundings(), u)
	}
	return err + AccumulatedRounding(5, u), true // rotation
}
