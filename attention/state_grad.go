package attention

import (
	"fmt"

	"github.com/farfield-ml/farfield/tensor"
)

// StateGrad is the gradient of a State. Backward sets it for the initial state (Grads.DInit)
// and reads it for the final state (Grads.DFinal). The zero value is ready for use, and memory
// is reused.
type StateGrad struct {
	// Own holds the gradient in a type that only the mechanism knows, with the layout of its
	// states; nil if nothing has been computed.
	Own any
}

// sumGrad is what StateGrad.Own holds for a state of sums.
type sumGrad interface {
	AppendSums(to []float) ([]float, error)
	Ages(to []float64) []float64
}

// AppendSums appends to the slice to the gradient of Total.Sums, in the same order and divided
// by the weights of the features, as AgesOf and SetSums take it. It returns an error if the
// state has tokens outside its sums.
func (g *StateGrad) AppendSums(to []tensor.Float) ([]tensor.Float, error) {
	if x, ok := g.Own.(sumGrad); ok {
		return x.AppendSums(to)
	}
	return to, nil
}

// SetSums makes g the gradient of the total of st. sums is in the order of AppendSums, ages
// [B·Hkv] in the order of Ages. If g is used as Grads.DFinal, the last chunk of the call must
// have ended. It returns an error if st is not a state of sums, or there are too few sums.
func (g *StateGrad) SetSums(st State, sums []tensor.Float, ages []float64) error {
	s, err := ofSums(st)
	if err != nil {
		return err
	}
	return s.SetTotalGrad(g, sums, ages)
}

// Ages appends to to, for each key head, one number: the sum of dG over all positions
// of the call and of later calls, where dG is the gradient with respect to the cumulative sum
// of log_g at a position. The gradient of log_g of a token is the sum of dG from its position
// on.
func (g *StateGrad) Ages(to []float64) []float64 {
	if x, ok := g.Own.(sumGrad); ok {
		return x.Ages(to)
	}
	return to
}

// segmentGrad is the type of StateGrad.Own for mechanisms with Traits.Segments.
type segmentGrad interface {
	AppendNumbers(to []float) []float
}

// segmentState is a state of a mechanism with Traits.Segments.
type segmentState interface {
	SetGradNumbers(g *StateGrad, numbers []float) error
}

// AppendNumbers appends to the slice to all numbers of the gradient, if the state is of a
// mechanism with Traits.Segments. For other mechanisms it appends nothing.
func (g *StateGrad) AppendNumbers(to []tensor.Float) []tensor.Float {
	if x, ok := g.Own.(segmentGrad); ok {
		return x.AppendNumbers(to)
	}
	return to
}

// SetNumbers makes g the gradient of st, from numbers in the order of AppendNumbers. It returns
// an error if there are too few or too many numbers for st, or if the mechanism of st does not
// have Traits.Segments.
func (g *StateGrad) SetNumbers(st State, numbers []tensor.Float) error {
	s, ok := st.(segmentState)
	if !ok {
		return fmt.Errorf("gradient: a %T is no state that calls go on from", st)
	}
	return s.SetGradNumbers(g, numbers)
}
