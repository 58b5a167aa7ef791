package attention

import (
	"math"

	"github.com/farfield-ml/farfield/tensor"
)

// sound reports that no denominator can cancel, so that none is looked at:
// weights are never negative, and that of a query of zeros is not 0.
func (e *engine[T]) sound() bool {
	s := &e.spec
	if _, sparse := s.Map.(Sparse); sparse {
		return s.Positive && s.Eps > 0
	}
	if s.Exp || !s.Positive || s.Map != nil {
		return s.Exp || s.Positive
	}
	if s.Similarity != nil {
		return s.absPoly(0) > 0
	}
	return s.Coef[0] > 0
}

// weak reports that a denominator over so many keys, or what is left of them,
// nearly cancels, where scores lie within ±reach; see Saved.Weak. Weights that are never negative
// have nothing to cancel, but may all be 0.
func (e *engine[T]) weak(den, seen, reach float64) bool {
	if e.spec.Positive {
		return den == 0
	}
	return math.Abs(den) < e.spec.absPoly(reach)*seen/1024
}

// over returns 1/den, or 0 where weights that are never negative are all 0: a
// query that weighs nothing is answered as one that sees nothing.
func (u *unit[T]) over(den T) T {
	if den == 0 && u.spec.Positive {
		return 0
	}
	return 1 / den
}

// reach bounds |s| for query i of head h of a sequence: by the normalisation,
// or, where that does not, by the length of the query and of the longest key.
func (e *engine[T]) reach(c *Call[T], s *sequence, longest []float64, h, i int) float64 {
	if p, ok := e.spec.Map.(products[T]); ok {
		return c.Drop.gain() * e.spec.productReach(p.coef, c.Q.D, h)
	}
	if longest == nil {
		return c.Drop.gain() * e.spec.maxScore(c.Q.D, h)
	}
	x := length(c.Q.At(s.b, h).Row(s.q0 + i))
	return math.Abs(float64(e.spec.scale(c.Q.D, h))) * x * longest[h/(c.Q.H/c.K.H)] * c.Drop.gain()
}

// longestKeys returns the length of the longest key of each key head of a
// sequence that exists, nil where the normalisation bounds them or a feature
// map comes after it.
func (e *engine[T]) longestKeys(c *Call[T], s *sequence, mask []bool) []float64 {
	if e.spec.Norm != NoNorm || e.spec.Map != nil || e.spec.Positive {
		return nil
	}
	longest := make([]float64, c.K.H)
	for h := range longest {
		k := c.K.At(s.b, h)
		for j := range s.m {
			if mask == nil || mask[j] {
				longest[h] = max(longest[h], length(k.Row(s.k0+j)))
			}
		}
	}
	return longest
}

// length is the 2-norm of a row.
func length[T tensor.Float](x []T) float64 {
	var sum float64
	for _, y := range x {
		sum += float64(y) * float64(y)
	}
	return math.Sqrt(sum)
}
