package attention

import (
	"math"
	"unsafe"

	"github.com/farfield-ml/farfield/tensor"
)

// accumulated is γ_n = n·u/(1-n·u): n roundings one after another change a
// number by no more than this part of it (Higham 2002, Accuracy and Stability of
// Numerical Algorithms, lemma 3.1). Beyond n·u = 1 nothing is promised.
func accumulated(n, u float64) float64 {
	if n*u >= 1 {
		return math.Inf(1)
	}
	return n * u / (1 - n*u)
}

// rounding is u, the largest relative error of one rounding to T.
func rounding[T tensor.Float]() float64 {
	var z T
	if unsafe.Sizeof(z) == 8 {
		return math.Ldexp(1, -53)
	}
	return math.Ldexp(1, -24)
}

// bound is Plan.Bound of a form, derived in docs/numerics.md.
func (e *engine[T]) bound(s Shape, form Form, chunk, features int) float64 {
	u := rounding[T]()
	d, m := float64(e.spec.Width(s.D)), float64(s.M)
	if e.spec.WindowWidth > 0 {
		m = min(m, float64(e.spec.WindowWidth))
	}
	rows, known := e.rowError(s.D, u)
	if !known || e.spec.Unnormalized || e.spec.OutputNorm || e.spec.Similarity != nil {
		return 0
	}
	if e.spec.Exp {
		return 4. / 3 * (accumulated(d+m+32, u) + 2*rows)
	}
	p := float64(e.spec.Degree())
	sum := m
	if form != Direct {
		c := max(min(float64(chunk), m), 1)
		sum = float64(features) + c + carried(math.Ceil(m/c), s.Carry, u)
		if e.spec.FeatureWidth(s.D, false) < e.spec.Width(s.D) {
			// Reflected rows: an addition a channel, of the last one times 1/(√D-1).
			tilt := math.Sqrt(d) / (math.Sqrt(d) - 1)
			rows = (1 + tilt) * (rows + accumulated(3, u))
		}
	}
	// A score errs by the rows and by its own sum, p of them make a term, and the
	// term goes through the polynomial or the products of its features, and sums.
	score := (1 + rows) * (1 + rows) * (1 + accumulated(d, u))
	term := math.Pow(score, p)*(1+accumulated(sum+2*p+16, u)) - 1
	return 4. / 3 * term
}

// carried returns the number of roundings of a sum to which the given number of chunks
// are added. A compensated sum is rounded when it is read; its loss until then is at
// most 2u² of the sizes of its terms a chunk.
func carried(chunks float64, c Carry, u float64) float64 {
	if c == Compensated {
		return 1 + math.Ceil(2*u*chunks)
	}
	return chunks
}

// rowError bounds the error of a prepared row's 2-norm in parts of the row's, for
// rows of width d; it is not known for all normalisations and feature maps.
func (e *engine[T]) rowError(d int, u float64) (err float64, known bool) {
	w := float64(d)
	err = accumulated(3, u) // scale and temperature
	switch e.spec.Norm {
	case NoNorm:
	case Unit:
		err += accumulated(w/8+8, u)
	case Standard, Bounded:
		centre := accumulated(w+2*math.Sqrt(w)+8, u)
		err += centre/(1-centre/2) + accumulated(w/8+8, u)
	default:
		return 0, false
	}
	if e.spec.HasMap() {
		// What a map does to an error is its own affair.
		r, ok := e.spec.Map.(BoundedRounding)
		if !ok || e.spec.Norm != NoNorm || e.spec.Scale != 1 || e.spec.Tau != nil {
			return 0, false
		}
		err = accumulated(r.Roundings(), u)
	}
	return err + accumulated(5, u), true // rotation
}
