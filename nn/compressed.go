package nn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
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

// Compressed holds the weights [out,in] of a layer in fewer bits. Different outputs may be set at
// the same time.
type Compressed struct {
	bytes  *kernel.BytePanels
	halves *kernel.HalfStrips // in place of bytes
}

// newCompressed returns weights [out,in] that are 0. It returns an error if they do not fit.
func newCompressed(p Precision, out, in int) (*Compressed, error) {
	if p != Int8 {
		return &Compressed{halves: kernel.NewHalfStrips(out, in)}, nil
	}
	bytes, err := kernel.NewBytePanels(out, in)
	return &Compressed{bytes: bytes}, err
}

// Precision returns how the weights are held.
func (w *Compressed) Precision() Precision {
	if w.halves != nil {
		return BFloat16
	}
	return Int8
}

// Size returns the number of outputs and of inputs.
func (w *Compressed) Size() (out, in int) {
	if w.halves != nil {
		return w.halves.N, w.halves.K
	}
	return w.bytes.N, w.bytes.K
}

// Set sets the weights of outputs from i on to rows [n,in], rounded.
func (w *Compressed) Set(i int, rows []float32) {
	_, in := w.Size()
	if in == 0 {
		return
	}
	ar := arena.Acquire()
	defer ar.Release()
	if w.halves != nil {
		halves := arena.Take[uint16](ar, len(rows))
		for k, x := range rows {
			halves[k] = kernel.Half(x)
		}
		w.setColumns(ar, i, halves)
		return
	}
	t, buffer := kernel.ActiveBytes(), arena.Take[int8](ar, kernel.ByteStride(in))
	for ; len(rows) > 0; i, rows = i+1, rows[in:] {
		w.bytes.Quantise(t, i, rows[:in], buffer)
	}
}

// setColumns sets outputs that are held in 16 bits, and reports whether all numbers are finite.
func (w *Compressed) setColumns(ar *arena.Arena, i int, rows []uint16) (finite bool) {
	scratch := arena.Take[float32](ar, kernel.SetScratch(w.halves.K))
	return w.halves.SetColumns(kernel.ActiveHalf(), i, rows, scratch)
}

// SetHalves is Set from the upper halves of numbers, which 16 bits hold as they are. It reports whether
// all are finite. Multiples of 32 outputs, from one of them on, are the fastest.
func (w *Compressed) SetHalves(i int, rows []uint16) (finite bool) {
	ar := arena.Acquire()
	defer ar.Release()
	if w.halves != nil {
		return w.setColumns(ar, i, rows)
	}
	wide, finite := arena.Take[float32](ar, len(rows)), true
	for k, x := range rows {
		wide[k] = kernel.WidenHalf(x)
		finite = finite && wide[k]-wide[k] == 0
	}
	w.Set(i, wide)
	return finite
}

// Halves sets row [in] to the bits of output i, which are held in 16.
func (w *Compressed) Halves(row []uint16, i int) { w.halves.Column(i, row) }

// Bytes sets row [in] to the integers of output i, which are held in 8 bits, and returns their scale.
func (w *Compressed) Bytes(row []int8, i int) (scale float32) { return w.bytes.Column(i, row) }

// SetBytes sets output i, which is held in 8 bits, to integers from -127 to 127 times a scale.
func (w *Compressed) SetBytes(i int, row []int8, scale float32) { w.bytes.Set(i, row, scale) }

// Row sets x [in] to the weights of output i.
func (w *Compressed) Row(x []float32, i int) {
	if w.halves != nil {
		w.halves.Widen(x, i)
	} else {
		w.bytes.Widen(x, i)
	}
}

// WriteTo writes what is held, output by output. It returns the error of writing.
func (w *Compressed) WriteTo(to io.Writer) (n int64, err error) {
	out, in := w.Size()
	halves, bytes := make([]uint16, in), make([]int8, in)
	var b []byte
	for i := 0; i < out && err == nil; i++ {
		b = b[:0]
		if w.halves != nil {
			w.halves.Column(i, halves)
			for _, x := range halves {
				b = binary.LittleEndian.AppendUint16(b, x)
			}
		} else {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(w.bytes.Column(i, bytes)))
			for _, x := range bytes {
				b = append(b, byte(x))
			}
		}
		var count int
		count, err = to.Write(b)
		n += int64(count)
	}
	return n, err
}

// Compress holds the weights in fewer bits and drops W's numbers: the layer can then neither
// learn nor be saved. It returns an error if T is not float32 or the weights do not fit.
func (l *Linear[T]) Compress(p Precision) error {
	if l.W == nil || p == Float32 {
		return nil
	}
	data := l.W.Data
	if err := l.Reserve(p); err != nil {
		return err
	}
	out, in := l.compressed.Size()
	par.Run(out, compressedColumns, packWork*float64(out)*float64(in), compression{l.compressed, asFloat32(viewMatrix(data, out, in))})
	return nil
}

// Reserve is Compress of a layer whose weights are still to be set, by Compressed. Until then they
// are 0.
func (l *Linear[T]) Reserve(p Precision) (err error) {
	if l.W == nil || p == Float32 {
		return nil
	}
	if _, is := any(l.W.Data).([]float32); !is {
		return errors.New("weights of float64 are not held in fewer bits")
	}
	if l.compressed != nil {
		return fmt.Errorf("%s: is held in fewer bits already", l.W.Name)
	}
	w, err := newCompressed(p, l.W.Shape[0], l.W.Shape[1])
	if err != nil {
		return fmt.Errorf("%s: %w", l.W.Name, err)
	}
	l.compressed, l.packed = w, nil
	l.W.Data, l.W.Grad = nil, nil
	return nil
}

// Compressed returns the weights in fewer bits; nil: they are float32.
func (l *Linear[T]) Compressed() *Compressed { return l.compressed }

// compression compresses outputs.
type compression struct {
	w    *Compressed
	rows tensor.Mat[float32] // [out,in]
}

func (f *compression) RunRange(i0, i1 int) {
	f.w.Set(i0, f.rows.Data[i0*f.rows.Cols:i1*f.rows.Cols])
}

// Compressor is a layer whose weights can be held in fewer bits.
type Compressor[T tensor.Float] interface {
	// Compressible returns the projections whose weights can be.
	Compressible() []*Linear[T]
}

// Compressible returns the four projections.
func (a *Attention[T]) Compressible() []*Linear[T] { return []*Linear[T]{&a.Q, &a.K, &a.V, &a.O} }

// Compressible returns the four projections.
func (c CrossAttention[T]) Compressible() []*Linear[T] { return c.Layer.Compressible() }

// Compressible returns both layers.
func (m *MLP[T]) Compressible() []*Linear[T] { return []*Linear[T]{&m.UpProj, &m.DownProj} }

// Compressible returns the three layers.
func (m *GatedMLP[T]) Compressible() []*Linear[T] {
	return []*Linear[T]{&m.GateProj, &m.UpProj, &m.DownProj}
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
	w          *Compressed
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
	size := 1
	if ps[0].x.Rows <= GEMVRows {
		size = stripsPerPiece // a tile of few rows is little work
	}
	par.Run(pieces, size, work, f)
}

// quantiseRows returns the rows of x in 8 bits.
func quantiseRows(ar *arena.Arena, x tensor.Mat[float32]) kernel.ByteRows {
	rows := kernel.ByteRows{
		Data:   arena.Take[int8](ar, x.Rows*kernel.ByteStride(x.Cols)),
		Scales: arena.Take[float32](ar, x.Rows), Sums: arena.Take[int32](ar, x.Rows), Counts: arena.Take[int32](ar, x.Rows),
		Steps: arena.Take[int32](ar, x.Rows*kernel.MaxOutliers), Values: arena.Take[float32](ar, x.Rows*kernel.MaxOutliers),
	}
	if kernel.ActiveBytes().HasWords() {
		rows.Words = arena.Take[int16](ar, len(rows.Data))
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
	rows := p.rows.Rows(i, p.x.Cols)
	if !p.acc {
		p.w.bytes.Multiply(kernel.ActiveBytes(), y.Rows, &rows, j, j+y.Cols, y.Data, y.Stride, p.bias, scratch)
		return
	}
	sum, scratch := scratch[:compressedRows*compressedColumns], scratch[compressedRows*compressedColumns:]
	p.w.bytes.Multiply(kernel.ActiveBytes(), y.Rows, &rows, j, j+y.Cols, sum, compressedColumns, p.bias, scratch)
	t.AddRows(y.Data, y.Stride, y.Data, y.Stride, sum, compressedColumns, y.Rows, y.Cols)
}
