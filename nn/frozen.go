package nn

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
)

// WeightPacker is a layer that can keep a packed copy of its weights for Forward.
type WeightPacker interface {
	// PackWeights packs the weights. Results are bitwise the same. Until DropPacked the
	// weights must not change.
	PackWeights()
	// DropPacked drops the copy.
	DropPacked()
}

// PackWeights keeps a packed copy of W, which Forward then reads. Until DropPacked W
// must not change.
func (l *Linear) PackWeights() {
	if l.W == nil || l.packed != nil || l.compressed != nil {
		return
	}
	w := l.packPanels()
	l.packed = &w
}

// packPanels returns the packed weights of Forward in newly allocated memory.
func (l *Linear) packPanels() weightPanels {
	data := make([]float, kernel.PanelsSize(l.W.Shape[0], l.W.Shape[1]))
	arena.AdviseHugePages(data)
	return l.packWeightsIn(data, true)
}

// DropPacked drops the copy of PackWeights.
func (l *Linear) DropPacked() { l.packed = nil }

// PackWeights packs the weights of the projections.
func (a *Attention) PackWeights() { packAll(&a.Q, &a.K, &a.V, &a.O) }

// DropPacked drops the copies of PackWeights.
func (a *Attention) DropPacked() { dropAll(&a.Q, &a.K, &a.V, &a.O) }

// PackWeights packs the weights of the projections.
func (c CrossAttention) PackWeights() { c.Layer.PackWeights() }

// DropPacked drops the copies of PackWeights.
func (c CrossAttention) DropPacked() { c.Layer.DropPacked() }

// PackWeights packs the weights of both layers.
func (m *mlp) PackWeights() { packAll(&m.UpProj, &m.DownProj) }

// DropPacked drops the copies of PackWeights.
func (m *mlp) DropPacked() { dropAll(&m.UpProj, &m.DownProj) }

// PackWeights packs the weights of the three layers.
func (m *gatedMLP) PackWeights() { packAll(&m.GateProj, &m.UpProj, &m.DownProj) }

// DropPacked drops the copies of PackWeights.
func (m *gatedMLP) DropPacked() { dropAll(&m.GateProj, &m.UpProj, &m.DownProj) }

func packAll(layers ...*Linear) {
	for _, l := range layers {
		l.PackWeights()
	}
}

func dropAll(layers ...*Linear) {
	for _, l := range layers {
		l.DropPacked()
	}
}

// packedColumns returns the number of columns of a piece of a product [rows,n] of few rows. Narrow panels
// are prefetched up to the end of a piece, and few rows wait for memory: they have wider pieces, four or more.
func packedColumns(rows, n int) int {
	const least = kernel.PanelColumns / 2
	if rows > rowTile/4 || kernel.Active[float]().PanelWidth == 0 {
		return least
	}
	return max(least, min(3*least, kernel.Pad(n/4)))
}

// packedProducts computes products of few rows with packed weights, in pieces of
// columns, and applies an activation.
type packedProducts struct {
	count int
	ps    [maxProducts]rowProduct
	act   Activation
}

// multiplyPacked computes products y = act(base + x·Wᵀ + b) of at most rowTile rows,
// whose layers have packed weights.
func multiplyPacked(act Activation, ps ...rowProduct) {
	f := packedProducts{count: len(ps), act: act}
	pieces, work := 0, 0.0
	for i, p := range ps {
		f.ps[i] = p
		pieces += p.packedPieces()
		work += 2 * float64(p.x.Rows) * float64(len(p.layer.W.Data))
	}
	par.Run(pieces, 1, work, f)
}

// packedPieces returns the number of pieces of columns.
func (p *rowProduct) packedPieces() int {
	columns := packedColumns(p.y.Rows, p.y.Cols)
	return (p.y.Cols + columns - 1) / columns
}

func (f *packedProducts) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	t, depth := kernel.Active[float](), 0
	for i := range f.count {
		depth = max(depth, f.ps[i].x.Cols)
	}
	scratch := arena.Take[float](ar, kernel.MultiplyScratch(rowTile, depth))
	for i := i0; i < i1; i++ {
		at, piece := 0, i
		for piece >= f.ps[at].packedPieces() {
			piece -= f.ps[at].packedPieces()
			at++
		}
		p := &f.ps[at]
		columns := packedColumns(p.y.Rows, p.y.Cols)
		j := piece * columns
		j1 := min(j+columns, p.y.Cols)
		y := viewColumns(p.y, j, j1)
		if p.base.Rows > 0 {
			copyRows(y, viewColumns(p.base, j, j1))
		}
		p.layer.packed.multiplyColumns(y, p.x, j, p.acc, scratch, nil)
		activateRows(f.act, t, y, y)
	}
}

// arePacked reports whether the layers of all products have packed weights.
func arePacked(ps []rowProduct) bool {
	for _, p := range ps {
		if p.layer.packed == nil {
			return false
		}
	}
	return true
}
