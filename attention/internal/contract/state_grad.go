package contract

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
	Heads       []HeadGrad[T] // [B·Hkv]
	WindowGrads []lateGrad[T] // [B·Hkv] of a window; else nil
	Total       bool          // of a state whose last chunk has ended: see Total
}

// GradPartsOf returns the parts of g, to read and to set.
func GradPartsOf[T tensor.Float](g *StateGrad[T]) *GradParts[T] { return &g.parts }

// HeadGrad is the gradient of one key head.
type HeadGrad[T tensor.Float] struct {
	Moments      features.Moments[T] // of the closed chunks
	Count        int                 // tokens that follow
	Keys, Values []T                 // [n, da] of their prepared keys, [n, dv] of their values
	Ones         []T                 // [n] of the ones under their values; 0 without decay
	Age          float64             // Σ dG over the places that follow; 0 without decay
}

// Resize makes room for the gradients of a state of shape s.
func (g *GradParts[T]) Resize(s *Shape) {
	g.Total = false
	if g.shape != *s || len(g.Heads) != s.B*s.Hkv {
		g.shape, g.Heads = *s, make([]HeadGrad[T], s.B*s.Hkv)
	}
}

// CheckLate returns an error if the windows of g do not have the given numbers of
// tokens.
func (g *GradParts[T]) CheckLate(tokens func(i int) int) error {
	if len(g.WindowGrads) != len(g.Heads) {
		return fmt.Errorf("dfinal: is of a state without a window")
	}
	for i := range g.WindowGrads {
		if got, want := g.WindowGrads[i].Count, tokens(i); got != want {
			return fmt.Errorf("dfinal: head %d has %d tokens in its window, the call leaves %d", i, got, want)
		}
	}
	return nil
}

// Open sets the tokens that follow the closed chunks to n rows of da and dv,
// with undefined contents, and what comes of decay to 0.
func (h *HeadGrad[T]) Open(n, da, dv int) {
	h.Count, h.Age = n, 0
	h.Keys = scratch.Grow(h.Keys[:0], n*da)
	h.Values = scratch.Grow(h.Values[:0], n*dv)
	h.Ones = scratch.Grow(h.Ones[:0], n)
	clear(h.Ones)
}

// Check returns an error if g is not of a state of shape s whose heads have
// the given numbers of tokens beside their moments.
func (g *GradParts[T]) Check(s *Shape, tokens func(i int) int) error {
	if g.shape != *s {
		return fmt.Errorf("dfinal: is of a state of shape %v, needs %v", g.shape, *s)
	}
	for i := range g.Heads {
		if got, want := g.Heads[i].Count, tokens(i); got != want && !g.Total {
			return fmt.Errorf("dfinal: head %d has %d tokens that are not summed, the call leaves %d", i, got, want)
		}
	}
	return nil
}

// lateGrad is the gradient of the last n tokens of a key head.
type lateGrad[T tensor.Float] struct {
	Count                        int
	TailRows, WindowRows, Values []T     // [n, da], [n, D], [n, Dv]; far where there is one denominator
	Ones                         []T     // [n] of the ones under the values, as headGrad has them
	Age                          float64 // as headGrad has it, of the window or with one denominator of both parts
}

// Open makes room for n tokens, with undefined contents.
func (l *lateGrad[T]) Open(n, da, d, dv int) {
	l.Count = n
	l.TailRows, l.WindowRows, l.Values, l.Ones = scratch.Grow(l.TailRows[:0], n*da), scratch.Grow(l.WindowRows[:0], n*d), scratch.Grow(l.Values[:0], n*dv), scratch.Grow(l.Ones[:0], n)
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
	for i := range g.parts.Heads {
		h := &g.parts.Heads[i]
		if h.Count > 0 {
			return nil, fmt.Errorf("dinit: head %d has %d tokens that are not in its sums, as a total has none", i, h.Count)
		}
		to = h.Moments.AppendFlat(to, g.parts.shape.Dv)
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
	g.parts.Resize(shape)
	g.parts.Total = true
	for i := range g.parts.Heads {
		h, from := &g.parts.Heads[i], s.MomentsOf(i)
		h.Moments.ShapeAs(from)
		if need := len(h.Moments.S) / h.Moments.Stride * (1 + shape.Dv); len(sums) < need {
			return fmt.Errorf("total: head %d has %d sums, the state %d", i, len(sums), need)
		}
		sums = h.Moments.SetFlat(sums, shape.Dv)
		h.Open(0, 0, 0)
		if i < len(ages) {
			h.Age = ages[i]
		}
	}
	return nil
}

// Ages appends to the slice to [n], for each key head, the sum of the gradient of log_g
// over the tokens of the call and later tokens. dlog_g of a token is the sum from its
// position on.
func (g *StateGrad[T]) Ages(to []float64) []float64 {
	for i := range g.parts.Heads {
		to = append(to, g.parts.Heads[i].Age)
	}
	return to
}
