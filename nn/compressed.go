package nn

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Precision says how the weights of products are held.
type Precision int

const (
	// Float32 holds weights as they are.
	Float32 Precision = iota
	// BFloat16 holds the upper 16 bits of weights. Arithmetic is that of float32.
	BFloat16
	// Int8 holds integers from -127 to 127 with a scale for each output, and rounds
	// each row that they multiply to such integers with a scale of its own.
	Int8
)

var precisionNames = []string{"f32", "bf16", "int8"}

func (p Precision) String() string { return precisionNames[p] }

// ParsePrecision returns the precision of that name. It returns an error if there is none.
func ParsePrecision(name string) (Precision, error) {
	for i, n := range precisionNames {
		if n == name {
			return Precision(i), nil
		}
	}
	return 0, fmt.Errorf("precision %q: unknown; there are f32, bf16 and int8", name)
}

// compressedWeights holds the weights [out,in] of a layer in fewer bits.
type compressedWeights struct {
	bytes  *kernel.BytePanels
	halves *kernel.HalfStrips // in place of bytes
}

// Compress holds the weights in fewer bits and drops W's numbers: the layer can then neither
// learn nor be saved. It returns an error if T is not float32 or the weights do not fit.
func (l *Linear[T]) Compress(p Precision) error {
	if l.W == nil || p == Float32 {
		return nil
	}
	data, is := any(l.W.Data).([]float32)
	if !is {
		return errors.New("weights of float64 are not held in fewer bits")
	}
	if l.compressed != nil {
		return fmt.Errorf("%s: is held in fewer bits already", l.W.Name)
	}
	out, in := l.W.Shape[0], l.W.Shape[1]
	w := new(compressedWeights)
	work := packWork * float64(out) * float64(in)
	if p == Int8 {
		bytes, err := kernel.NewBytePanels(out, in)
		if err != nil {
			return fmt.Errorf("%s: %w", l.W.Name, err)
		}
		w.bytes = bytes
	} else {
		w.halves = kernel.NewHalfStrips(out, in)
	}
	par.Run(out, columnTile, work, compression{w, data, in})
	l.compressed, l.packed = w, nil
	l.W.Data, l.W.Grad = nil, nil
	return nil
}

// IsCompressed reports whether the weights are held in fewer bits.
func (l *Linear[T]) IsCompressed() bool { return l.compressed != nil }

// compression compresses outputs.
type compression struct {
	w    *compressedWeights
	data []float32 // [out,in]
	in   int
}

func (f *compression) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	t, buffer := kernel.ActiveBytes(), arena.Take[int8](ar, kernel.Pad(f.in))
	var halves []uint16
	if f.w.halves != nil {
		halves = make([]uint16, f.in)
	}
	for i := i0; i < i1; i++ {
		row := f.data[i*f.in:][:f.in]
		if f.w.bytes != nil {
			f.w.bytes.Quantise(t, i, row, buffer)
			continue
		}
		for k, x := range row {
			halves[k] = kernel.Half(x)
		}
		f.w.halves.Set(i, halves)
	}
}

// row sets x [in] to the weights of output i.
func (w *compressedWeights) row(x []float32, i int) {
	if w.halves != nil {
		w.halves.Widen(x, i)
	} else {
		w.bytes.Widen(x, i)
	}
}

// Compressor is a layer whose weights can be held in fewer bits.
type Compressor interface {
	// Compress is Linear.Compress for all projections of the layer.
	Compress(p Precision) error
}

// Compress compresses the projections.
func (a *Attention[T]) Compress(p Precision) error { return compressAll(p, &a.Q, &a.K, &a.V, &a.O) }

// Compress compresses the projections.
func (c CrossAttention[T]) Compress(p Precision) error { return c.Layer.Compress(p) }

// Compress compresses both layers.
func (m *MLP[T]) Compress(p Precision) error { return compressAll(p, &m.UpProj, &m.DownProj) }

// Compress compresses the three layers.
func (m *GatedMLP[T]) Compress(p Precision) error {
	return compressAll(p, &m.GateProj, &m.UpProj, &m.DownProj)
}

func compressAll[T tensor.Float](p Precision, layers ...*Linear[T]) error {
	for _, l := range layers {
		if err := l.Compress(p); err != nil {
			return err
		}
	}
	return nil
}

// Tiles of products with compressed weights.
const (
	compressedColumns = 64
	compressedRows    = rowTile
	// compressedUnits is the number of rows whose hidden units are there at a time.
	compressedUnits = 512
)

// compressedProduct is a rowProduct of float32, and the rows of x in 8 bits.
type compressedProduct struct {
	w          *compressedWeights
	y, x, base tensor.Mat[float32]
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

// areCompressed reports whether the layer of the first product has compressed weights; all
// products that are made together have.
func areCompressed[T tensor.Float](ps []rowProduct[T]) bool { return ps[0].layer.compressed != nil }

// asFloat32 views numbers that are float32, as those beside compressed weights are.
func asFloat32[T tensor.Float](m tensor.Mat[T]) tensor.Mat[float32] {
	return *(*tensor.Mat[float32])(unsafe.Pointer(&m))
}

// multiplyCompressed computes products y = act(base + x·Wᵀ + b) with compressed weights.
func multiplyCompressed[T tensor.Float](act Activation, ps ...rowProduct[T]) {
	ar := arena.Acquire()
	defer ar.Release()
	f := compressedProducts{count: len(ps), act: act}
	pieces, work := 0, 0.0
	for i, p := range ps {
		q := compressedProduct{w: p.layer.compressed, y: asFloat32(p.y), x: asFloat32(p.x), base: asFloat32(p.base), acc: p.acc}
		if p.layer.B != nil {
			q.bias = asFloat32(viewMatrix(p.layer.B.Data, 1, len(p.layer.B.Data))).Data
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
	par.Run(pieces, 1, work, f)
}

// quantiseRows returns the rows of x in 8 bits.
func quantiseRows(ar *arena.Arena, x tensor.Mat[float32]) kernel.ByteRows {
	rows := kernel.ByteRows{
		Data:   arena.Take[int8](ar, x.Rows*kernel.ByteStride(x.Cols)),
		Scales: arena.Take[float32](ar, x.Rows), Sums: arena.Take[int32](ar, x.Rows),
	}
	par.Run(x.Rows, normRows, moveWork*float64(x.Rows)*float64(x.Cols), rowQuantiser{rows, x})
	return rows
}

type rowQuantiser struct {
	rows kernel.ByteRows
	x    tensor.Mat[float32]
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
func (p *compressedProduct) multiplyTile(y tensor.Mat[float32], i, j int, scratch []float32) {
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
	rows := kernel.ByteRows{Data: p.rows.Data[i*kernel.ByteStride(p.x.Cols):], Scales: p.rows.Scales[i:], Sums: p.rows.Sums[i:]}
	if !p.acc {
		p.w.bytes.Multiply(kernel.ActiveBytes(), y.Rows, &rows, j, j+y.Cols, y.Data, y.Stride, p.bias, scratch)
		return
	}
	sum, scratch := scratch[:compressedRows*compressedColumns], scratch[compressedRows*compressedColumns:]
	p.w.bytes.Multiply(kernel.ActiveBytes(), y.Rows, &rows, j, j+y.Cols, sum, compressedColumns, p.bias, scratch)
	t.AddRows(y.Data, y.Stride, y.Data, y.Stride, sum, compressedColumns, y.Rows, y.Cols)
}
