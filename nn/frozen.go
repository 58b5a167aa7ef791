package nn

import (
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// ThinRows is the number of rows up to which products are bound by reading the
// weights, so that they lie there in the order in which they are read.
const ThinRows = 4

// Frozen is a Linear for the same weights many times over, with no more than so many
// rows each time: for steps. It has the weights that the layer had when it was made,
// arranged for that number of rows. Results have the same bits.
type Frozen[T tensor.Float] struct {
	few   kernel.Strips[T]
	many  packed[T] // in place of few, for more than ThinRows rows
	thick bool      // there are many
	bias  []T
	out   int
	work  float64 // of a row
}

// Freeze returns the layer with its weights rearranged for at most so many rows, or up to
// ThinRows; if that is more, for any number.
func (l *Linear[T]) Freeze(rows int) *Frozen[T] {
	out, in := l.W.Shape[0], l.W.Shape[1]
	w := &Frozen[T]{out: out, work: 2 * float64(out) * float64(in), thick: rows > ThinRows}
	if l.B != nil {
		w.bias = l.B.Data
	}
	if w.thick {
		w.many = l.packIn(make([]T, kernel.PanelsSize(out, in)), true)
	} else {
		w.few = kernel.NewStrips(kernel.Active[T](), out, in, l.W.Data, in)
	}
	return w
}

// thinStrips is the number of strips that a piece of a product has.
const thinStrips = 4

// Forward is Linear.Forward.
func (w *Frozen[T]) Forward(y, x tensor.Mat[T], acc bool) {
	if w.thick {
		across := (w.out + kernel.PanelColumns - 1) / kernel.PanelColumns
		down := (x.Rows + rowTile - 1) / rowTile
		par.Run(across*down, 1, w.work*float64(x.Rows), thickForward[T]{&w.many, y, x, acc, across})
		return
	}
	if f, work := (thinForward[T]{w, y, x, acc}), w.work*float64(x.Rows); work < par.MinWork {
		f.Piece(0, w.few.Count())
	} else {
		par.Run(w.few.Count(), thinStrips, work, f)
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
	w    *Frozen[T]
	y, x tensor.Mat[T]
	acc  bool
}

func (f *thinForward[T]) Piece(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	x, y := f.x, f.y
	f.w.few.Multiply(kernel.Active[T](), i0, i1, x.Rows, x.Data, x.Stride, f.acc, y.Data, y.Stride, arena.Take[T](ar, kernel.StripScratch))
}

// thickForward does panels of columns, of some rows each.
type thickForward[T tensor.Float] struct {
	w      *packed[T]
	y, x   tensor.Mat[T]
	acc    bool
	across int
}

func (f *thickForward[T]) Piece(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	scratch := arena.Take[T](ar, kernel.MultiplyScratch(rowTile, f.x.Cols))
	for i := i0; i < i1; i++ {
		j, r := i%f.across*kernel.PanelColumns, i/f.across*rowTile
		r1 := min(r+rowTile, f.x.Rows)
		y := columns(f.y.Slice(r, r1), j, min(j+kernel.PanelColumns, f.y.Cols))
		f.w.rows(y, f.x.Slice(r, r1), j, f.acc, scratch)
	}
}

// FrozenAttention is an Attention for steps.
type FrozenAttention[T tensor.Float] struct {
	layer      *Attention[T]
	q, k, v, o *Frozen[T]
	gate       *Frozen[T] // of the decay; nil: none
}

// Freeze returns the layer with its weights rearranged.
func (a *Attention[T]) Freeze(rows int) Stepper[T] {
	t := &FrozenAttention[T]{a, a.Q.Freeze(rows), a.K.Freeze(rows), a.V.Freeze(rows), a.O.Freeze(rows), nil}
	if a.Decay.learned() {
		t.gate = a.Decay.Gate.Freeze(rows)
	}
	return t
}

// Step is Attention.Step.
func (a *FrozenAttention[T]) Step(y, x tensor.Mat[T], state State[T], s Scope[T], trace Trace[T]) error {
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

// FrozenMLP is an MLP for steps.
type FrozenMLP[T tensor.Float] struct {
	up, down *Frozen[T]
	act      Activation
}

// Freeze returns the layer with its weights rearranged.
func (m *MLP[T]) Freeze(rows int) *FrozenMLP[T] {
	return &FrozenMLP[T]{m.Up.Freeze(rows), m.Down.Freeze(rows), m.Act}
}

// Forward adds to y the MLP of x. It leaves nothing for Backward.
func (m *FrozenMLP[T]) Forward(y, x tensor.Mat[T], tr *MLPTrace[T]) {
	hidden := room(&tr.act, x.Rows, m.up.out)
	m.up.Forward(hidden, x, false)
	if hidden.Rows <= ThinRows {
		t := kernel.Active[T]()
		for i := range hidden.Rows {
			activate(m.act, t, hidden.Row(i), hidden.Row(i))
		}
	} else {
		Activate(m.act, hidden, hidden)
	}
	m.down.Forward(y, hidden, true)
}
