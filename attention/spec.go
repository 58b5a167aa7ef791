package attention

import (
	"math"

	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Spec says what a mechanism is; New makes one that keeps the contract. Query
// and key rows go through
//
//	normalise → rotate (Rope) → scale (queries only) → feature map
//
// and a key's weight is f of the product of the rows that come out.
type Spec[T tensor.Float] struct {
	Name string
	// Setting identifies everything below that changes results; snapshots of
	// states are bound to it.
	Setting string

	Norm  Norm
	Scale float64         // multiplies every query row; 0: 1/√D
	Tau   *param.Param[T] // [H] or [1], learned factor of each head's query rows; nil: none
	Map   FeatureMap[T]   // nil: rows as they are
	// Features maps whole blocks of rows instead, where Map is nil.
	Features Features[T]

	// f is one of three. Exp makes it the exponential, stabilised by its row
	// maximum; Similarity is any function; both have the direct form only. Coef
	// makes it f(s) = Σ_l Coef[l]·s^l.
	Exp        bool
	Similarity *Similarity[T]
	Coef       []float64
	Eps        float64 // added to the denominator

	// Unnormalized leaves out the denominator: outputs are Σ_j w_ij·v_j. Eps is 0 then.
	Unnormalized bool
	// Floor is the least that a denominator is, where that is above 0: the larger of
	// it and the sum of the weights, or with FloorSize of it and the sum's size.
	// Rows at the floor are no averages. Calls have no decay, and Eps is 0.
	Floor     float64
	FloorSize bool
	// Gated multiplies the features of a token's key by 1-g, where Call.LogG holds log
	// g. It needs Features.
	Gated bool
	// BuiltinDecay is a decay that the mechanism brings along, and for which its calls
	// are causal; nil: none.
	BuiltinDecay *BuiltinDecay

	// OutputNorm multiplies the output of a query that sees n keys by √(n/D), D
	// the width of queries (TaylorShift, normalisation 3, whose n is N). Weights
	// are as without it.
	OutputNorm bool

	Positive bool // f ≥ 0 wherever scores can lie

	// Window joins a window of exact weights to the mechanism, which is then the
	// tail; nil: none. Only kernel polynomials have one.
	Window *Window[T]

	// Settings of the two parts of a mechanism with a window. In a causal call the far
	// field omits the last lag keys that a query could see. With undivided its outputs
	// are numerators. The window sees only the last band keys; 0: all keys.
	farLag, windowWidth int
	givesNumerators     bool
	// isSymmetric has a query of a band of 2w-1 keys see the w-1 keys on both sides of its
	// place i+M-N, in calls that are not causal.
	isSymmetric bool
}

// FeatureMap maps single rows to features. Implementations have no state.
type FeatureMap[T tensor.Float] interface {
	Dim(d int) int      // width of the mapped row
	Map(dst, x []T)     // dst [Dim(len(x))]
	Grad(dx, dy, x []T) // dx from the gradient dy of the mapped row
}

// Elementwise marks a FeatureMap that maps each number by itself, whatever
// stands beside it. It is given rows or columns, in place.
type Elementwise interface{ Elementwise() }

// ZeroingMap marks a FeatureMap, or Features, that may map a row to zeros.
type ZeroingMap interface{ Sparse() }

// BoundedRounding marks a FeatureMap with a known error: Roundings is the number of roundings
// by which its numbers differ from exact arithmetic at most.
type BoundedRounding interface{ Roundings() float64 }

// elementwise reports that the map, if there is one, is Elementwise.
func (s *Spec[T]) elementwise() bool {
	_, ok := s.Map.(Elementwise)
	return ok || !s.hasMap()
}

// width returns the width of prepared rows.
func (s *Spec[T]) width(d int) int {
	switch {
	case s.Features != nil:
		return s.Features.Dim(d)
	case s.Map != nil:
		return s.Map.Dim(d)
	}
	return d
}

// scale returns the factor of query head h for width d.
func (s *Spec[T]) scale(d, h int) T {
	x := T(s.Scale)
	if s.Scale == 0 {
		x = T(1 / math.Sqrt(float64(d)))
	}
	if s.Tau != nil {
		x *= s.Tau.Data[s.tauIndex(h)]
	}
	return x
}

func (s *Spec[T]) tauIndex(h int) int {
	if len(s.Tau.Data) == 1 {
		return 0
	}
	return h
}

// exponent splits the scale of a query head into what its rows are multiplied
// by in the direct form and what the exponential, to base 2, multiplies scores
// by. The latter keeps a score of -Inf what it is.
func (s *Spec[T]) exponent(scale T) (rows, scores T) {
	if all := T(math.Log2E * float64(scale)); s.Exp && all > 0 {
		return 1, all
	}
	return scale, T(math.Log2E)
}

// degree returns the degree of the kernel polynomial.
func (s *Spec[T]) degree() int { return len(s.Coef) - 1 }

// maxScore bounds |s| by the normalisation; +Inf where nothing does.
func (s *Spec[T]) maxScore(d, h int) float64 {
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
func (s *Spec[T]) absPoly(x float64) float64 {
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
