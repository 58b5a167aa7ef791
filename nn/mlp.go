package nn

import (
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// MLP is DownProj(act(UpProj(x))).
type MLP[T tensor.Float] struct {
	UpProj   Linear[T] // [hidden,width]
	DownProj Linear[T] // [width,hidden]
	Act      Activation
}

// mlpTrace holds the intermediate results of MLP.Forward for Backward.
type mlpTrace[T tensor.Float] struct {
	pre, act []T // [rows,hidden], before and after the activation
}

// Aux returns 0: the layer has no auxiliary loss.
func (t *mlpTrace[T]) Aux() float64 { return 0 }

func (t *mlpTrace[T]) viewUnits(rows, hidden int) (pre, act tensor.Mat[T]) {
	return viewMatrix(t.pre, rows, hidden), viewMatrix(t.act, rows, hidden)
}

// NewTrace returns an empty mlpTrace.
func (m *MLP[T]) NewTrace() Trace[T] { return new(mlpTrace[T]) }

// FLOPs counts both products.
func (m *MLP[T]) FLOPs(n int, _ bool) float64 {
	return 2 * float64(n) * (m.UpProj.weightSize() + m.DownProj.weightSize())
}

// Forward sets y [rows,width] to base [rows,width] plus the MLP of x [rows,width]. y may
// be base, but not x. The error is nil.
func (m *MLP[T]) Forward(y, base, x tensor.Mat[T], _ Scope[T], trace Trace[T], keep bool) error {
	if !keep {
		m.forwardOnce(y, base, x, trace.(*mlpTrace[T]))
		return nil
	}
	tr, hidden := trace.(*mlpTrace[T]), m.UpProj.W.Shape[0]
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
	par.Run(x.Rows, rowPiece(x.Rows), m.forwardWork(x.Rows), mlpForward[T]{m.Act, m.UpProj.packWeights(ar, true), m.DownProj.packWeights(ar, true), y, base, x, pre, act})
	return nil
}

// forwardOnce is Forward without Backward. It keeps the units of few rows at a time.
func (m *MLP[T]) forwardOnce(y, base, x tensor.Mat[T], tr *mlpTrace[T]) {
	hidden := m.UpProj.W.Shape[0]
	if m.UpProj.compressed != nil {
		for i := 0; i < x.Rows; i += compressedUnits {
			x, y, base := x.Slice(i, min(i+compressedUnits, x.Rows)), y.Slice(i, min(i+compressedUnits, x.Rows)), base
			if base.Rows > 0 {
				base = base.Slice(i, i+x.Rows)
			}
			units := resizeMatrix(&tr.act, x.Rows, hidden)
			multiplyCompressed(m.Act, rowProduct[T]{layer: &m.UpProj, y: units, x: x})
			multiplyRows(true, rowProduct[T]{layer: &m.DownProj, y: y, x: units, base: base, acc: true})
		}
		return
	}
	if x.Rows <= rowTile {
		units := viewColumns(resizeMatrix(&tr.act, x.Rows, kernel.Stride(hidden)), 0, hidden)
		up := rowProduct[T]{layer: &m.UpProj, y: units, x: x}
		if m.UpProj.packed != nil {
			multiplyPacked(m.Act, up)
		} else {
			multiplyRows(true, up)
			Activate(m.Act, units, units)
		}
		multiplyRows(true, rowProduct[T]{layer: &m.DownProj, y: y, x: units, base: base, acc: true})
		return
	}
	ar := arena.Acquire()
	defer ar.Release()
	par.Run(x.Rows, rowPiece(x.Rows), m.forwardWork(x.Rows), mlpForward[T]{activation: m.Act, upProj: m.UpProj.packWeights(ar, true), downProj: m.DownProj.packWeights(ar, true), y: y, base: base, x: x})
}

// mlpForward computes pieces of rows. The units are in pre and act, or in scratch memory
// where pre has no rows.
type mlpForward[T tensor.Float] struct {
	activation           Activation
	upProj, downProj     weightPanels[T]
	y, base, x, pre, act tensor.Mat[T]
}

func (f *mlpForward[T]) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	k, hidden := kernel.Active[T](), f.upProj.panels.N
	scratch := arena.Take[T](ar, kernel.MultiplyScratch(rowTile, max(hidden, f.x.Cols)))
	x, y := f.x.Slice(i0, i1), f.y.Slice(i0, i1)
	var pre, act tensor.Mat[T]
	if f.pre.Rows > 0 {
		pre, act = f.pre.Slice(i0, i1), f.act.Slice(i0, i1)
	} else {
		stride := kernel.Stride(hidden)
		act = viewColumns(viewMatrix(arena.Take[T](ar, (i1-i0)*stride), i1-i0, stride), 0, hidden)
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

// forwardWork is the arithmetic of a pass over rows, once through both layers.
func (m *MLP[T]) forwardWork(rows int) float64 {
	return 2 * float64(rows) * float64(len(m.UpProj.W.Data)+len(m.DownProj.W.Data))
}

// Backward sets dx [rows,width] from dy [rows,width] and adds to the gradients of the
// weights. dx overlaps neither dy nor x. It overwrites the trace. The error is nil.
func (m *MLP[T]) Backward(dx, dy, x tensor.Mat[T], trace Trace[T], _ *Scratch[T]) error {
	tr, hidden := trace.(*mlpTrace[T]), m.UpProj.W.Shape[0]
	pre, act := tr.viewUnits(x.Rows, hidden)
	ar := arena.Acquire()
	defer ar.Release()
	par.Run(x.Rows, rowPiece(x.Rows), m.forwardWork(x.Rows), mlpBackward[T]{m.Act, m.UpProj.packWeights(ar, false), m.DownProj.packWeights(ar, false), dx, dy, pre})
	// pre is its own gradient from here on.
	addWeights(weightGrad[T]{&m.DownProj, dy, act}, weightGrad[T]{&m.UpProj, pre, x})
	return nil
}

// Step adds to y [rows,width] the MLP of x [rows,width]. The error is nil.
func (m *MLP[T]) Step(y, x tensor.Mat[T], _ State[T], s Scope[T], trace Trace[T]) error {
	return m.Forward(y, y, x, s, trace, false)
}

type mlpBackward[T tensor.Float] struct {
	activation       Activation
	upProj, downProj weightPanels[T]
	dx, dy, pre      tensor.Mat[T]
}

func (f *mlpBackward[T]) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	k, hidden := kernel.Active[T](), f.pre.Cols
	scratch := arena.Take[T](ar, kernel.MultiplyScratch(rowTile, max(hidden, f.dx.Cols)))
	wide := min(columnTile, hidden)
	room := viewMatrix(arena.Take[T](ar, (i1-i0)*wide), i1-i0, wide)
	dy, pre := f.dy.Slice(i0, i1), f.pre.Slice(i0, i1)
	for j := 0; j < hidden; j += columnTile {
		j1 := min(j+columnTile, hidden)
		dact, dpre := viewColumns(room, 0, j1-j), viewColumns(pre, j, j1)
		f.downProj.multiplyColumns(dact, dy, j, false, scratch, nil)
		activateRowsGrad(f.activation, k, dpre, dact, dpre)
	}
	f.upProj.multiplyColumns(f.dx.Slice(i0, i1), pre, 0, false, scratch, nil)
}
