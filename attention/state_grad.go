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
type StateGrad[T tensor.Float] struct {
	shape       Shape
	heads       []headGrad[T] // [B·Hkv]
	windowGrads []lateGrad[T] // [B·Hkv] of a window; else nil
	total       bool          // of a state whose last chunk has ended: see Total
}

// headGrad is the gradient of one key head.
type headGrad[T tensor.Float] struct {
	moments features.Moments[T] // of the closed chunks
	n       int                 // tokens that follow
	x, v    []T                 // [n, da] of their prepared keys, [n, dv] of their values
	w       []T                 // [n] of the ones under their values; 0 without decay
	age     float64             // Σ dG over the places that follow; 0 without decay
}

// resize makes room for the gradients of a state of shape s.
func (g *StateGrad[T]) resize(s *Shape) {
	g.total = false
	if g.shape != *s || len(g.heads) != s.B*s.Hkv {
		g.shape, g.heads = *s, make([]headGrad[T], s.B*s.Hkv)
	}
}

// checkLate reports a gradient whose windows do not have the given numbers of
// tokens.
func (g *StateGrad[T]) checkLate(tokens func(i int) int) error {
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
func (g *StateGrad[T]) check(s *Shape, tokens func(i int) int) error {
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
