package nn

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

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

// SourceState returns the state of steps that attend to source [B·M,width]: its keys and
// values. lens [B] are the valid rows of each sequence; nil: all. Tokens leave the state as
// it is, so clones share its memory. It has no snapshot.
func (c CrossAttention[T]) SourceState(source tensor.Mat[T], b int, lens []int64) State[T] {
	a := c.Layer
	narrow := a.Hkv * a.D
	s := &sourceState[T]{k: make([]T, source.Rows*narrow), v: make([]T, source.Rows*narrow), b: b, lens: slices.Clone(lens)}
	a.K.Forward(viewMatrix(s.k, source.Rows, narrow), source, false)
	if a.KNorm != nil {
		k := a.viewRows(s.k)
		a.KNorm.Forward(k, k, make([]T, 2*k.Rows))
	}
	a.V.Forward(viewMatrix(s.v, source.Rows, narrow), source, false)
	return s
}

// sourceState is the keys and values [B·M,Hkv·D] of a source.
type sourceState[T tensor.Float] struct {
	k, v []T
	b    int
	lens []int64
}

func (s *sourceState[T]) Clone() State[T] { return s }

func (s *sourceState[T]) Reset() {}

func (s *sourceState[T]) Tokens() int64 { return 0 }

func (s *sourceState[T]) Bytes() int64 {
	var x T
	return int64(len(s.k)+len(s.v)) * int64(unsafe.Sizeof(x))
}

func (s *sourceState[T]) AppendBinary(b []byte) ([]byte, error) {
	return b, errors.New("cross-attention: the keys of a source have no snapshot")
}

// Step adds to y [B·N,width] the attention of x [B·N,width] to the source of state. It
// returns an error if the mechanism refuses the call.
func (c CrossAttention[T]) Step(y, x tensor.Mat[T], state State[T], s Scope[T], trace Trace[T]) error {
	return c.step(y, x, &c.Layer.Q, &c.Layer.O, state.(*sourceState[T]), s.B, &trace.(*crossTrace[T]).AttentionTrace)
}

// projection is a layer for steps.
type projection[T tensor.Float] interface {
	Forward(y, x tensor.Mat[T], acc bool)
}

// step is Step with layers of queries and outputs.
func (c CrossAttention[T]) step(y, x tensor.Mat[T], q, o projection[T], state *sourceState[T], b int, tr *AttentionTrace[T]) error {
	a, n := c.Layer, x.Rows/b
	rows := resizeMatrix(&tr.q, x.Rows, a.H*a.D)
	q.Forward(rows, x, false)
	if a.QNorm != nil {
		heads := a.viewRows(tr.q)
		a.QNorm.Forward(heads, heads, resizeMatrix(&tr.statsQ, heads.Rows, 2).Data)
	}
	m := len(state.k) / (a.Hkv * a.D * b)
	tr.call = attention.Call[T]{Q: a.viewQueries(tr.q, b, n), K: a.viewKeys(state.k, b, m), V: a.viewKeys(state.v, b, m), KeyLens: state.lens}
	if a.Mechanism.Traits().Linear {
		tr.call.Form = attention.Direct // the same form for any number of queries
	}
	out := resizeMatrix(&tr.o, x.Rows, a.H*a.D)
	if err := a.Mechanism.Forward(a.viewQueries(tr.o, b, n), &tr.call, nil); err != nil {
		return err
	}
	o.Forward(y, a.normaliseOutputs(out, tr, false), true)
	return nil
}

// packedCross is a CrossAttention for steps.
type packedCross[T tensor.Float] struct {
	layer CrossAttention[T]
	q, o  *PackedLinear[T]
}

// Freeze returns the layer with packed projections of queries and outputs.
func (c CrossAttention[T]) Freeze(rows int) Stepper[T] {
	return &packedCross[T]{c, c.Layer.Q.Freeze(rows), c.Layer.O.Freeze(rows)}
}

// Step is CrossAttention.Step. It returns an error where CrossAttention.Step does.
func (c *packedCross[T]) Step(y, x tensor.Mat[T], state State[T], s Scope[T], trace Trace[T]) error {
	return c.layer.step(y, x, c.q, c.o, state.(*sourceState[T]), s.B, &trace.(*crossTrace[T]).AttentionTrace)
}
