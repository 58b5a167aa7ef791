package nn

import (
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// GEMVRows is the number of rows up to which a product is memory-bound. Weights are then
// packed in the order in which they are read.
const GEMVRows = 4

// PackedLinear is a Linear with a packed copy of its weights, for steps. The packing
// depends on the number of rows. Results have the bits of Linear.
type PackedLinear struct {
	strips    kernel.Strips[tensor.Float]
	panels    weightPanels // in place of strips, for more than GEMVRows rows
	hasPanels bool         // panels are set, not strips
	bias      []tensor.Float
	out       int
	work      float64 // operations for a row

	layer *Linear // with compressed weights, in place of strips and panels; nil: none
}

// Freeze returns the layer with packed weights for steps of at most rows rows. Up to GEMVRows
// rows weights are packed in strips, otherwise in panels, which serve any number of rows. Panels
// that PackWeights has packed, and weights in fewer bits, are shared and not packed again.
func (l *Linear) Freeze(rows int) *PackedLinear {
	out, in := l.W.Shape[0], l.W.Shape[1]
	w := &PackedLinear{out: out, work: 2 * float64(out) * float64(in), hasPanels: rows > GEMVRows}
	if l.B != nil {
		w.bias = l.B.Data
	}
	if l.compressed != nil {
		w.layer, w.hasPanels = l, false
		return w
	}
	if w.hasPanels && l.packed != nil {
		w.panels = *l.packed
	} else if w.hasPanels {
		w.panels = l.packPanels()
	} else {
		w.strips = kernel.NewStrips(kernel.Active[float](), out, in, l.W.Data, in)
	}
	return w
}

// stripsPerPiece is the number of strips that a piece of a product has.
const stripsPerPiece = 4

// Forward sets y [rows,out] to x·Wᵀ + B for x [rows,in], or adds it to y if acc is set.
func (w *PackedLinear) Forward(y, x tensor.Mat, acc bool) {
	w.forwardActivated(y, x, acc, noActivation, nil)
}

// forwardActivated computes Forward and applies an activation to y. With panels, the products
// prefetch the memory ahead as far as they have time.
func (w *PackedLinear) forwardActivated(y, x tensor.Mat, acc bool, act Activation, ahead []float) {
	if w.layer != nil {
		multiplyCompressed(act, rowProduct{layer: w.layer, y: y, x: x, acc: acc})
		return
	}
	if w.hasPanels {
		across := (w.out + kernel.PanelColumns - 1) / kernel.PanelColumns
		down := (x.Rows + rowTile - 1) / rowTile
		par.Run(across*down, 1, w.work*float64(x.Rows), panelForward{&w.panels, y, x, acc, act, across, across * down, ahead})
		return
	}
	if f, work := (stripForward{w, y, x, acc}), w.work*float64(x.Rows); work < par.MinWork {
		f.RunRange(0, w.strips.Count())
	} else {
		par.Run(w.strips.Count(), stripsPerPiece, work, f)
	}
	if w.bias != nil {
		t := kernel.Active[float]()
		for i := range y.Rows {
			t.Add(y.Row(i), y.Row(i), w.bias)
		}
	}
	activateRows(act, kernel.Active[float](), y, y)
}

// stripForward computes strips of outputs.
type stripForward struct {
	w    *PackedLinear
	y, x tensor.Mat
	acc  bool
}

func (f *stripForward) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	x, y := f.x, f.y
	f.w.strips.Multiply(kernel.Active[float](), i0, i1, x.Rows, x.Data, x.Stride, f.acc, y.Data, y.Stride, arena.Take[float](ar, kernel.StripScratch))
}

// panelForward computes panels of columns, of some rows each. The panels share the
// memory to prefetch.
type panelForward struct {
	w                 *weightPanels
	y, x              tensor.Mat
	acc               bool
	act               Activation
	panelCount, count int
	prefetched        []float
}

func (f *panelForward) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	scratch := arena.Take[float](ar, kernel.MultiplyScratch(rowTile, f.x.Cols))
	for i := i0; i < i1; i++ {
		j, r := i%f.panelCount*kernel.PanelColumns, i/f.panelCount*rowTile
		r1 := min(r+rowTile, f.x.Rows)
		y := viewColumns(f.y.Slice(r, r1), j, min(j+kernel.PanelColumns, f.y.Cols))
		f.w.multiplyColumns(y, f.x.Slice(r, r1), j, f.acc, scratch, f.prefetched[i*len(f.prefetched)/f.count:(i+1)*len(f.prefetched)/f.count])
		activateRows(f.act, kernel.Active[float](), y, y)
	}
}

// packedAttention is an Attention for steps.
type packedAttention struct {
	layer      *Attention
	q, k, v, o *PackedLinear
	gate       *PackedLinear // of the decay; nil: none
	byHead     bool          // single tokens are projected head by head, as states absorb them
}

// Freeze returns the layer with packed weights, for steps of at most rows rows.
func (a *Attention) Freeze(rows int) Stepper {
	t := &packedAttention{layer: a, q: a.Q.Freeze(rows), k: a.K.Freeze(rows), v: a.V.Freeze(rows), o: a.O.Freeze(rows)}
	if a.Decay.isLearned() {
		t.gate = a.Decay.Gate.Freeze(rows)
	}
	t.byHead = t.q.hasPanels && a.D%kernel.Lanes == 0 && a.QNorm == nil && a.hasFusedSteps(rows)
	return t
}

// headProducts projects the queries, keys and values of a token head by head.
type headProducts struct {
	layer   *packedAttention
	x       tensor.Mat
	q, k, v []float // [H,B,D]
}

// ProjectHead sets head h of the queries, keys and values, and prefetches the state memory next.
func (p *headProducts) ProjectHead(h int, next []tensor.Float) {
	n, d := p.x.Rows, p.layer.layer.D
	ar := arena.Acquire()
	defer ar.Release()
	scratch := arena.Take[float](ar, kernel.MultiplyScratch(n, p.x.Cols))
	for _, f := range [...]struct {
		w *PackedLinear
		y []float
	}{{p.layer.q, p.q}, {p.layer.k, p.k}, {p.layer.v, p.v}} {
		next = f.w.panels.multiplyColumns(viewMatrix(f.y[h*n*d:], n, d), p.x, h*d, false, scratch, next)
	}
}

// stepHeads sets o to the outputs of the mechanism for one token of each sequence, head by head.
func (a *packedAttention) stepHeads(o, x tensor.Mat, state State, s Scope, tr *AttentionTrace) error {
	l, b := a.layer, x.Rows
	byHead := func(data []float) tensor.Heads {
		return tensor.Heads{Data: data, B: b, H: l.H, N: 1, D: l.D, SB: l.D, SH: b * l.D, SN: l.D}
	}
	tr.call = attention.Call{Q: byHead(tr.q), K: byHead(tr.k), V: byHead(tr.v), Causal: s.Causal, Rope: s.Rope}
	tr.heads = headProducts{a, x, tr.q, tr.k, tr.v}
	work := float64(b) * (a.q.work + a.k.work + a.v.work)
	return attention.StepPerHead(state.(attentionState).State, l.viewQueries(o.Data, b, 1), &tr.call, &tr.heads, work)
}

// Step adds to y [B·N,width] the causal self-attention of x [B·N,width] after the tokens
// of state. It returns an error if the state refuses the call.
func (a *packedAttention) Step(y, x tensor.Mat, state State, s Scope, trace Trace) error {
	l, tr := a.layer, trace.(*AttentionTrace)
	if a.byHead && x.Rows == s.B {
		o := a.resizeRows(x.Rows, tr)
		if err := a.stepHeads(o, x, state, s, tr); err != nil {
			return err
		}
		a.o.Forward(y, l.normaliseOutputs(o, tr, false), true)
		return nil
	}
	o := a.project(x, tr)
	n := x.Rows / s.B
	tr.call = attention.Call{
		Q: l.viewQueries(tr.q, s.B, n), K: l.viewKeys(tr.k, s.B, n), V: l.viewKeys(tr.v, s.B, n),
		Causal: s.Causal, Rope: s.Rope,
	}
	l.setDecay(tr, x, s.B, a.gate)
	if err := state.(attentionState).State.Step(l.viewQueries(tr.o, s.B, n), &tr.call); err != nil {
		return explainDecay(err, &tr.call)
	}
	a.o.Forward(y, l.normaliseOutputs(o, tr, false), true)
	return nil
}

// resizeRows resizes the arrays of tr for the rows of a step and returns the matrix [rows,H·D]
// for the outputs of the mechanism.
func (a *packedAttention) resizeRows(rows int, tr *AttentionTrace) tensor.Mat {
	wide, narrow := a.layer.H*a.layer.D, a.layer.Hkv*a.layer.D
	resizeMatrix(&tr.q, rows, wide)
	resizeMatrix(&tr.k, rows, narrow)
	resizeMatrix(&tr.v, rows, narrow)
	return resizeMatrix(&tr.o, rows, wide)
}

// project sets the queries, keys and values of tr from x [rows,width], and returns the matrix
// for the outputs of the mechanism.
func (a *packedAttention) project(x tensor.Mat, tr *AttentionTrace) tensor.Mat {
	wide, narrow := a.layer.H*a.layer.D, a.layer.Hkv*a.layer.D
	o := a.resizeRows(x.Rows, tr)
	a.q.Forward(viewMatrix(tr.q, x.Rows, wide), x, false)
	a.k.Forward(viewMatrix(tr.k, x.Rows, narrow), x, false)
	a.v.Forward(viewMatrix(tr.v, x.Rows, narrow), x, false)
	a.layer.normaliseHeads(tr, false)
	return o
}

// resizeMatrix resizes data to a matrix, whose contents are not defined.
func resizeMatrix(data *[]float, rows, cols int) tensor.Mat {
	*data = slices.Grow((*data)[:0], rows*cols)[:rows*cols]
	return viewMatrix(*data, rows, cols)
}

// packedMLP is an MLP for steps.
type packedMLP struct {
	upProj, downProj *PackedLinear
	act              Activation
}

// Freeze returns the layer with packed weights, for steps of at most rows rows.
func (m *mlp) Freeze(rows int) Stepper {
	return &packedMLP{m.UpProj.Freeze(rows), m.DownProj.Freeze(rows), m.Act}
}

// Step adds to y [rows,width] the MLP of x [rows,width]. For more than GEMVRows rows its
// products prefetch s.Next. The error is nil.
func (m *packedMLP) Step(y, x tensor.Mat, _ State, s Scope, trace Trace) error {
	tr := trace.(*mlpTrace)
	// Products read rows well that lie an odd number of cache lines apart.
	hidden := viewColumns(resizeMatrix(&tr.act, x.Rows, kernel.Stride(m.upProj.out)), 0, m.upProj.out)
	m.upProj.forwardActivated(hidden, x, false, m.act, nil)
	m.downProj.forwardActivated(y, hidden, true, noActivation, s.Next)
	return nil
}
