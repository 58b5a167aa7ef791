package nn

import (
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// ThinRows is the number of rows up to which thin layers are worth it: products
// of so few are bound by reading the weights, which lie there in the order in
// which they are read. Results have the same bits.
const ThinRows = 4

// Thin is a Linear for at most ThinRows rows. It has the weights that the layer
// had when it was made.
type Thin[T tensor.Float] struct {
	weight kernel.Strips[T]
	bias   []T
	work   float64 // of a row
}

// Thin returns the layer with its weights rearranged.
func (l *Linear[T]) Thin() *Thin[T] {
	out, in := l.W.Shape[0], l.W.Shape[1]
	w := &Thin[T]{
		weight: kernel.NewStrips(kernel.Active[T](), out, in, l.W.Data, in),
		work:   2 * float64(out) * float64(in),
	}
	if l.B != nil {
		w.bias = l.B.Data
	}
	return w
}

// thinStrips is the number of strips that a piece of a product has.
const thinStrips = 4

// Forward is Linear.Forward.
func (w *Thin[T]) Forward(y, x tensor.Mat[T], acc bool) {
	if f, work := (thinForward[T]{w, y, x, acc}), w.work*float64(x.Rows); work < par.MinWork {
		f.Piece(0, w.weight.Count())
	} else {
		par.Run(w.weight.Count(), thinStrips, work, f)
	}
	if w.bias != nil {
		t := kernel.Active[T]()
		for i := range y.Rows {
			t.Add(y.Row(i), y.Row(i), w.bias)
		}
	}
}

// thinForward does strips.
type thinForward[T tensor.Float] struct {
	w    *Thin[T]
	y, x tensor.Mat[T]
	acc  bool
}

func (f *thinForward[T]) Piece(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	x, y := f.x, f.y
	f.w.weight.Multiply(kernel.Active[T](), i0, i1, x.Rows, x.Data, x.Stride, f.acc, y.Data, y.Stride, arena.Take[T](ar, kernel.StripScratch))
}

// ThinAttention is an Attention for at most ThinRows rows.
type ThinAttention[T tensor.Float] struct {
	layer      *Attention[T]
	q, k, v, o *Thin[T]
	gate       *Thin[T] // of the decay; nil: none
}

// Thin returns the layer with its weights rearranged.
func (a *Attention[T]) Thin() Stepper[T] {
	t := &ThinAttention[T]{a, a.Q.Thin(), a.K.Thin(), a.V.Thin(), a.O.Thin(), nil}
	if a.Decay.learned() {
		t.gate = a.Decay.Gate.Thin()
	}
	return t
}

// Step is Attention.Step.
func (a *ThinAttention[T]) Step(y, x tensor.Mat[T], state State[T], s Scope[T], trace Trace[T]) error {
	l, tr := a.layer, trace.(*AttentionTrace[T])
	wide, narrow := l.H*l.D, l.Hkv*l.D
	q, o := room(&tr.q, x.Rows, wide), room(&tr.o, x.Rows, wide)
	k, v := room(&tr.k, x.Rows, narrow), room(&tr.v, x.Rows, narrow)
	a.q.Forward(q, x, false)
	a.k.Forward(k, x, false)
	a.v.Forward(v, x, false)
	n := x.Rows / s.B
	tr.call = attention.Call[T]{
		Q: l.queries(tr.q, s.B, n), K: l.keys(tr.k, s.B, n), V: l.keys(tr.v, s.B, n),
		Causal: s.Causal, Rope: s.Rope,
	}
	l.fade(tr, x, s.B, a.gate)
	if err := state.(attentionState[T]).State.Step(l.queries(tr.o, s.B, n), &tr.call); err != nil {
		return err
	}
	a.o.Forward(y, o, true)
	return nil
}

// room resizes data to a matrix, whose contents are not defined.
func room[T tensor.Float](data *[]T, rows, cols int) tensor.Mat[T] {
	*data = slices.Grow((*data)[:0], rows*cols)[:rows*cols]
	return view(*data, rows, cols)
}

// ThinMLP is an MLP for at most ThinRows rows.
type ThinMLP[T tensor.Float] struct {
	up, down *Thin[T]
	act      Activation
}

// Thin returns the layer with its weights rearranged.
func (m *MLP[T]) Thin() *ThinMLP[T] { return &ThinMLP[T]{m.Up.Thin(), m.Down.Thin(), m.Act} }

// Forward adds to y the MLP of x. It leaves nothing for Backward.
func (m *ThinMLP[T]) Forward(y, x tensor.Mat[T], tr *MLPTrace[T]) {
	hidden := room(&tr.act, x.Rows, m.up.weight.Columns())
	m.up.Forward(hidden, x, false)
	t := kernel.Active[T]()
	for i := range hidden.Rows {
		activate(m.act, t, hidden.Row(i), hidden.Row(i))
	}
	m.down.Forward(y, hidden, true)
}
