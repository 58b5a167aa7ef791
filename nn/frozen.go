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
		data := make([]T, kernel.PanelsSize(out, in))
		arena.AdviseHugePages(data)
		w.many = l.packIn(data, true)
	} else {
		w.few = kernel.NewStrips(kernel.Active[T](), out, in, l.W.Data, in)
	}
	return w
}

// thinStrips is the number of strips that a piece of a product has.
const thinStrips = 4

// Forward is Linear.Forward.
func (w *Frozen[T]) Forward(y, x tensor.Mat[T], acc bool) { w.forward(y, x, acc, noActivation, nil) }

// forward is Forward, and applies an activation to y. Of many rows the products ask for
// the memory ahead, as far as they have time.
func (w *Frozen[T]) forward(y, x tensor.Mat[T], acc bool, act Activation, ahead []T) {
	if w.thick {
		across := (w.out + kernel.PanelColumns - 1) / kernel.PanelColumns
		down := (x.Rows + rowTile - 1) / rowTile
		par.Run(across*down, 1, w.work*float64(x.Rows), thickForward[T]{&w.many, y, x, acc, act, across, across * down, ahead})
		return
	}
	if f, work := (thinForward[T]{w, y, x, acc}), w.work*float64(x.Rows); work < par.MinWork {
		f.RunRange(0, w.few.Count())
	} else {
		par.Run(w.few.Count(), thinStrips, work, f)
	}
	if w.bias != nil {
		t := kernel.Active[T]()
		for i := range y.Rows {
			t.Add(y.Row(i), y.Row(i), w.bias)
		}
	}
	activateRows(act, kernel.Active[T](), y, y)
}

// thinForward does strips.
type thinForward[T tensor.Float] struct {
	w    *Frozen[T]
	y, x tensor.Mat[T]
	acc  bool
}

func (f *thinForward[T]) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	x, y := f.x, f.y
	f.w.few.Multiply(kernel.Active[T](), i0, i1, x.Rows, x.Data, x.Stride, f.acc, y.Data, y.Stride, arena.Take[T](ar, kernel.StripScratch))
}

// thickForward does panels of columns, of some rows each, which share what they ask for.
type thickForward[T tensor.Float] struct {
	w             *packed[T]
	y, x          tensor.Mat[T]
	acc           bool
	act           Activation
	across, count int
	ahead         []T
}

func (f *thickForward[T]) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	scratch := arena.Take[T](ar, kernel.MultiplyScratch(rowTile, f.x.Cols))
	for i := i0; i < i1; i++ {
		j, r := i%f.across*kernel.PanelColumns, i/f.across*rowTile
		r1 := min(r+rowTile, f.x.Rows)
		y := columns(f.y.Slice(r, r1), j, min(j+kernel.PanelColumns, f.y.Cols))
		f.w.rows(y, f.x.Slice(r, r1), j, f.acc, scratch, f.ahead[i*len(f.ahead)/f.count:(i+1)*len(f.ahead)/f.count])
		activateRows(f.act, kernel.Active[T](), y, y)
	}
}

// FrozenAttention is an Attention for steps.
type FrozenAttention[T tensor.Float] struct {
	layer      *Attention[T]
	q, k, v, o *Frozen[T]
	gate       *Frozen[T] // of the decay; nil: none
	byHead     bool       // states take a token head by head, and so it is made
}

// Freeze returns the layer with its weights rearranged.
func (a *Attention[T]) Freeze(rows int) Stepper[T] {
	t := &FrozenAttention[T]{layer: a, q: a.Q.Freeze(rows), k: a.K.Freeze(rows), v: a.V.Freeze(rows), o: a.O.Freeze(rows)}
	if a.Decay.learned() {
		t.gate = a.Decay.Gate.Freeze(rows)
	}
	t.byHead = t.q.thick && a.D%kernel.Lanes == 0 && a.renews(rows)
	return t
}

// headProducts makes the queries, keys and values of a token, which lie head by head.
type headProducts[T tensor.Float] struct {
	of      *FrozenAttention[T]
	x       tensor.Mat[T]
	q, k, v []T // [H,B,D]
}

func (p *headProducts[T]) Head(h int, ahead []T) {
	n, d := p.x.Rows, p.of.layer.D
	ar := arena.Acquire()
	defer ar.Release()
	scratch := arena.Take[T](ar, kernel.MultiplyScratch(n, p.x.Cols))
	for _, f := range [...]struct {
		w *Frozen[T]
		y []T
	}{{p.of.q, p.q}, {p.of.k, p.k}, {p.of.v, p.v}} {
		ahead = f.w.many.rows(view(f.y[h*n*d:], n, d), p.x, h*d, false, scratch, ahead)
	}
}

// stepHeads is Step for one token of each sequence, head by head.
func (a *FrozenAttention[T]) stepHeads(o, x tensor.Mat[T], state State[T], s Scope[T], tr *AttentionTrace[T]) error {
	l, b := a.layer, x.Rows
	byHead := func(data []T) tensor.Heads[T] {
		return tensor.Heads[T]{Data: data, B: b, H: l.H, N: 1, D: l.D, SB: l.D, SH: b * l.D, SN: l.D}
	}
	tr.call = attention.Call[T]{Q: byHead(tr.q), K: byHead(tr.k), V: byHead(tr.v), Causal: s.Causal, Rope: s.Rope}
	tr.heads = headProducts[T]{a, x, tr.q, tr.k, tr.v}
	work := float64(b) * (a.q.work + a.k.work + a.v.work)
	return attention.StepHeads(state.(attentionState[T]).State, l.queries(o.Data, b, 1), &tr.call, &tr.heads, work)
}

// Step is Attention.Step.
func (a *FrozenAttention[T]) Step(y, x tensor.Mat[T], state State[T], s Scope[T], trace Trace[T]) error {
	l, tr := a.layer, trace.(*AttentionTrace[T])
	wide, narrow := l.H*l.D, l.Hkv*l.D
	q, o := room(&tr.q, x.Rows, wide), room(&tr.o, x.Rows, wide)
	k, v := room(&tr.k, x.Rows, narrow), room(&tr.v, x.Rows, narrow)
	if a.byHead && x.Rows == s.B {
		if err := a.stepHeads(o, x, state, s, tr); err != nil {
			return err
		}
		a.o.Forward(y, o, true)
		return nil
	}
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
func (m *MLP[T]) Freeze(rows int) Stepper[T] {
	return &FrozenMLP[T]{m.Up.Freeze(rows), m.Down.Freeze(rows), m.Act}
}

// Step adds to y [rows,width] the MLP of x [rows,width]. For more than ThinRows rows its
// products prefetch s.Next. The error is nil.
func (m *FrozenMLP[T]) Step(y, x tensor.Mat[T], _ State[T], s Scope[T], trace Trace[T]) error {
	tr := trace.(*MLPTrace[T])
	// Products read rows well that lie an odd number of cache lines apart.
	hidden := columns(room(&tr.act, x.Rows, kernel.Stride(m.up.out)), 0, m.up.out)
	m.up.forward(hidden, x, false, m.act, nil)
	m.down.forward(y, hidden, true, noActivation, s.Next)
	return nil
}
