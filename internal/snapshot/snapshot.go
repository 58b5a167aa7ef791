// Package snapshot writes and reads saved states: numbers in little-endian order in the frame of
// package framed. Package attention defines the header, and each kind of state defines its content.
package snapshot

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"unsafe"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
)

const (
	Magic   = "FFST" // the first bytes of a snapshot
	Version = 2      // of the format
)

var format = framed.Format{Name: "snapshot", Magic: Magic, Version: Version, Sum: framed.CRC32C}

// ParameterSum is a checksum of parameters, computed as float64. 0: there are none.
type ParameterSum int64

// AddParameters returns the checksum of the parameters of sum followed by x [n].
func AddParameters[T kernel.Float](sum ParameterSum, x []T) ParameterSum {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
	}
	return ParameterSum(crc32.Update(uint32(sum), framed.Castagnoli, b))
}

// Writer appends a snapshot to Data.
type Writer struct {
	Data  []byte
	Check func(bytes int) error // called with the size of the whole snapshot; nil: not called
	start int
}

// Int appends n.
func (w *Writer) Int(n int64) {
	w.Data = binary.LittleEndian.AppendUint64(w.Data, uint64(n))
}

// String appends the length of s and its bytes.
func (w *Writer) String(s string) {
	w.Int(int64(len(s)))
	w.Data = append(w.Data, s...)
}

// Flags appends a byte for each flag, 0 or 1.
func (w *Writer) Flags(x []bool) {
	for _, flag := range x {
		var c byte
		if flag {
			c = 1
		}
		w.Data = append(w.Data, c)
	}
}

// Zeros appends n zero bytes.
func (w *Writer) Zeros(n int) { w.Data = append(w.Data, make([]byte, n)...) }

// WriteElements appends the numbers x [n].
func WriteElements[T kernel.Float](w *Writer, x []T) { w.Data = AppendElements(w.Data, x) }

// isLittleEndian reports whether numbers lie in memory as snapshots have them.
var isLittleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// viewBytes views the memory of x [n].
func viewBytes[T kernel.Float](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(scratch.ElementSize[T]()))
}

// AppendElements appends the numbers x [n] to b.
func AppendElements[T kernel.Float](b []byte, x []T) []byte {
	if isLittleEndian {
		return append(b, viewBytes(x)...)
	}
	b, _ = binary.Append(b, binary.LittleEndian, x) // fails for types of no fixed size alone
	return b
}

// CutElements sets x [n] to the first n numbers of b and returns the bytes after them, or
// false if b is too short.
func CutElements[T kernel.Float](x []T, b []byte) (rest []byte, ok bool) {
	n := len(x) * int(scratch.ElementSize[T]())
	if n > len(b) {
		return b, false
	}
	if isLittleEndian {
		copy(viewBytes(x), b)
	} else {
		binary.Decode(b[:n], binary.LittleEndian, x) // fails for types of no fixed size alone
	}
	return b[n:], true
}

// End appends the checksum and returns the snapshot. It returns the error of Check.
func (w *Writer) End() ([]byte, error) {
	w.Data = format.End(w.Data, w.start)
	if w.Check != nil {
		if err := w.Check(len(w.Data) - w.start); err != nil {
			return nil, err
		}
	}
	return w.Data, nil
}

// Reader reads a snapshot. After an error it returns zeros; End returns the error.
type Reader struct {
	Rest  []byte // bytes not read yet
	Err   error  // the first error
	Decay bool   // the state has met a decay
}

// Open returns a reader of the content of data. It returns an error if the magic, the
// version or the checksum is wrong.
func Open(data []byte) (*Reader, error) {
	content, err := format.Content(data)
	if err != nil {
		return nil, err
	}
	return &Reader{Rest: content}, nil
}

// Fail sets r.Err to an error about a damaged snapshot, unless it is set.
func (r *Reader) Fail(format string, args ...any) { r.fail(fault.ErrDamaged, format, args) }

// Differ sets r.Err to an error about a snapshot of something else, unless it is set.
func (r *Reader) Differ(format string, args ...any) { r.fail(fault.ErrMismatch, format, args) }

// fail sets r.Err to an error of a kind, unless it is set.
func (r *Reader) fail(kind error, format string, args []any) {
	if r.Err == nil {
		r.Err = fault.Mark(kind, fmt.Errorf("snapshot: "+format, args...))
	}
}

// Need returns an error if fewer than n bytes are left. Readers call it before they
// allocate. n is a float64, since a damaged header may claim any size.
func (r *Reader) Need(n float64) error {
	if !(n <= float64(len(r.Rest))) {
		r.Fail("needs %.0f bytes more, has %d", n, len(r.Rest))
	}
	return r.Err
}

// next returns the next n bytes, or nil if fewer are left.
func (r *Reader) next(n int64) []byte {
	if n < 0 || n > int64(len(r.Rest)) {
		r.Fail("needs %d bytes more, has %d", n, len(r.Rest))
	}
	if r.Err != nil {
		return nil
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// Int reads a number.
func (r *Reader) Int() int64 {
	if b := r.next(8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// String reads a length and a text of that length.
func (r *Reader) String() string { return string(r.next(r.Int())) }

// Flags sets x to the next len(x) flags.
func (r *Reader) Flags(x []bool) {
	for i, c := range r.next(int64(len(x))) {
		x[i] = c == 1
		if c > 1 {
			r.Fail("a flag is %d, not 0 or 1", c)
		}
	}
}

// Skip leaves out n bytes.
func (r *Reader) Skip(n int) { r.next(int64(n)) }

// ReadElements sets x [n] to the next n numbers.
func ReadElements[T kernel.Float](r *Reader, x []T) {
	if b := r.next(int64(len(x)) * scratch.ElementSize[T]()); b != nil {
		CutElements(x, b)
	}
}

// End returns the first error, or an error if bytes are left.
func (r *Reader) End() error {
	if len(r.Rest) > 0 {
		r.Fail("%d bytes too many", len(r.Rest))
	}
	return r.Err
}

// OpenHeader checks the frame and the checksum of the snapshot in the first size
// bytes of r. The reader that it returns holds at most limit bytes of the content.
// It returns an error if the magic, the version or the checksum is wrong.
func OpenHeader(r io.ReaderAt, size int64, limit int64) (*Reader, error) {
	if err := format.Verify(r, size); err != nil {
		return nil, err
	}
	head := make([]byte, min(size-format.Overhead(), limit))
	if _, err := r.ReadAt(head, format.Start()); err != nil && err != io.EOF {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return &Reader{Rest: head}, nil
}

// NewWriter returns a writer that appends to b, after the magic and the version.
func NewWriter(b []byte) *Writer {
	return &Writer{Data: format.Begin(b), start: len(b)}
}
