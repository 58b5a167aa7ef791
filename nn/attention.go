package nn

import (
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// Attention projects rows to heads of queries, keys and values, lets a
// mechanism mix them, and projects the result back. The mechanism reads the
// projections where they lie, through strided views.
type Attention[T tensor.Float] struct {
	Q Linear[T] // [H·D,width]
	K Linear[T] // [Hkv·D,width]
	V Linear[T] // [Hkv·D,width]
	O Linear[T] // [width,H·D]

	Mechanism attention.Mechanism[T]
	H, Hkv, D int
}

// Scope is who sees whom in a call of Attention.
type Scope[T tensor.Float] struct {
	B       int // batch rows
	Causal  bool
	KeyLens []int64            // [B] valid keys of each batch row; nil: all
	Rope    *attention.Rope[T] // nil: none
}

// AttentionTrace is what Attention.Forward leaves for Backward.
type AttentionTrace[T tensor.Float] struct {
	q, o  []T // [rows,H·D]
	k, v  []T // [context rows,Hkv·D]
	call  attention.Call[T]
	saved attention.Saved[T]
}

// AttentionScratch is memory that Backward works in. It may be shared by layers.
type AttentionScratch[T tensor.Float] struct {
	do, dq, dk, dv []T
}

// Forward adds to y [B·N,width] what the rows of x [B·N,width] see in those of
// context [B·M,width], which is x in self-attention. keep says that Backward
// will follow.
func (a *Attention[T]) Forward(y, x, context tensor.Mat[T], s Scope[T], tr *AttentionTrace[T], keep bool) error {
	out := a.project(x, context, s, tr)
	saved := &tr.saved
	if !keep {
		saved = nil
	}
	if err := a.Mechanism.Forward(out, &tr.call, saved); err != nil {
		return err
	}
	a.O.Forward(y, view(tr.o, x.Rows, a.H*a.D), true)
	return nil
}

// Step is the causal self-attention of x [B·N,width], continued from what
// state has seen. It adds to y. The rotations of s start at the position of the
// first new token.
func (a *Attention[T]) Step(y, x tensor.Mat[T], state attention.State[T], s Scope[T], tr *AttentionTrace[T]) error {
	out := a.project(x, x, s, tr)
	if err := state.Step(out, &tr.call); err != nil {
		return err
	}
	a.O.Forward(y, view(tr.o, x.Rows, a.H*a.D), true)
	return nil
}

// project sets the call of tr and returns the view of its output.
func (a *Attention[T]) project(x, context tensor.Mat[T], s Scope[T], tr *AttentionTrace[T]) tensor.Heads[T] {
	wide, narrow := a.H*a.D, a.Hkv*a.D
	tr.q = slices.Grow(tr.q[:0], x.Rows*wide)[:x.Rows*wide]
	tr.o = slices.Grow(tr.o[:0], x.Rows*wide)[:x.Rows*wide]
	tr.k = slices.Grow(tr.k[:0], context.Rows*narrow)[:context.Rows*narrow]
	tr.v = slices.Grow(tr.v[:0], context.Rows*narrow)[:context.Rows*narrow]
	a.Q.Forward(view(tr.q, x.Rows, wide), x, false)
	a.K.Forward(view(tr.k, context.Rows, narrow), context, false)
	a.V.Forward(view(tr.v, context.Rows, narrow), context, false)
	n, m := x.Rows/s.B, context.Rows/s.B
	tr.call = attention.Call[T]{
		Q: a.queries(tr.q, s.B, n), K: a.keys(tr.k, s.B, m), V: a.keys(tr.v, s.B, m),
		Causal: s.Causal, KeyLens: s.KeyLens, Rope: s.Rope,
	}
	return a.queries(tr.o, s.B, n)
}

// queries views a [B·N, H·D] projection by its heads.
func (a *Attention[T]) queries(data []T, b, n int) tensor.Heads[T] {
	return tensor.Split(data, b, n, a.H*a.D, 0, a.H, a.D)
}

// keys views a [B·M, Hkv·D] projection by its heads.
func (a *Attention[T]) keys(data []T, b, m int) tensor.Heads[T] {
	return tensor.Split(data, b, m, a.Hkv*a.D, 0, a.Hkv, a.D)
}

// Backward sets dx [B·N,width] and then adds to dcontext [B·M,width], which is
// dx in self-attention. x, context and tr are those of Forward.
func (a *Attention[T]) Backward(dx, dcontext, dy, x, context tensor.Mat[T], tr *AttentionTrace[T], s *AttentionScratch[T]) error {
	wide, narrow := a.H*a.D, a.Hkv*a.D
	s.do = slices.Grow(s.do[:0], len(tr.q))[:len(tr.q)]
	s.dq = slices.Grow(s.dq[:0], len(tr.q))[:len(tr.q)]
	s.dk = slices.Grow(s.dk[:0], len(tr.k))[:len(tr.k)]
	s.dv = slices.Grow(s.dv[:0], len(tr.v))[:len(tr.v)]
	a.O.Backward(view(s.do, x.Rows, wide), dy, view(tr.o, x.Rows, wide), false)
	b, n, m := tr.call.Q.B, tr.call.Q.N, tr.call.K.N
	g := attention.Grads[T]{DQ: a.queries(s.dq, b, n), DK: a.keys(s.dk, b, m), DV: a.keys(s.dv, b, m)}
	err := a.Mechanism.Backward(&g, a.queries(s.do, b, n), a.queries(tr.o, b, n), &tr.call, &tr.saved)
	if err != nil {
		return err
	}
	a.Q.Backward(dx, view(s.dq, x.Rows, wide), x, false)
	a.K.Backward(dcontext, view(s.dk, context.Rows, narrow), context, true)
	a.V.Backward(dcontext, view(s.dv, context.Rows, narrow), context, true)
	return nil
}
