package nn

import (
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// mlp is DownProj(act(UpProj(x))).
type mlp struct {
	UpProj   Linear // [hidden,width]
	DownProj Linear // [width,hidden]
	Act      Activation
}

// NewMLP returns the branch down(act(up(x))), for up [hidden,width] and down [width,hidden].
func NewMLP(up, down Linear, act Activation) Branch { return &mlp{up, down, act} }

// mlpTrace holds the intermediate results of MLP.Forward for Backward.
type mlpTrace struct {
	pre, act []float // [rows,hidden], before and after the activation
}

// Aux returns 0: the layer has no auxiliary loss.
func (t *mlpTrace) Aux() float64 { return 0 }

func (t *mlpTrace) viewUnits(rows, hidden int) (pre, act tensor.Mat) {
	return viewMatrix(t.pre, rows, hidden), viewMatrix(t.act, rows, hidden)
}

// NewTrace returns an empty mlpTrace.
func (m *mlp) NewTrace() Trace { return new(mlpTrace) }

// FLOPs returns the operations of both products for n rows.
func (m *mlp) FLOPs(n int, _ bool) float64 {
	return 2 * float64(n) * (m.UpProj.weightSize() + m.DownProj.weightSize())
}

// Forward sets y [rows,width] to base [rows,width] plus the MLP of x [rows,width]. y may
// be base, but not x. The error is nil.
func (m *mlp) Forward(y, base, x tensor.Mat, _ Scope, trace Trace, keep bool) error {
	if !keep {
		m.forwardOnce(y, base, x, trace.(*mlpTrace))
		return nil
	}
	tr, hidden := trace.(*mlpTrace), m.UpProj.W.Shape[0]
	tr.pre = slices.Grow(tr.pre[:0], x.Rows*hidden)[:x.Rows*hidden]
	tr.act = slices.Grow(tr.act[:0], x.Rows*hidden)[:x.Rows*hidden]
	pre, act := tr.viewUnits(x.Rows, hidden)
	if x.Rows <= rowTile {
		m.UpProj.Forward(pre, x, false)
		Activate(m.Act, act, pre)
		copyRows(y, base)
		m.DownProj.Forward(y, act, true)
		return nil
	}
	ar := arena.Acquire()
	defer ar.Release()
	par.Run(x.Rows, rowPiece(x.Rows), m.forwardWork(x.Rows), mlpForward{m.Act, m.UpProj.packWeights(ar, true), m.DownProj.packWeights(ar, true), y, base, x, pre, act})
	return nil
}

// forwardOnce computes Forward without saving anything for Backward. It holds the hidden units of
// a few rows at a time.
func (m *mlp) forwardOnce(y, base, x tensor.Mat, tr *mlpTrace) {
	hidden := m.UpProj.W.Shape[0]
	if m.UpProj.compressed != nil {
		for i := 0; i < x.Rows; i += compressedUnits {
			x, y, base := x.Slice(i, min(i+compressedUnits, x.Rows)), y.Slice(i, min(i+compressedUnits, x.Rows)), base
			if base.Rows > 0 {
				base = base.Slice(i, i+x.Rows)
			}
			units := resizeMatrix(&tr.act, x.Rows, hidden)
			multiplyCompressed(m.Act, rowProduct{layer: &m.UpProj, y: units, x: x})
			multiplyRows(true, rowProduct{layer: &m.DownProj, y: y, x: units, base: base, acc: true})
		}
		return
	}
	if x.Rows <= rowTile {
		units := viewColumns(resizeMatrix(&tr.act, x.Rows, kernel.Stride(hidden)), 0, hidden)
		up := rowProduct{layer: &m.UpProj, y: units, x: x}
		if m.UpProj.packed != nil {
			multiplyPacked(m.Act, up)
		} else {
			multiplyRows(true, up)
			Activate(m.Act, units, units)
		}
		multiplyRows(true, rowProduct{layer: &m.DownProj, y: y, x: units, base: base, acc: true})
		return
	}
	ar := arena.Acquire()
	defer ar.Release()
	par.Run(x.Rows, rowPiece(x.Rows), m.forwardWork(x.Rows), mlpForward{activation: m.Act, upProj: m.UpProj.packWeights(ar, true), downProj: m.DownProj.packWeights(ar, true), y: y, base: base, x: x})
}

// mlpForward computes Forward for pieces of rows. The hidden units are in pre and act, or in
// scratch memory if pre has no rows.
type mlpForward struct {
	activation           Activation
	upProj, downProj     weightPanels
	y, base, x, pre, act tensor.Mat
}

func (f *mlpForward) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	k, hidden := kernel.Active[float](), f.upProj.panels.N
	scratch := arena.Take[float](ar, kernel.MultiplyScratch(rowTile, max(hidden, f.x.Cols)))
	x, y := f.x.Slice(i0, i1), f.y.Slice(i0, i1)
	var pre, act tensor.Mat
	if f.pre.Rows > 0 {
		pre, act = f.pre.Slice(i0, i1), f.act.Slice(i0, i1)
	} else {
		stride := kernel.Stride(hidden)
		act = viewColumns(viewMatrix(arena.Take[float](ar, (i1-i0)*stride), i1-i0, stride), 0, hidden)
		pre = act
	}
	for j := 0; j < hidden; j += columnTile {
		j1 := min(j+columnTile, hidden)
		from, to := viewColumns(pre, j, j1), viewColumns(act, j, j1)
		f.upProj.multiplyColumns(from, x, j, false, scratch, nil)
		activateRows(f.activation, k, to, from)
	}
	copyRows(y, f.base.Slice(i0, i1))
	f.downProj.multiplyColumns(y, act, 0, true, scratch, nil)
}

// forwardWork returns the operations of one pass through both layers.
func (m *mlp) forwardWork(rows int) float64 {
	return 2 * float64(rows) * float64(len(m.UpProj.W.Data)+len(m.DownProj.W.Data))
}

// Backward sets dx [rows,width] from dy [rows,width] and adds to the gradients of the
// weights. dx overlaps neither dy nor x. It overwrites the trace. The error is nil.
func (m *mlp) Backward(dx, dy, x tensor.Mat, trace Trace, _ *Scratch) error {
	tr, hidden := trace.(*mlpTrace), m.UpProj.W.Shape[0]
	pre, act := tr.viewUnits(x.Rows, hidden)
	ar := arena.Acquire()
	defer ar.Release()
	par.Run(x.Rows, rowPiece(x.Rows), m.forwardWork(x.Rows), mlpBackward{m.Act, m.UpProj.packWeights(ar, false), m.DownProj.packWeights(ar, false), dx, dy, pre})
	// pre is its own gradient from here on.
	addWeights(weightGrad{&m.DownProj, dy, act}, weightGrad{&m.UpProj, pre, x})
	return nil
}

// Step adds to y [rows,width] the MLP of x [rows,width]. The error is nil.
func (m *mlp) Step(y, x tensor.Mat, _ State, s Scope, trace Trace) error {
	return m.Forward(y, y, x, s, trace, false)
}

type mlpBackward struct {
	activation       Activation
	upProj, downProj weightPanels
	dx, dy, pre      tensor.Mat
}

func (f *mlpBackward) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	k, hidden := kernel.Active[float](), f.pre.Cols
	scratch := arena.Take[float](ar, kernel.MultiplyScratch(rowTile, max(hidden, f.dx.Cols)))
	wide := min(columnTile, hidden)
	room := viewMatrix(arena.Take[float](ar, (i1-i0)*wide), i1-i0, wide)
	dy, pre := f.dy.Slice(i0, i1), f.pre.Slice(i0, i1)
	for j := 0; j < hidden; j += columnTile {
		j1 := min(j+columnTile, hidden)
		dact, dpre := viewColumns(room, 0, j1-j), viewColumns(pre, j, j1)
		f.downProj.multiplyColumns(dact, dy, j, false, scratch, nil)
		activateRowsGrad(f.activation, k, dpre, dact, dpre)
	}
	f.upProj.multiplyColumns(f.dx.Slice(i0, i1), pre, 0, false, scratch, nil)
}
