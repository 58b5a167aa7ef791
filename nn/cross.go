package nn

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// CrossAttention is attention from the rows of a block to the rows of Scope.Source.
type CrossAttention struct{ Layer *Attention }

// crossTrace holds the intermediate results of CrossAttention.Forward for Backward.
type crossTrace struct {
	AttentionTrace
	source tensor.Mat
}

// FLOPs returns the operations for n rows and a source of n rows.
func (c CrossAttention) FLOPs(n int, _ bool) float64 { return c.Layer.FLOPs(n, false) }

// NewTrace returns an empty trace.
func (c CrossAttention) NewTrace() Trace { return new(crossTrace) }

// Forward sets y [B·N,width] to base [B·N,width] plus the attention of x [B·N,width] to
// s.Source [B·M,width]. It returns an error if the mechanism refuses the call.
func (c CrossAttention) Forward(y, base, x tensor.Mat, s Scope, trace Trace, keep bool) error {
	tr := trace.(*crossTrace)
	tr.source = s.Source
	scope := Scope{B: s.B, KeyLens: s.SourceLens, Drop: s.Drop}
	return c.Layer.ForwardTo(y, base, x, s.Source, scope, &tr.AttentionTrace, keep)
}

// Backward sets dx [B·N,width] and adds to s.DSource [B·M,width]. It returns an error if
// the mechanism refuses the call.
func (c CrossAttention) Backward(dx, dy, x tensor.Mat, trace Trace, s *Scratch) error {
	tr := trace.(*crossTrace)
	return c.Layer.BackwardTo(dx, s.DSource, dy, x, tr.source, &tr.AttentionTrace, s)
}

// SourceState returns the state for steps that attend to source [B·M,width]: its keys and
// values. lens [B] holds the number of valid rows of each sequence; nil: all are. Steps do not
// change the state, so clones share its memory. It has no snapshot.
func (c CrossAttention) SourceState(source tensor.Mat, b int, lens []int64) State {
	a := c.Layer
	narrow := a.Hkv * a.D
	s := &sourceState{k: make([]float, source.Rows*narrow), v: make([]float, source.Rows*narrow), b: b, lens: slices.Clone(lens)}
	a.K.Forward(viewMatrix(s.k, source.Rows, narrow), source, false)
	if a.KNorm != nil {
		k := a.viewRows(s.k)
		a.KNorm.Forward(k, k, make([]float, 2*k.Rows))
	}
	a.V.Forward(viewMatrix(s.v, source.Rows, narrow), source, false)
	return s
}

// sourceState holds the keys and values [B·M,Hkv·D] of a source.
type sourceState struct {
	k, v []float
	b    int
	lens []int64
}

func (s *sourceState) Clone() State { return s }

func (s *sourceState) Reset() {}

func (s *sourceState) Tokens() int64 { return 0 }

func (s *sourceState) Bytes() int64 {
	var x float
	return int64(len(s.k)+len(s.v)) * int64(unsafe.Sizeof(x))
}

func (s *sourceState) AppendBinary(b []byte) ([]byte, error) {
	return b, errors.New("cross-attention: the keys of a source have no snapshot")
}

// Step adds to y [B·N,width] the attention of x [B·N,width] to the source of state. It
// returns an error if the mechanism refuses the call.
func (c CrossAttention) Step(y, x tensor.Mat, state State, s Scope, trace Trace) error {
	return c.step(y, x, &c.Layer.Q, &c.Layer.O, state.(*sourceState), s.B, &trace.(*crossTrace).AttentionTrace)
}

// projection is a layer for steps.
type projection interface {
	Forward(y, x tensor.Mat, acc bool)
}

// step computes Step with the given projections of queries and outputs.
func (c CrossAttention) step(y, x tensor.Mat, q, o projection, state *sourceState, b int, tr *AttentionTrace) error {
	a, n := c.Layer, x.Rows/b
	rows := resizeMatrix(&tr.q, x.Rows, a.H*a.D)
	q.Forward(rows, x, false)
	if a.QNorm != nil {
		heads := a.viewRows(tr.q)
		a.QNorm.Forward(heads, heads, resizeMatrix(&tr.statsQ, heads.Rows, 2).Data)
	}
	m := len(state.k) / (a.Hkv * a.D * b)
	tr.call = attention.Call{Q: a.viewQueries(tr.q, b, n), K: a.viewKeys(state.k, b, m), V: a.viewKeys(state.v, b, m), KeyLens: state.lens}
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
type packedCross struct {
	layer CrossAttention
	q, o  *PackedLinear
}

// Freeze returns the layer with packed projections of queries and outputs.
func (c CrossAttention) Freeze(rows int) Stepper {
	return &packedCross{c, c.Layer.Q.Freeze(rows), c.Layer.O.Freeze(rows)}
}

// Step computes CrossAttention.Step with packed weights.
func (c *packedCross) Step(y, x tensor.Mat, state State, s Scope, trace Trace) error {
	return c.layer.step(y, x, c.q, c.o, state.(*sourceState), s.B, &trace.(*crossTrace).AttentionTrace)
}
