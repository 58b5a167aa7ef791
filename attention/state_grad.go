package attention

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// StateGrad is the gradient of a State. Backward computes it for the initial state and
// reads it for the final state. The zero value is ready for use; memory is reused.
//
// It has the layout of the state. The open chunk of sums, and a whole cache, have
// gradients of prepared keys and of values. Sums have gradients of their moments, over
// the weights that features have when they are read. With decay, ages are the gradients
// of the log-decay before the state: see ageAfter.
type StateGrad[T tensor.Float] struct{ parts GradParts[T] }

// GradParts is the content of a StateGrad, which engines alone use.
type GradParts[T tensor.Float] struct {
	shape       Shape
	heads       []headGrad[T] // [B·Hkv]
	windowGrads []lateGrad[T] // [B·Hkv] of a window; else nil
	total       bool          // of a state whose last chunk has ended: see Total
}

// GradPartsOf returns the parts of g, to read and to set.
func GradPartsOf[T tensor.Float](g *StateGrad[T]) *GradParts[T] { return &g.parts }

// headGrad is the gradient of one key head.
type headGrad[T tensor.Float] struct {
	moments features.Moments[T] // of the closed chunks
	n       int                 // tokens that follow
	x, v    []T                 // [n, da] of their prepared keys, [n, dv] of their values
	w       []T                 // [n] of the ones under their values; 0 without decay
	age     float64             // Σ dG over the places that follow; 0 without decay
}

// resize makes room for the gradients of a state of shape s.
func (g *GradParts[T]) resize(s *Shape) {
	g.total = false
	if g.shape != *s || len(g.heads) != s.B*s.Hkv {
		g.shape, g.heads = *s, make([]headGrad[T], s.B*s.Hkv)
	}
}

// checkLate reports a gradient whose windows do not have the given numbers of
// tokens.
func (g *GradParts[T]) checkLate(tokens func(i int) int) error {
	if len(g.windowGrads) != len(g.heads) {
		return fmt.Errorf("dfinal: is of a state without a window")
	}
	for i := range g.windowGrads {
		if got, want := g.windowGrads[i].n, tokens(i); got != want {
			return fmt.Errorf("dfinal: head %d has %d tokens in its window, the call leaves %d", i, got, want)
		}
	}
	return nil
}

// open sets the tokens that follow the closed chunks to n rows of da and dv,
// with undefined contents, and what comes of decay to 0.
func (h *headGrad[T]) open(n, da, dv int) {
	h.n, h.age = n, 0
	h.x = scratch.Grow(h.x[:0], n*da)
	h.v = scratch.Grow(h.v[:0], n*dv)
	h.w = scratch.Grow(h.w[:0], n)
	clear(h.w)
}

// check reports a gradient that is not of a state of shape s whose heads have
// the given numbers of tokens beside their moments.
func (g *GradParts[T]) check(s *Shape, tokens func(i int) int) error {
	if g.shape != *s {
		return fmt.Errorf("dfinal: is of a state of shape %v, needs %v", g.shape, *s)
	}
	for i := range g.heads {
		if got, want := g.heads[i].n, tokens(i); got != want && !g.total {
			return fmt.Errorf("dfinal: head %d has %d tokens that are not summed, the call leaves %d", i, got, want)
		}
	}
	return nil
}

// lateGrad is the gradient of the last n tokens of a key head.
type lateGrad[T tensor.Float] struct {
	n                       int
	tailRows, windowRows, v []T     // [n, da], [n, D], [n, Dv]; far where there is one denominator
	w                       []T     // [n] of the ones under the values, as headGrad has them
	age                     float64 // as headGrad has it, of the window or with one denominator of both parts
}

// open makes room for n tokens, with undefined contents.
func (l *lateGrad[T]) open(n, da, d, dv int) {
	l.n = n
	l.tailRows, l.windowRows, l.v, l.w = scratch.Grow(l.tailRows[:0], n*da), scratch.Grow(l.windowRows[:0], n*d), scratch.Grow(l.v[:0], n*dv), scratch.Grow(l.w[:0], n)
}

// SummedState is a state of sums over features.
type SummedState[T tensor.Float] interface {
	State[T]
	StateShape() *Shape
	// MomentsOf returns the sums of key head i, counted over the whole batch.
	MomentsOf(i int) *features.Moments[T]
}

// AppendSums appends the gradient of a total's sums to the slice to [n], in the order of
// Total.Sums. It returns an error if the state has tokens outside its sums.
func (g *StateGrad[T]) AppendSums(to []T) ([]T, error) {
	for i := range g.parts.heads {
		h := &g.parts.heads[i]
		if h.n > 0 {
			return nil, fmt.Errorf("dinit: head %d has %d tokens that are not in its sums, as a total has none", i, h.n)
		}
		to = h.moments.AppendFlat(to, g.parts.shape.Dv)
	}
	return to, nil
}

// SetSums makes g the gradient of the total of st, from sums [n] in the order of
// AppendSums and ages [B·Hkv] of Ages. As Grads.DFinal it belongs to a call whose last
// chunk has ended. It returns an error if st is no state of sums, or sums are too few.
func (g *StateGrad[T]) SetSums(st State[T], sums []T, ages []float64) error {
	s, ok := st.(SummedState[T])
	if !ok {
		return fmt.Errorf("total: a %T is not made of sums", st)
	}
	shape := s.StateShape()
	g.parts.resize(shape)
	g.parts.total = true
	for i := range g.parts.heads {
		h, from := &g.parts.heads[i], s.MomentsOf(i)
		h.moments.ShapeAs(from)
		if need := len(h.moments.S) / h.moments.Stride * (1 + shape.Dv); len(sums) < need {
			return fmt.Errorf("total: head %d has %d sums, the state %d", i, len(sums), need)
		}
		sums = h.moments.SetFlat(sums, shape.Dv)
		h.open(0, 0, 0)
		if i < len(ages) {
			h.age = ages[i]
		}
	}
	return nil
}

// Ages appends to the slice to [n], for each key head, the sum of the gradient of log_g
// over the tokens of the call and later tokens. dlog_g of a token is the sum from its
// position on.
func (g *StateGrad[T]) Ages(to []float64) []float64 {
	for i := range g.parts.heads {
		to = append(to, g.parts.heads[i].age)
	}
	return to
}
