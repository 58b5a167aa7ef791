package nn

import "github.com/farfield-ml/farfield/tensor"

// CrossAttention is attention from the rows of a block to the rows of Scope.Source.
type CrossAttention[T tensor.Float] struct{ Layer *Attention[T] }

// crossTrace holds the intermediate results of CrossAttention.Forward for Backward.
type crossTrace[T tensor.Float] struct {
	AttentionTrace[T]
	source tensor.Mat[T]
}

// FLOPs counts a source as long as the sequence.
func (c CrossAttention[T]) FLOPs(n int, _ bool) float64 { return c.Layer.FLOPs(n, false) }

// NewTrace returns an empty trace.
func (c CrossAttention[T]) NewTrace() Trace[T] { return new(crossTrace[T]) }

// Forward sets y [B·N,width] to base [B·N,width] plus the attention of x [B·N,width] to
// s.Source [B·M,width]. It returns an error if the mechanism refuses the call.
func (c CrossAttention[T]) Forward(y, base, x tensor.Mat[T], s Scope[T], trace Trace[T], keep bool) error {
	tr := trace.(*crossTrace[T])
	tr.source = s.Source
	scope := Scope[T]{B: s.B, KeyLens: s.SourceLens, Drop: s.Drop}
	return c.Layer.ForwardTo(y, base, x, s.Source, scope, &tr.AttentionTrace, keep)
}

// Backward sets dx [B·N,width] and adds to s.DSource [B·M,width]. It returns an error if
// the mechanism refuses the call.
func (c CrossAttention[T]) Backward(dx, dy, x tensor.Mat[T], trace Trace[T], s *Scratch[T]) error {
	tr := trace.(*crossTrace[T])
	return c.Layer.BackwardTo(dx, s.DSource, dy, x, tr.source, &tr.AttentionTrace, s)
}

// Step adds to y [B·N,width] the attention of x [B·N,width] to s.Source [B·M,width]. It
// returns an error if the mechanism refuses the call.
func (c CrossAttention[T]) Step(y, x tensor.Mat[T], _ State[T], s Scope[T], trace Trace[T]) error {
	return c.Forward(y, y, x, s, trace, false)
}

// Freeze returns the layer itself.
func (c CrossAttention[T]) Freeze(int) Stepper[T] { return c }
