package states

import (
	"errors"
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// Total is the content of a state of sums, in a form that can be added. If a sequence is
// divided into parts, the state before a part is the sum of the totals of all earlier parts,
// each multiplied by the decay of the parts after it (Span). The size of a total does not
// depend on the number of tokens. The zero value is ready for use, and memory is reused.
type Total struct {
	// Sums [B·Hkv, F, 1+Dv] holds for every feature first its sum over the keys, then its
	// products with the values, summed over the keys.
	Sums   []tensor.Float
	Spans  []Span // [B·Hkv]
	Tokens int64
	Decay  bool // whether the tokens have a decay
}

// Span holds the decay that the tokens of a part apply to the sums before the part.
type Span struct {
	HasKeys         bool    // whether the part has an unmasked key
	LogDecay        float64 // Σ log_g up to the last unmasked key
	PendingLogDecay float64 // Σ log_g after it, deferred to the next unmasked key
}

// Leaves returns the factor by which the tokens of s multiply the sums before them. before is
// the span of the tokens before s.
func (s Span) Leaves(before Span) float64 {
	if !s.HasKeys {
		return 1
	}
	return math.Exp(before.PendingLogDecay + s.LogDecay)
}

// Join returns the span of the tokens of s followed by the tokens of next.
func (s Span) Join(next Span) Span {
	if !next.HasKeys {
		s.PendingLogDecay = max(s.PendingLogDecay+next.PendingLogDecay, slowest)
		return s
	}
	return Span{true, max(s.LogDecay+s.PendingLogDecay+next.LogDecay, slowest), next.PendingLogDecay}
}

// slowest is the least log-decay of a span; its factor is 0 by far.
const slowest = -1e280

var errNoTotal = errors.New("total: it is nil")

// sumState is a state of sums over features.
type sumState interface {
	Total(t *Total)
	SetTotal(t *Total) error
	TotalAges(to []float64, sums, gradient []tensor.Float) ([]float64, error)
	SetTotalGrad(g *attention.StateGrad, sums []tensor.Float, ages []float64) error
}

// ofSums returns st as a state of sums.
func ofSums(st attention.State) (sumState, error) {
	s, ok := st.(sumState)
	if !ok {
		return nil, fmt.Errorf("total: a %T is not made of sums", st)
	}
	return s, nil
}

// TotalOf sets t to the total of st. It closes the open chunk of st: the next token starts a
// new chunk. It returns an error if st is not a state of sums over features.
func TotalOf(t *Total, st attention.State) error {
	s, err := ofSums(st)
	if err != nil {
		return err
	}
	if t == nil {
		return errNoTotal
	}
	s.Total(t)
	return nil
}

// SetTotal replaces the content of st by the total t. It returns an error if st is not a state
// of sums over features, or t has other heads or sums than st.
func SetTotal(st attention.State, t *Total) error {
	s, err := ofSums(st)
	if err != nil {
		return err
	}
	if t == nil {
		return errNoTotal
	}
	return s.SetTotal(t)
}

// AgesOf appends one number to the slice to for each key head: the part of Ages that
// comes from the keys of a state. sums and gradient are the state's sums and their gradient, in
// the order of Total.Sums. It returns an error if their lengths do not fit st.
func AgesOf(to []float64, st attention.State, sums, gradient []tensor.Float) ([]float64, error) {
	s, err := ofSums(st)
	if err != nil {
		return nil, err
	}
	return s.TotalAges(to, sums, gradient)
}

// sumGrad is what attention.StateGrad.Own holds for a state of sums.
type sumGrad interface {
	AppendSums(to []tensor.Float) ([]tensor.Float, error)
	Ages(to []float64) []float64
}

// AppendSums appends to the slice to the part of g that is the gradient of Total.Sums, in the same order and divided
// by the weights of the features, as AgesOf and SetSums take it. It returns an error if the
// state has tokens outside its sums.
func AppendSums(to []tensor.Float, g *attention.StateGrad) ([]tensor.Float, error) {
	if x, ok := g.Own.(sumGrad); ok {
		return x.AppendSums(to)
	}
	return to, nil
}

// SetSums makes g the gradient of the total of st. sums is in the order of AppendSums, ages
// [B·Hkv] in the order of Ages. If g is used as Grads.DFinal, the last chunk of the call must
// have ended. It returns an error if st is not a state of sums, or there are too few sums.
func SetSums(g *attention.StateGrad, st attention.State, sums []tensor.Float, ages []float64) error {
	s, err := ofSums(st)
	if err != nil {
		return err
	}
	return s.SetTotalGrad(g, sums, ages)
}

// Ages appends to the slice to, for each key head, one number of g: the sum of dG over all positions
// of the call and of later calls, where dG is the gradient with respect to the cumulative sum
// of log_g at a position. The gradient of log_g of a token is the sum of dG from its position
// on.
func Ages(to []float64, g *attention.StateGrad) []float64 {
	if x, ok := g.Own.(sumGrad); ok {
		return x.Ages(to)
	}
	return to
}

// segmentGrad is the type of attention.StateGrad.Own for mechanisms with Traits.Segments.
type segmentGrad interface {
	AppendNumbers(to []tensor.Float) []tensor.Float
}

// segmentState is a state of a mechanism with Traits.Segments.
type segmentState interface {
	SetGradNumbers(g *attention.StateGrad, numbers []tensor.Float) error
}

// AppendNumbers appends to the slice to all numbers of g, if the state is of a
// mechanism with Traits.Segments. For other mechanisms it appends nothing.
func AppendNumbers(to []tensor.Float, g *attention.StateGrad) []tensor.Float {
	if x, ok := g.Own.(segmentGrad); ok {
		return x.AppendNumbers(to)
	}
	return to
}

// SetNumbers makes g the gradient of st, from numbers in the order of AppendNumbers. It returns
// an error if there are too few or too many numbers for st, or if the mechanism of st does not
// have Traits.Segments.
func SetNumbers(g *attention.StateGrad, st attention.State, numbers []tensor.Float) error {
	s, ok := st.(segmentState)
	if !ok {
		return fmt.Errorf("gradient: a %T is no state that calls go on from", st)
	}
	return s.SetGradNumbers(g, numbers)
}
