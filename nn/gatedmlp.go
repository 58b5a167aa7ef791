package nn

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// gatedMLP is DownProj(act(GateProj(x))∘UpProj(x)) (Shazeer 2020, arXiv 2002.05202,
// section 2): SwiGLU with SiLU, GEGLU with GELU.
type gatedMLP struct {
	GateProj Linear // [hidden,width]
	UpProj   Linear // [hidden,width]
	DownProj Linear // [width,hidden]
	Act      Activation
}

// NewGatedMLP returns the branch down(act(gate(x))∘up(x)) (Shazeer 2020, arXiv 2002.05202, section 2):
// SwiGLU with SiLU, GEGLU with GELU. gate and up are [hidden,width], and down [width,hidden].
func NewGatedMLP(gate, up, down Linear, act Activation) Branch { return &gatedMLP{gate, up, down, act} }

// gatedMLPTrace holds the intermediate results of GatedMLP.Forward for Backward.
type gatedMLPTrace struct {
	gate, upOut, hidden []float // [rows,hidden]: both projections, and the input of DownProj
}

// Aux returns 0: the layer has no auxiliary loss.
func (t *gatedMLPTrace) Aux() float64 { return 0 }

// NewTrace returns an empty gatedMLPTrace.
func (m *gatedMLP) NewTrace() Trace { return new(gatedMLPTrace) }

// FLOPs returns the operations of the three products for n rows.
func (m *gatedMLP) FLOPs(n int, _ bool) float64 {
	return 2 * float64(n) * (m.GateProj.weightSize() + m.UpProj.weightSize() + m.DownProj.weightSize())
}

// forwardWork returns the operations of one pass through the three layers.
func (m *gatedMLP) forwardWork(rows int) float64 { return m.FLOPs(rows, false) }

// Forward sets y [rows,width] to base [rows,width] plus the MLP of x [rows,width]. y may
// be base, but not x. The error is nil.
func (m *gatedMLP) Forward(y, base, x tensor.Mat, _ Scope, trace Trace, keep bool) error {
	if m.UpProj.compressed != nil {
		m.forwardCompressed(y, base, x, trace.(*gatedMLPTrace))
		return nil
	}
	if !keep && x.Rows > rowTile {
		ar := arena.Acquire()
		defer ar.Release()
		par.Run(x.Rows, rowPiece(x.Rows), m.forwardWork(x.Rows), gatedForward{act: m.Act, gateW: m.GateProj.packWeights(ar, true), upW: m.UpProj.packWeights(ar, true), downW: m.DownProj.packWeights(ar, true), y: y, base: base, x: x})
		return nil
	}
	tr, out := trace.(*gatedMLPTrace), m.UpProj.W.Shape[0]
	gate, up, hidden := resizeMatrix(&tr.gate, x.Rows, out), resizeMatrix(&tr.upOut, x.Rows, out), resizeMatrix(&tr.hidden, x.Rows, out)
	if x.Rows <= rowTile {
		multiplyRows(true, rowProduct{layer: &m.GateProj, y: gate, x: x}, rowProduct{layer: &m.UpProj, y: up, x: x})
		gateRows(m.Act, kernel.Active[float](), hidden, gate, up)
		copyRows(y, base)
		m.DownProj.Forward(y, hidden, true)
		return nil
	}
	ar := arena.Acquire()
	defer ar.Release()
	par.Run(x.Rows, rowPiece(x.Rows), m.forwardWork(x.Rows), gatedForward{m.Act, m.GateProj.packWeights(ar, true), m.UpProj.packWeights(ar, true), m.DownProj.packWeights(ar, true), y, base, x, gate, up, hidden})
	return nil
}

// forwardCompressed computes Forward with compressed weights, some rows at a time. It saves nothing
// for Backward.
func (m *gatedMLP) forwardCompressed(y, base, x tensor.Mat, tr *gatedMLPTrace) {
	out := m.UpProj.W.Shape[0]
	for i := 0; i < x.Rows; i += compressedUnits {
		x, y, base := x.Slice(i, min(i+compressedUnits, x.Rows)), y.Slice(i, min(i+compressedUnits, x.Rows)), base
		if base.Rows > 0 {
			base = base.Slice(i, i+x.Rows)
		}
		gate, up := resizeMatrix(&tr.gate, x.Rows, out), resizeMatrix(&tr.upOut, x.Rows, out)
		multiplyRows(true, rowProduct{layer: &m.GateProj, y: gate, x: x}, rowProduct{layer: &m.UpProj, y: up, x: x})
		hidden := resizeMatrix(&tr.hidden, x.Rows, out)
		gateRows(m.Act, kernel.Active[float](), hidden, gate, up)
		multiplyRows(true, rowProduct{layer: &m.DownProj, y: y, x: hidden, base: base, acc: true})
	}
}

// gatedForward computes Forward for pieces of rows. If hidden has no rows the hidden units are
// in scratch memory.
type gatedForward struct {
	act                             Activation
	gateW, upW, downW               weightPanels
	y, base, x, gate, upOut, hidden tensor.Mat
}

// RunRange computes rows i0 ≤ i < i1. It applies gate and activation to each tile of products
// while the tile is in the cache.
func (f *gatedForward) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	t, out := kernel.Active[float](), f.upW.panels.N
	scratch := arena.Take[float](ar, kernel.MultiplyScratch(rowTile, max(out, f.x.Cols)))
	x, y := f.x.Slice(i0, i1), f.y.Slice(i0, i1)
	var gate, up, hidden, room tensor.Mat
	keeps := f.hidden.Rows > 0
	if keeps {
		gate, up, hidden = f.gate.Slice(i0, i1), f.upOut.Slice(i0, i1), f.hidden.Slice(i0, i1)
	} else {
		stride, wide := kernel.Stride(out), min(columnTile, out)
		hidden = viewColumns(viewMatrix(arena.Take[float](ar, x.Rows*stride), x.Rows, stride), 0, out)
		room = viewMatrix(arena.Take[float](ar, x.Rows*wide), x.Rows, wide)
	}
	for j := 0; j < out; j += columnTile {
		j1 := min(j+columnTile, out)
		g, u := viewColumns(hidden, j, j1), viewColumns(room, 0, j1-j)
		if keeps {
			g, u = viewColumns(gate, j, j1), viewColumns(up, j, j1)
		}
		f.gateW.multiplyColumns(g, x, j, false, scratch, nil)
		f.upW.multiplyColumns(u, x, j, false, scratch, nil)
		gateRows(f.act, t, viewColumns(hidden, j, j1), g, u)
	}
	copyRows(y, f.base.Slice(i0, i1))
	f.downW.multiplyColumns(y, hidden, 0, true, scratch, nil)
}

// gateRows sets y [rows,n] to act(gate)∘up of gate [rows,n] and up [rows,n].
func gateRows(act Activation, t *kernel.Table[float], y, gate, up tensor.Mat) {
	for i := range y.Rows {
		row := y.Row(i)
		activateElements(act, t, row, gate.Row(i))
		t.Mul(row, row, up.Row(i))
	}
}

// Backward sets dx [rows,width] from dy [rows,width] and adds to the gradients of the
// weights. dx overlaps neither dy nor x. It overwrites the trace. The error is nil.
func (m *gatedMLP) Backward(dx, dy, x tensor.Mat, trace Trace, _ *Scratch) error {
	tr, out := trace.(*gatedMLPTrace), m.UpProj.W.Shape[0]
	gate, up, hidden := viewMatrix(tr.gate, x.Rows, out), viewMatrix(tr.upOut, x.Rows, out), viewMatrix(tr.hidden, x.Rows, out)
	ar := arena.Acquire()
	defer ar.Release()
	par.Run(x.Rows, rowPiece(x.Rows), m.forwardWork(x.Rows), gatedBackward{m.Act, m.GateProj.packWeights(ar, false), m.UpProj.packWeights(ar, false), m.DownProj.packWeights(ar, false), dx, dy, gate, up})
	// gate and up are their own gradients from here on.
	addWeights(weightGrad{&m.DownProj, dy, hidden}, weightGrad{&m.GateProj, gate, x}, weightGrad{&m.UpProj, up, x})
	return nil
}

type gatedBackward struct {
	act                 Activation
	gateW, upW, downW   weightPanels
	dx, dy, gate, upOut tensor.Mat
}

func (f *gatedBackward) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	t, out := kernel.Active[float](), f.gate.Cols
	scratch := arena.Take[float](ar, kernel.MultiplyScratch(rowTile, max(out, f.dx.Cols)))
	wide := min(columnTile, out)
	tile, spare := viewMatrix(arena.Take[float](ar, (i1-i0)*wide), i1-i0, wide), arena.Take[float](ar, wide)
	dx, dy, gate, up := f.dx.Slice(i0, i1), f.dy.Slice(i0, i1), f.gate.Slice(i0, i1), f.upOut.Slice(i0, i1)
	for j := 0; j < out; j += columnTile {
		j1 := min(j+columnTile, out)
		d, g, u := viewColumns(tile, 0, j1-j), viewColumns(gate, j, j1), viewColumns(up, j, j1)
		f.downW.multiplyColumns(d, dy, j, false, scratch, nil)
		for i := range d.Rows {
			gateGrad(f.act, t, g.Row(i), u.Row(i), d.Row(i), spare[:j1-j])
		}
	}
	f.gateW.multiplyColumns(dx, gate, 0, false, scratch, nil)
	f.upW.multiplyColumns(dx, up, 0, true, scratch, nil)
}

// gateGrad overwrites gate and up with their gradients, from d of act(gate)∘up. It
// overwrites d and spare. All have one length.
func gateGrad(act Activation, t *kernel.Table[float], gate, up, d, spare []float) {
	if act == SiLU { // one sigmoid serves both
		setSigmoid(t, spare, gate)
		for i, s := range spare {
			g, u := gate[i], up[i]
			up[i] = d[i] * (s * g)
			gate[i] = d[i] * u * siluSlope(s, g)
		}
		return
	}
	activateElements(act, t, spare, gate)
	t.Mul(spare, spare, d)
	t.Mul(d, d, up)
	copy(up, spare)
	activateElementsGrad(act, t, gate, d, gate)
}

// Step adds to y [rows,width] the MLP of x [rows,width]. The error is nil.
func (m *gatedMLP) Step(y, x tensor.Mat, _ State, s Scope, trace Trace) error {
	return m.Forward(y, y, x, s, trace, false)
}

// packedGatedMLP is a GatedMLP for steps.
type packedGatedMLP struct {
	gateProj, upProj, downProj *PackedLinear
	act                        Activation
}

// Freeze returns the layer with packed weights, for steps of at most rows rows.
func (m *gatedMLP) Freeze(rows int) Stepper {
	return &packedGatedMLP{m.GateProj.Freeze(rows), m.UpProj.Freeze(rows), m.DownProj.Freeze(rows), m.Act}
}

// Step computes GatedMLP.Step with packed weights. For more than GEMVRows rows its products
// prefetch s.Next.
func (m *packedGatedMLP) Step(y, x tensor.Mat, _ State, s Scope, trace Trace) error {
	tr := trace.(*gatedMLPTrace)
	// Products read rows well that lie an odd number of cache lines apart.
	hidden := viewColumns(resizeMatrix(&tr.hidden, x.Rows, kernel.Stride(m.upProj.out)), 0, m.upProj.out)
	if m.upProj.hasPanels {
		across := (m.upProj.out + kernel.PanelColumns - 1) / kernel.PanelColumns
		down := (x.Rows + rowTile - 1) / rowTile
		par.Run(across*down, 1, 2*m.upProj.work*float64(x.Rows), gatedPanels{m, hidden, x, across})
	} else {
		gate, up := resizeMatrix(&tr.gate, x.Rows, m.upProj.out), resizeMatrix(&tr.upOut, x.Rows, m.upProj.out)
		m.gateProj.Forward(gate, x, false)
		m.upProj.Forward(up, x, false)
		gateRows(m.act, kernel.Active[float](), hidden, gate, up)
	}
	m.downProj.forwardActivated(y, hidden, true, noActivation, s.Next)
	return nil
}

// gatedPanels computes panels of columns of hidden, each for some rows.
type gatedPanels struct {
	m          *packedGatedMLP
	hidden, x  tensor.Mat
	panelCount int
}

func (f *gatedPanels) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	t := kernel.Active[float]()
	scratch := arena.Take[float](ar, kernel.MultiplyScratch(rowTile, f.x.Cols))
	size := min(rowTile, f.x.Rows) * kernel.PanelColumns
	gates, ups := arena.Take[float](ar, size), arena.Take[float](ar, size)
	for i := i0; i < i1; i++ {
		j, r := i%f.panelCount*kernel.PanelColumns, i/f.panelCount*rowTile
		x := f.x.Slice(r, min(r+rowTile, f.x.Rows))
		h := viewColumns(f.hidden.Slice(r, r+x.Rows), j, min(j+kernel.PanelColumns, f.hidden.Cols))
		gate, up := viewMatrix(gates, x.Rows, h.Cols), viewMatrix(ups, x.Rows, h.Cols)
		f.m.gateProj.panels.multiplyColumns(gate, x, j, false, scratch, nil)
		f.m.upProj.panels.multiplyColumns(up, x, j, false, scratch, nil)
		gateRows(f.m.act, t, h, gate, up)
	}
}
