package engine

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// StateGrad is the gradient of a State of the engine, kept in attention.StateGrad.Own. It has
// the layout of the state. For a state of sums it holds the gradients of the moments, and of
// the prepared keys and values of the open chunk. For a state that keeps all keys it holds the
// gradients of all prepared keys and values. The gradients of moments are divided by the
// weights of the features, which are applied when they are read. With decay, Age holds the
// gradient of the log-decay before the end of the state.
type StateGrad struct {
	shape       attention.Shape
	Heads       []headtask.HeadGrad // [B·Hkv]
	WindowGrads []lateGrad          // [B·Hkv] of a window; otherwise nil
	Total       bool                // the gradient is of a total, whose last chunk has ended
}

// Resize makes room for the gradient of a state of shape s.
func (g *StateGrad) Resize(s *attention.Shape) {
	g.Total = false
	if g.shape != *s || len(g.Heads) != s.B*s.Hkv {
		g.shape, g.Heads = *s, make([]headtask.HeadGrad, s.B*s.Hkv)
	}
}

// CheckLate returns an error if the window of head i does not have tokens(i) tokens for some i.
func (g *StateGrad) CheckLate(tokens func(i int) int) error {
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

// Check returns an error if g is not for a state of shape s in which head i has tokens(i)
// tokens outside its moments.
func (g *StateGrad) Check(s *attention.Shape, tokens func(i int) int) error {
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
type lateGrad struct {
	Count                        int
	TailRows, WindowRows, Values []float // [n, da], [n, D], [n, Dv]; far where there is one denominator
	Ones                         []float // [n] of the ones under the values, as headGrad has them
	Age                          float64 // as headGrad has it, of the window or with one denominator of both parts
}

// Open makes room for n tokens, with undefined contents.
func (l *lateGrad) Open(n, da, d, dv int) {
	l.Count = n
	l.TailRows, l.WindowRows, l.Values, l.Ones = scratch.Grow(l.TailRows[:0], n*da), scratch.Grow(l.WindowRows[:0], n*d), scratch.Grow(l.Values[:0], n*dv), scratch.Grow(l.Ones[:0], n)
}

// StateGradOf returns the gradient that g holds. If it holds none of the engine's, it gets an
// empty one. Once a call has returned, several goroutines may call StateGradOf at the same
// time.
func StateGradOf(g *attention.StateGrad) *StateGrad {
	x, ok := g.Own.(*StateGrad)
	if !ok {
		x = new(StateGrad)
		g.Own = x
	}
	return x
}

// AppendSums appends the gradient of a total's sums to the slice to. It returns an error if the
// state has tokens outside its sums.
func (g *StateGrad) AppendSums(to []float) ([]float, error) {
	for i := range g.Heads {
		h := &g.Heads[i]
		if h.Count > 0 {
			return nil, fmt.Errorf("dinit: head %d has %d tokens that are not in its sums, as a total has none", i, h.Count)
		}
		to = h.Moments.AppendFlat(to, g.shape.Dv)
	}
	return to, nil
}

// Ages appends the Age of each key head to the slice to.
func (g *StateGrad) Ages(to []float64) []float64 {
	for i := range g.Heads {
		to = append(to, g.Heads[i].Age)
	}
	return to
}

// SetTotalGrad makes grad the gradient of the total of s. It returns an error if there are too
// few sums.
func (s *RecurrentState) SetTotalGrad(grad *attention.StateGrad, sums []float, ages []float64) error {
	g, shape := StateGradOf(grad), &s.Shape
	g.Resize(shape)
	g.Total = true
	for i := range g.Heads {
		h, from := &g.Heads[i], &s.Heads[i].Moments
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
