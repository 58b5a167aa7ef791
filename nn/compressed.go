package nn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
)

// Precision names the format in which the weights of products are held.
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

// newCompressed returns weights [out,in] that are 0. It returns an error if in is too large for Int8.
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

// setColumns sets the weights of outputs from i on, which are held in 16 bits, and reports whether all
// are finite.
func (w *Compressed) setColumns(ar *arena.Arena, i int, rows []uint16) (finite bool) {
	scratch := arena.Take[float32](ar, kernel.SetScratch(w.halves.K))
	return w.halves.SetColumns(kernel.ActiveHalf(), i, rows, scratch)
}

// SetHalves sets the weights of outputs from i on to rows [n,in] of bfloat16 bits, which BFloat16 holds
// without rounding, and reports whether all are finite. It is fastest if i and n are multiples of 32.
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

// Halves sets row [in] to the bits of the weights of output i. They need to be held in 16 bits.
func (w *Compressed) Halves(row []uint16, i int) { w.halves.Column(i, row) }

// Bytes sets row [in] to the integers of output i and returns their scale. The weights need to be held
// in 8 bits.
func (w *Compressed) Bytes(row []int8, i int) (scale float32) { return w.bytes.Column(i, row) }

// SetBytes sets the weights of output i to integers row [in] from -127 to 127 times a scale. They need to
// be held in 8 bits.
func (w *Compressed) SetBytes(i int, row []int8, scale float32) { w.bytes.Set(i, row, scale) }

// Row sets x [in] to the weights of output i.
func (w *Compressed) Row(x []float32, i int) {
	if w.halves != nil {
		w.halves.Widen(x, i)
	} else {
		w.bytes.Widen(x, i)
	}
}

// WriteTo writes the weights output by output, in little-endian order: bfloat16 bits, or a float32 scale
// and then the integers. It returns the number of bytes, and the error of writing.
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

// Compress replaces the elements of W by a copy in fewer bits. The layer can then neither learn nor be
// saved. It does nothing for Float32 or without W. It returns an error if elements are not float32, if
// the weights are compressed already, or if they are too many for Int8.
func (l *Linear) Compress(p Precision) error {
	if l.W == nil || p == Float32 {
		return nil
	}
	data := l.W.Data
	if err := l.Reserve(p); err != nil {
		return err
	}
	out, in := l.compressed.Size()
	par.Run(out, compressedColumns, packWork*float64(out)*float64(in), compression{l.compressed, viewMatrix(data, out, in)})
	return nil
}

// Reserve drops the elements of W and holds weights of precision p in their place, which are 0 until they
// are set through Compressed. It does nothing where Compress does nothing, and returns the same errors.
func (l *Linear) Reserve(p Precision) (err error) {
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
func (l *Linear) Compressed() *Compressed { return l.compressed }

// Compressor is a layer whose weights can be held in fewer bits.
type Compressor interface {
	// Compressible returns the projections of the layer whose weights can be compressed.
	Compressible() []*Linear
}

// Compressible returns the four projections.
func (a *Attention) Compressible() []*Linear { return []*Linear{&a.Q, &a.K, &a.V, &a.O} }

// Compressible returns the four projections.
func (c CrossAttention) Compressible() []*Linear { return c.Layer.Compressible() }

// Compressible returns both layers.
func (m *mlp) Compressible() []*Linear { return []*Linear{&m.UpProj, &m.DownProj} }

// Compressible returns the three layers.
func (m *gatedMLP) Compressible() []*Linear {
	return []*Linear{&m.GateProj, &m.UpProj, &m.DownProj}
}

// Tiles of products with compressed weights.
const (
	compressedColumns = 64
	compressedRows    = rowTile
	// compressedUnits is the number of rows whose hidden units are held at a time.
	compressedUnits = 512
)
