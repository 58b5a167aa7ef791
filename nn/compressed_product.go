//go:build !float64

package nn

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// compression sets the weights of outputs to rows.
type compression struct {
	w    *Compressed
	rows tensor.Mat // [out,in]
}

func (f *compression) RunRange(i0, i1 int) {
	f.w.Set(i0, f.rows.Data[i0*f.rows.Cols:i1*f.rows.Cols])
}

// compressedRow sets dst to the row of a token.
func compressedRow(w *Compressed, dst []float, token int) { w.Row(dst, token) }

// compressedProduct is a rowProduct and the rows of x in 8 bits.
type compressedProduct struct {
	w          *Compressed
	y, x, base tensor.Mat
	acc        bool
	bias       []float32
	rows       kernel.ByteRows
}

// compressedProducts computes products in tiles, and applies an activation.
type compressedProducts struct {
	count int
	ps    [maxProducts]compressedProduct
	act   Activation
}

// areCompressed reports whether the layers of products have compressed weights. The products that
// are computed together all have, or none has.
func areCompressed(ps []rowProduct) bool { return ps[0].layer.compressed != nil }

// multiplyCompressed computes products y = act(base + x·Wᵀ + b) with compressed weights.
func multiplyCompressed(act Activation, ps ...rowProduct) {
	ar := arena.Acquire()
	defer ar.Release()
	f := compressedProducts{count: len(ps), act: act}
	pieces, work := 0, 0.0
	for i, p := range ps {
		q := compressedProduct{w: p.layer.compressed, y: p.y, x: p.x, base: p.base, acc: p.acc}
		if p.layer.B != nil {
			q.bias = p.layer.B.Data
		}
		if q.w.bytes != nil {
			if i > 0 && isSameView(p.x, ps[i-1].x) {
				q.rows = f.ps[i-1].rows
			} else {
				q.rows = quantiseRows(ar, q.x)
			}
		}
		f.ps[i] = q
		pieces += q.pieces()
		work += 2 * float64(p.x.Rows) * p.layer.weightSize()
	}
	size := 1
	if ps[0].x.Rows <= GEMVRows {
		size = stripsPerPiece // a tile of few rows is little work
	}
	par.Run(pieces, size, work, f)
}

// quantiseWork is the arithmetic that an element is worth: 0.2 ns.
const quantiseWork = 20

// quantiseRows returns the rows of x in 8 bits.
func quantiseRows(ar *arena.Arena, x tensor.Mat) kernel.ByteRows {
	rows := kernel.ByteRows{
		Data:   arena.Take[int8](ar, x.Rows*kernel.ByteStride(x.Cols)),
		Scales: arena.Take[float32](ar, x.Rows), Sums: arena.Take[int32](ar, x.Rows), Counts: arena.Take[int32](ar, x.Rows),
		Steps: arena.Take[int32](ar, x.Rows*kernel.MaxOutliers), Values: arena.Take[float32](ar, x.Rows*kernel.MaxOutliers),
	}
	if kernel.ActiveBytes().HasWords() {
		rows.Words = arena.Take[int16](ar, len(rows.Data))
	}
	par.Run(x.Rows, rowsForward, quantiseWork*float64(x.Rows)*float64(x.Cols), rowQuantiser{rows, x})
	return rows
}

type rowQuantiser struct {
	rows kernel.ByteRows
	x    tensor.Mat
}

func (f *rowQuantiser) RunRange(i0, i1 int) {
	t := kernel.ActiveBytes()
	for i := i0; i < i1; i++ {
		f.rows.Quantise(t, i, f.x.Row(i))
	}
}

// pieces returns the number of tiles.
func (p *compressedProduct) pieces() int {
	return (p.y.Rows + compressedRows - 1) / compressedRows * p.across()
}

func (p *compressedProduct) across() int {
	return (p.y.Cols + compressedColumns - 1) / compressedColumns
}

func (f *compressedProducts) RunRange(t0, t1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	scratch := arena.Take[float32](ar, max(kernel.HalfScratch, compressedRows*compressedColumns+kernel.ByteScratch(compressedRows)))
	for t := t0; t < t1; t++ {
		at, piece := 0, t
		for piece >= f.ps[at].pieces() {
			piece -= f.ps[at].pieces()
			at++
		}
		p := &f.ps[at]
		i, j := piece/p.across()*compressedRows, piece%p.across()*compressedColumns
		i1, j1 := min(i+compressedRows, p.y.Rows), min(j+compressedColumns, p.y.Cols)
		y := viewColumns(p.y.Slice(i, i1), j, j1)
		if p.base.Rows > 0 {
			copyRows(y, viewColumns(p.base.Slice(i, i1), j, j1))
		}
		p.multiplyTile(y, i, j, scratch)
		activateRows(f.act, kernel.Active[float32](), y, y)
	}
}

// multiplyTile sets y, the columns from j on of rows from i on, to the product, or adds it.
func (p *compressedProduct) multiplyTile(y tensor.Mat, i, j int, scratch []float32) {
	t := kernel.Active[float32]()
	if p.w.halves != nil {
		strip := j / compressedColumns // strips have as many columns as tiles
		c := p.y.Data[i*p.y.Stride:]
		p.w.halves.Multiply(kernel.ActiveHalf(), strip, strip+1, y.Rows, p.x.Data[i*p.x.Stride:], p.x.Stride, p.acc, c, p.y.Stride, scratch)
		if p.bias != nil {
			t.AddRows(y.Data, y.Stride, y.Data, y.Stride, p.bias[j:], 0, y.Rows, y.Cols)
		}
		return
	}
	rows := p.rows.Rows(i, p.x.Cols)
	if !p.acc {
		p.w.bytes.Multiply(kernel.ActiveBytes(), y.Rows, &rows, j, j+y.Cols, y.Data, y.Stride, p.bias, scratch)
		return
	}
	sum, scratch := scratch[:compressedRows*compressedColumns], scratch[compressedRows*compressedColumns:]
	p.w.bytes.Multiply(kernel.ActiveBytes(), y.Rows, &rows, j, j+y.Cols, sum, compressedColumns, p.bias, scratch)
	t.AddRows(y.Data, y.Stride, y.Data, y.Stride, sum, compressedColumns, y.Rows, y.Cols)
}
