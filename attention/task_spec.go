package attention

import (
	"math"

	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/tensor"
)

// taskSpec is a Spec as the tasks of one of its parts see it: a mechanism with a window
// has two. The zero values of the other fields belong to a mechanism without a window.
type taskSpec[T tensor.Float] struct {
	Spec[T]

	// In a causal call the far field omits the last farLag keys that a query could see.
	// With givesNumerators its outputs are numerators. The window sees only the last
	// windowWidth keys; 0: all keys.
	farLag, windowWidth int
	givesNumerators     bool
	// isSymmetric has a query of a band of 2w-1 keys see the w-1 keys on both sides of its
	// place i+M-N, in calls that are not causal.
	isSymmetric bool
}

// elementwise reports that the map, if there is one, is Elementwise.
func (s *taskSpec[T]) elementwise() bool {
	_, ok := s.Map.(Elementwise)
	return ok || !s.hasMap()
}

// width returns the width of prepared rows.
func (s *taskSpec[T]) width(d int) int {
	switch {
	case s.Features != nil:
		return s.Features.Dim(d)
	case s.Map != nil:
		return s.Map.Dim(d)
	}
	return d
}

// scale returns the factor of query head h for width d.
func (s *taskSpec[T]) scale(d, h int) T {
	x := T(s.Scale)
	if s.Scale == 0 {
		x = T(1 / math.Sqrt(float64(d)))
	}
	if s.Tau != nil {
		x *= s.Tau.Data[s.tauIndex(h)]
	}
	return x
}

func (s *taskSpec[T]) tauIndex(h int) int {
	if len(s.Tau.Data) == 1 {
		return 0
	}
	return h
}

// exponent splits the scale of a query head into what its rows are multiplied
// by in the direct form and what the exponential, to base 2, multiplies scores
// by. The latter keeps a score of -Inf what it is.
func (s *taskSpec[T]) exponent(scale T) (rows, scores T) {
	if all := T(math.Log2E * float64(scale)); s.Exp && all > 0 {
		return 1, all
	}
	return scale, T(math.Log2E)
}

// degree returns the degree of the kernel polynomial.
func (s *taskSpec[T]) degree() int { return len(s.Coef) - 1 }

// maxScore bounds |s| by the normalisation; +Inf where nothing does.
func (s *taskSpec[T]) maxScore(d, h int) float64 {
	if b, ok := s.Features.(BoundedProduct); ok {
		return b.Bound()
	}
	if s.hasMap() || s.Norm == NoNorm {
		return math.Inf(1)
	}
	l := s.Norm.MaxLen(d)
	return math.Abs(float64(s.scale(d, h))) * l * l
}

// absPoly is the f̄ of Saved.WeakCount: Σ |Coef[l]|·x^l, or the larger absolute value of a
// similarity at ±x.
func (s *taskSpec[T]) absPoly(x float64) float64 {
	var y float64
	if s.Similarity != nil {
		f := []T{T(x), T(-x)}
		s.Similarity.F(f, f)
		return max(math.Abs(float64(f[0])), math.Abs(float64(f[1])))
	}
	for l := len(s.Coef) - 1; l >= 0; l-- {
		y = y*x + math.Abs(s.Coef[l])
	}
	return y
}

// hasMap reports that prepared rows are not as normalisation, rotation and scale
// leave them.
func (s *taskSpec[T]) hasMap() bool { return s.Map != nil || s.Features != nil }

// isPairwise reports that weights are computed pair by pair alone, so that a
// state keeps all keys.
func (s *taskSpec[T]) isPairwise() bool { return s.Exp || s.Similarity != nil }

func (s *taskSpec[T]) featureWidth(d int, moved bool) int {
	if isCentred(s.Norm) && !s.hasMap() && !moved && d > 1 && !s.hasSinglePower() {
		return d - 1
	}
	return s.width(d)
}

// features is the number of packed features that the linear form of s keeps for
// prepared rows of width w, math.MaxInt where it would be more.
func (s *taskSpec[T]) features(w int) int {
	if s.isPairwise() {
		return 0
	}
	return features.CountMonomials(s.degree(), w, !s.isSinglePower())
}

// isSinglePower reports that the features belong to a single power. Where outputs are
// multiplied by the number of keys, the constant feature counts them.
func (s *taskSpec[T]) isSinglePower() bool { return s.hasSinglePower() && !s.OutputNorm }

// hasSinglePower reports that the kernel is a single power.
func (s *taskSpec[T]) hasSinglePower() bool {
	if s.degree() < 1 {
		return false
	}
	for _, c := range s.Coef[:s.degree()] {
		if c != 0 {
			return false
		}
	}
	return true
}

// isDegree1 reports that features are the prepared row, and outputs what it meets.
func (s *taskSpec[T]) isDegree1() bool { return s.degree() == 1 && !s.OutputNorm }

// hasNoRoot reports that f, which is never negative, is known to be above 0
// wherever the scores of rows of width d lie.
func (s *taskSpec[T]) hasNoRoot(d int) bool {
	c := s.Coef
	switch {
	case c[0] <= 0:
		return false
	case len(c) == 3 && c[1]*c[1] < 4*c[0]*c[2]:
		return true
	case len(c)%2 == 1 && s.isTaylorOfExp():
		return true // T_p of even p: at its minimum it is s^p/p!, and T_{p-1} = 0
	case s.Tau != nil:
		return false // nothing bounds its scores
	}
	return s.absPoly(s.maxScore(d, 0)) < 2*c[0]
}

// isTaylorOfExp reports that f is the beginning of the exponential series.
func (s *taskSpec[T]) isTaylorOfExp() bool {
	factorial := 1.0
	for l, c := range s.Coef {
		factorial *= float64(max(l, 1))
		if c != 1/factorial {
			return false
		}
	}
	return true
}

// mapsToZeros reports that mapped rows may be zero.
func (s *taskSpec[T]) mapsToZeros() bool {
	_, row := s.Map.(ZeroingMap)
	_, block := s.Features.(ZeroingMap)
	return row || block
}

// productReach bounds the weights of rows of products without their masks.
func (s *taskSpec[T]) productReach(coef [3]float64, d, h int) float64 {
	plain := *s
	plain.Map, plain.Coef = nil, coef[:]
	x := plain.maxScore(d, h)
	if math.IsInf(x, 1) {
		return 0 // nothing is known to be weak
	}
	return plain.absPoly(x)
}

// learnsFeatures reports that features have learned numbers.
func (s *taskSpec[T]) learnsFeatures() bool {
	return s.Features != nil && s.Features.Params().Size() > 0
}
