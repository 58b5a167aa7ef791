package array

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"unsafe"

	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/tensor"
)

// StoredArray is an array that stays in its file and is read in parts. It is safe for concurrent use.
type StoredArray struct {
	Name  string
	DType DType // type in the file, including F2 and BF16
	Shape []int

	r      io.ReaderAt
	start  int64          // offset of the data in r
	count  int64          // elements
	memory *infile.Mapped // of r; nil: it is not mapped
}

// SetMapped has VisitHalves read the file in memory.
func (s *StoredArray) SetMapped(m *infile.Mapped) { s.memory = m }

// NewStoredArray returns an array [shape...] whose elements are the size bytes of r from byte start,
// in the format of Decode. It returns an error if the type is unknown or size does not match the
// shape.
func NewStoredArray(name string, t DType, shape []int, r io.ReaderAt, start, size int64) (*StoredArray, error) {
	s := &StoredArray{Name: name, DType: t, Shape: append([]int{}, shape...), r: r, start: start}
	n, err := CountElements(shape)
	if err != nil {
		return nil, s.errorf("%w", err)
	}
	if t.Size() == 0 {
		return nil, s.errorf("dtype is %v", t)
	}
	if want := int64(n) * int64(t.Size()); size != want {
		return nil, s.errorf("shape %s of %v has %d bytes, the data %d", formatShape(shape), t, want, size)
	}
	if start < 0 || start > math.MaxInt64-size {
		return nil, s.errorf("%d bytes of data cannot begin at byte %d", size, start)
	}
	s.count = int64(n)
	return s, nil
}

// OpenStoredNPY returns the array of the .npy file of size bytes in r. It returns an error if the
// header is malformed or size does not match the shape. Big-endian numbers and Fortran order are
// rewritten in memory.
func OpenStoredNPY(name string, r io.ReaderAt, size int64) (*StoredArray, error) {
	head := io.NewSectionReader(r, 0, size)
	t, shape, order, err := readNPYHeader(head)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	start, err := head.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if order == (layout{}) {
		return NewStoredArray(name, t, shape, r, start, size-start)
	}
	if size-start > DefaultLimit {
		return nil, fmt.Errorf("%s: has %d bytes of big-endian numbers or in Fortran order, which are rewritten in memory up to %d", name, size-start, int64(DefaultLimit))
	}
	data, err := order.rewrite(head, t, shape)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	memory, _ := data.(*bytes.Reader) // of an order that is rewritten
	return NewStoredArray(name, t, shape, memory, 0, size-start)
}

// File returns the file of the array, or nil if r is no file.
func (s *StoredArray) File() *os.File {
	f, _ := s.r.(*os.File)
	return f
}

// errorf returns an error that begins with the array's name.
func (s *StoredArray) errorf(format string, args ...any) error {
	return (&Array{Name: s.Name}).errorf(format, args...)
}

// littleEndian reports whether memory has the byte order of files.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// FloatBytes returns the memory of x [N] as bytes, or nil if the byte order differs from files or x
// is empty.
func FloatBytes[T float32 | float64](x []T) []byte {
	if len(x) == 0 || !littleEndian {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

// ReadFloats overwrites dst [N] with the elements of s from element at, in C order. Equal types are
// read without a copy; others are widened or, from f8, rounded. It returns an error for other types,
// elements beyond the array, a read error, or an f8 beyond the range of f4.
func ReadFloats[T float32 | float64](s *StoredArray, dst []T, at int64) error {
	var own DType
	switch any(dst).(type) {
	case []float32:
		own = F4
	case []float64:
		own = F8
	}
	if b := FloatBytes(dst); s.DType == own && b != nil {
		return s.readBytes(b, at)
	}
	var decode func(dst []T, b []byte) error
	switch s.DType {
	case F4:
		decode = func(dst []T, b []byte) error {
			for i := range dst {
				dst[i] = T(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
			}
			return nil
		}
	case F8:
		decode = func(dst []T, b []byte) error {
			for i := range dst {
				x := math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
				dst[i] = T(x)
				if math.IsInf(float64(dst[i]), 0) && !math.IsInf(x, 0) {
					return fmt.Errorf("an element is %g, beyond the range of f4", x)
				}
			}
			return nil
		}
	case F2, BF16:
		widen := tensor.Float16
		if s.DType == BF16 {
			widen = tensor.BFloat16
		}
		decode = func(dst []T, b []byte) error {
			for i := range dst {
				dst[i] = T(widen(binary.LittleEndian.Uint16(b[2*i:])))
			}
			return nil
		}
	default:
		return s.errorf("dtype is %v; f2, bf16, f4 or f8 is needed", s.DType)
	}
	return readParts(s, dst, at, decode)
}

// ReadHalves overwrites dst [N] with the bits of the elements of a bf16 array from element at. It
// returns an error for other types, elements beyond the array, or a read error.
func ReadHalves(s *StoredArray, dst []uint16, at int64) error {
	if s.DType != BF16 {
		return s.errorf("dtype is %v; bf16 is needed", s.DType)
	}
	if littleEndian && len(dst) > 0 {
		return s.readBytes(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 2*len(dst)), at)
	}
	return readParts(s, dst, at, func(dst []uint16, b []byte) error {
		for i := range dst {
			dst[i] = binary.LittleEndian.Uint16(b[2*i:])
		}
		return nil
	})
}

// VisitHalves calls visit with the bits of elements of a bf16 array, as many as buffer has, from element
// at on: where the file is mapped they lie in its memory, and otherwise they are read to buffer. visit
// must do as that of infile.Mapped.Visit. It returns an error where ReadHalves does.
func VisitHalves(s *StoredArray, buffer []uint16, at int64, visit func(x []uint16)) error {
	if n := int64(len(buffer)); s.memory != nil && s.DType == BF16 && littleEndian && n > 0 && at >= 0 && at <= s.count && n <= s.count-at {
		isRead := false
		err := s.memory.Visit(s.start+2*at, 2*n, func(b []byte) {
			if p := unsafe.Pointer(&b[0]); uintptr(p)%2 == 0 {
				visit(unsafe.Slice((*uint16)(p), n))
				isRead = true
			}
		})
		if isRead {
			return nil
		}
		if err != nil {
			return s.errorf("truncated: elements from %d on of %d cannot be read", at, s.count)
		}
	}
	if err := ReadHalves(s, buffer, at); err != nil {
		return err
	}
	visit(buffer)
	return nil
}

// ReadBytes overwrites dst [N] with the elements of an i1 array from element at. It returns an error
// for other types, elements beyond the array, or a read error.
func ReadBytes(s *StoredArray, dst []int8, at int64) error {
	if s.DType != I1 {
		return s.errorf("dtype is %v; i1 is needed", s.DType)
	}
	if len(dst) == 0 {
		return nil
	}
	return s.readBytes(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), len(dst)), at)
}

// ReadBools overwrites dst [N] with x ≠ 0 for the elements of a u1 or bool array from element at. It
// returns an error for other types, elements beyond the array, or a read error.
func ReadBools(s *StoredArray, dst []bool, at int64) error {
	if s.DType != U1 && s.DType != Bool {
		return s.errorf("dtype is %v; u1 or bool is needed", s.DType)
	}
	return readParts(s, dst, at, func(dst []bool, b []byte) error {
		for i := range dst {
			dst[i] = b[i] != 0
		}
		return nil
	})
}

// readParts reads dst in chunks; decode converts their bytes.
func readParts[T any](s *StoredArray, dst []T, at int64, decode func([]T, []byte) error) error {
	size := s.DType.Size()
	buf := make([]byte, min(len(dst), chunkElements)*size)
	for len(dst) > 0 {
		n := min(len(dst), chunkElements)
		if err := s.readBytes(buf[:n*size], at); err != nil {
			return err
		}
		if err := decode(dst[:n], buf); err != nil {
			return s.errorf("%w", err)
		}
		dst, at = dst[n:], at+int64(n)
	}
	return nil
}

// readBytes fills b with the bytes of elements from element at. It returns an error if there are too
// few.
func (s *StoredArray) readBytes(b []byte, at int64) error {
	size := int64(s.DType.Size())
	if at < 0 || at > s.count || int64(len(b)) > (s.count-at)*size {
		return s.errorf("elements %d to %d: there are %d", at, at+int64(len(b))/size, s.count)
	}
	n, err := s.r.ReadAt(b, s.start+at*size)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return s.errorf("truncated: %d of %d bytes of data", at*size+int64(n), s.count*size)
	}
	return s.errorf("%w", err)
}
