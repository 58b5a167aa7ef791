package nn

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Linear is y = x·Wᵀ + b.
type Linear struct {
	W *param.Param // [out,in]
	B *param.Param // [out]; nil: none

	packed     *weightPanels // of PackWeights; nil: none
	compressed *Compressed   // of Compress, in place of W's numbers; nil: none
}

// weightSize returns the number of elements of W, also if they have been dropped; 0 without W.
func (l *Linear) weightSize() float64 {
	if l.W == nil {
		return 0
	}
	return float64(l.W.Shape[0]) * float64(l.W.Shape[1])
}

func (l *Linear) viewWeight(data []float) tensor.Mat {
	return viewMatrix(data, l.W.Shape[0], l.W.Shape[1])
}

// Forward sets y [rows,out] to x·Wᵀ + B for x [rows,in], or adds it to y if acc is set.
func (l *Linear) Forward(y, x tensor.Mat, acc bool) {
	multiplyRows(true, rowProduct{layer: l, y: y, x: x, acc: acc})
}

// Backward sets dx [rows,in] from dy [rows,out], or adds to dx if acc is set. It adds
// to the gradients of the weights. x [rows,in] is the argument of Forward. dx may be x,
// which is then overwritten.
func (l *Linear) Backward(dx, dy, x tensor.Mat, acc bool) {
	addWeights(weightGrad{l, dy, x})
	multiplyRows(false, rowProduct{layer: l, y: dx, x: dy, acc: acc})
}

// BackwardWeights adds to the gradients of the weights from dy [rows,out] and x [rows,in].
// Unlike Backward it computes no dx.
func (l *Linear) BackwardWeights(dy, x tensor.Mat) { addWeights(weightGrad{l, dy, x}) }

// Tiles of a product. An element's bits do not depend on them.
const (
	rowTile    = 128
	columnTile = 2 * kernel.PanelColumns
	sumTile    = 4 * kernel.Lanes // columns that are summed at a time
	// fewTiles is the number of tiles below which tiles are made smaller, to occupy more
	// workers.
	fewTiles = 8
)

// rowPiece returns how many of the given number of rows are multiplied at a time.
func rowPiece(rows int) int {
	return max(rowTile/4, min(rowTile, kernel.Pad(rows/8)))
}

// rowProduct is y = x·Wᵀ + b, or y = x·W for gradients. With acc it is added to y, or if base
// has rows, y is set to base plus the product.
type rowProduct struct {
	layer      *Linear
	y, x, base tensor.Mat
	acc        bool
}

// maxProducts is the largest number of products, or of gradients, that are computed together.
const maxProducts = 4

// multiplyRows computes products with the same number of rows. For each row they are computed in
// order. forward selects x·Wᵀ + b, else x·W.
func multiplyRows(forward bool, ps ...rowProduct) {
	if forward && areCompressed(ps) {
		multiplyCompressed(noActivation, ps...)
		return
	}
	rows, work := ps[0].x.Rows, 0.0
	if forward && rows <= rowTile && arePacked(ps) {
		multiplyPacked(noActivation, ps...)
		return
	}
	if rows <= rowTile {
		// Too few to pack the weights for.
		for _, p := range ps {
			q := product{a: p.x, b: p.layer.viewWeight(p.layer.W.Data), tb: forward, c: p.y, k: p.x.Cols, acc: p.acc}
			if forward && p.layer.B != nil {
				q.bias = p.layer.B.Data
			}
			copyRows(p.y, p.base)
			runProducts(rowTile, q)
		}
		return
	}
	ar := arena.Acquire()
	defer ar.Release()
	f := rowProducts{count: len(ps)}
	for i, p := range ps {
		f.ps[i], f.ws[i] = p, p.layer.packWeights(ar, forward)
		work += 2 * float64(rows) * float64(len(p.layer.W.Data))
		f.depth = max(f.depth, p.x.Cols)
	}
	par.Run(rows, rowPiece(rows), work, f)
}

// rowProducts computes products with packed weights.
type rowProducts struct {
	count, depth int
	ps           [maxProducts]rowProduct
	ws           [maxProducts]weightPanels
}

func (f *rowProducts) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	scratch := arena.Take[float](ar, kernel.MultiplyScratch(rowTile, f.depth))
	for i := range f.count {
		p := &f.ps[i]
		y := p.y.Slice(i0, i1)
		if p.base.Rows > 0 {
			copyRows(y, p.base.Slice(i0, i1))
		}
		f.ws[i].multiplyColumns(y, p.x.Slice(i0, i1), 0, p.acc, scratch, nil)
	}
}

// weightPanels holds the packed operand of products with many rows: Wᵀ and the bias, or
// W.
type weightPanels struct {
	panels kernel.Panels[float]
	bias   []float // nil: none
}

// packWork is the cost of copying an element in operations.
const packWork = 8

// packWeights returns the packed weights for x·Wᵀ + b if forward is set, else for x·W. Memory is
// taken from ar unless PackWeights has kept a copy.
func (l *Linear) packWeights(ar *arena.Arena, forward bool) weightPanels {
	out, in := l.W.Shape[0], l.W.Shape[1]
	if forward {
		if l.packed != nil {
			return *l.packed
		}
		return l.packWeightsIn(arena.Take[float](ar, kernel.PanelsSize(out, in)), true)
	}
	return l.packWeightsIn(arena.Take[float](ar, kernel.PanelsSize(in, out)), false)
}

// packWeightsIn packs the weights into data.
func (l *Linear) packWeightsIn(data []float, forward bool) weightPanels {
	out, in := l.W.Shape[0], l.W.Shape[1]
	n, k := in, out
	var w weightPanels
	if forward {
		n, k = out, in
		if l.B != nil {
			w.bias = l.B.Data
		}
	}
	w.panels = kernel.NewPanels(kernel.Active[float](), n, k, data)
	par.Run(w.panels.Pieces(), 1, packWork*float64(len(l.W.Data)), packing{w.panels, forward, l.W.Data, in})
	return w
}

// packing copies weights to panels.
type packing struct {
	panels  kernel.Panels[float]
	trans   bool
	weights []float
	ld      int
}

func (f *packing) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		f.panels.Pack(i, f.trans, f.weights, f.ld)
	}
}

// multiplyColumns sets y to its y.Cols columns from j on of the product for x, or adds them with
// acc, on the calling goroutine. j needs to be a multiple of kernel.Lanes. Meanwhile it prefetches
// the memory ahead, and returns the part that it had no time for.
func (w *weightPanels) multiplyColumns(y, x tensor.Mat, j int, acc bool, scratch, ahead []float) (rest []float) {
	return w.panels.Multiply(false, y.Rows, x.Data, x.Stride, j, j+y.Cols, acc, y.Data, y.Stride, w.bias, scratch, ahead)
}

// weightGrad computes the gradient dyᵀ·x of a layer's weights.
type weightGrad struct {
	layer *Linear
	dy, x tensor.Mat
}

// addWeights adds to the gradients of layers. Each sum over rows is computed within one tile.
func addWeights(gs ...weightGrad) {
	var ps [maxProducts]product
	for i, g := range gs {
		ps[i] = product{a: g.dy, ta: true, b: g.x, c: g.layer.viewWeight(g.layer.W.Grad), k: g.x.Rows, acc: true}
		if g.layer.B != nil {
			ps[i].sum = g.layer.B.Grad
		}
	}
	rows := 2 * rowTile
	if countTiles(ps[:len(gs)], rows) < fewTiles {
		rows = rowTile
	}
	runProducts(rows, ps[:len(gs)]...)
}

// product is C = op(A)·op(B), or C += op(A)·op(B), plus bias in every row.
type product struct {
	a, b, c tensor.Mat
	ta, tb  bool // A is stored [k,m]; B is stored [n,k]
	k       int
	acc     bool
	bias    []float
	sum     []float // [m] sums of the rows of A, stored [k,m]; nil: none
}

// runProducts computes products in tiles of at most the given number of rows.
func runProducts(rows int, ps ...product) {
	var work float64
	f := products{count: len(ps), rows: rows}
	for i := range ps {
		f.ps[i] = ps[i]
		work += 2 * float64(ps[i].c.Rows) * float64(ps[i].c.Cols) * float64(ps[i].k)
	}
	pieces := countTiles(ps, rows)
	for i := range ps {
		pieces += ps[i].sumPieces()
	}
	par.Run(pieces, 1, work, f)
}

// products computes products in tiles.
type products struct {
	count, rows int
	ps          [maxProducts]product
}

func (f *products) RunRange(t0, t1 int) {
	for t := t0; t < t1; t++ {
		f.runTile(t)
	}
}

// runTile computes piece t: the tiles of all products are numbered first, then their sums of rows.
func (f *products) runTile(t int) {
	for i := range f.count {
		p := &f.ps[i]
		down, across := p.tileCounts(f.rows)
		if t < down*across {
			rows, cols := evenSize(p.c.Rows, f.rows), evenSize(p.c.Cols, columnTile)
			i, j := t/across*rows, t%across*cols
			p.multiplyTile(i, min(i+rows, p.c.Rows), j, min(j+cols, p.c.Cols))
			return
		}
		t -= down * across
	}
	for i := range f.count {
		p := &f.ps[i]
		if t < p.sumPieces() {
			s := rowSum{p.sum, p.a}
			s.RunRange(t*sumTile, min((t+1)*sumTile, len(p.sum)))
			return
		}
		t -= p.sumPieces()
	}
}

// sumPieces returns the number of pieces of the sum of A's rows.
func (p *product) sumPieces() int { return (len(p.sum) + sumTile - 1) / sumTile }

// countTiles returns the number of tiles of at most the given number of rows.
func countTiles(ps []product, rows int) (n int) {
	for i := range ps {
		down, across := ps[i].tileCounts(rows)
		n += down * across
	}
	return n
}

// tileCounts returns the number of tiles of at most the given number of rows that cover C, down
// and across.
func (p *product) tileCounts(rows int) (down, across int) {
	m, n := p.c.Rows, p.c.Cols
	if m == 0 || n == 0 {
		return 0, 0
	}
	rows, cols := evenSize(m, rows), evenSize(n, columnTile)
	return (m + rows - 1) / rows, (n + cols - 1) / cols
}

// evenSize returns the size of about equal pieces of at most most elements that cover n, padded for
// kernels.
func evenSize(n, most int) int {
	pieces := (n + most - 1) / most
	return kernel.Pad((n + pieces - 1) / pieces)
}

func (p *product) multiplyTile(i0, i1, j0, j1 int) {
	t := kernel.Active[float]()
	ar := arena.Acquire()
	defer ar.Release()
	a, b, c := p.a.Data, p.b.Data, p.c.Data[i0*p.c.Stride+j0:]
	if p.k > 0 {
		if p.ta {
			a = a[i0:]
		} else {
			a = a[i0*p.a.Stride:]
		}
		if p.tb {
			b = b[j0*p.b.Stride:]
		} else {
			b = b[j0:]
		}
	}
	m, n := i1-i0, j1-j0
	scratch := arena.Take[float](ar, kernel.GemmScratch(m, n, p.k))
	kernel.Gemm(t, p.ta, p.tb, m, n, p.k, a, p.a.Stride, b, p.b.Stride, p.acc, c, p.c.Stride, scratch)
	if p.bias != nil {
		t.AddRows(c, p.c.Stride, c, p.c.Stride, p.bias[j0:], 0, m, n)
	}
}

// addRows adds the rows of x to sum, from the first to the last.
func addRows(sum []float, x tensor.Mat) {
	par.Run(x.Cols, sumTile, float64(x.Rows)*float64(x.Cols), rowSum{sum, x})
}

type rowSum struct {
	sum []float
	x   tensor.Mat
}

func (f *rowSum) RunRange(j0, j1 int) {
	if f.x.Rows > 0 {
		kernel.Active[float]().SumRows(f.sum[j0:j1], f.x.Data[j0:], f.x.Stride, f.x.Rows)
	}
}
