package array

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"unsafe"

	"github.com/farfield-ml/farfield/tensor"
)

// StoredArray is an array that stays in its file. Any part of it is read without the
// rest, by several callers at a time.
type StoredArray struct {
	Name  string
	DType DType // as in the file: F2 and BF16, too
	Shape []int

	r     io.ReaderAt
	start int64 // of the data in r
	count int64
}

// NewStoredArray returns the array of that type and shape whose elements, as Decode
// reads them, begin at byte start of r and are size bytes: as many as the shape
// has.
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

// OpenStoredNPY returns the array of the .npy file of size bytes in r, all of which
// are accounted for.
func OpenStoredNPY(name string, r io.ReaderAt, size int64) (*StoredArray, error) {
	head := io.NewSectionReader(r, 0, size)
	t, shape, err := readNPYHeader(head)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	start, err := head.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return NewStoredArray(name, t, shape, r, start, size-start)
}

// File returns the file that the array lies in, nil if it is in none.
func (s *StoredArray) File() *os.File {
	f, _ := s.r.(*os.File)
	return f
}

func (s *StoredArray) errorf(format string, args ...any) error {
	return (&Array{Name: s.Name}).errorf(format, args...)
}

// littleEndian reports whether numbers lie in memory as they do in files.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// FloatBytes returns the memory of x where its numbers lie there as they do in files,
// and nil where they do not.
func FloatBytes[T float32 | float64](x []T) []byte {
	if len(x) == 0 || !littleEndian {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

// ReadFloats sets dst to the elements of s from element at on, counted in C
// order. Elements of f4 in a float32, and of f8 in a float64, go there without
// another copy; others are widened, and f8 rounded, as Array.Float32 has it.
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
	var turn func(dst []T, b []byte) error
	switch s.DType {
	case F4:
		turn = func(dst []T, b []byte) error {
			for i := range dst {
				dst[i] = T(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
			}
			return nil
		}
	case F8:
		turn = func(dst []T, b []byte) error {
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
		turn = func(dst []T, b []byte) error {
			for i := range dst {
				dst[i] = T(widen(binary.LittleEndian.Uint16(b[2*i:])))
			}
			return nil
		}
	default:
		return s.errorf("dtype is %v; f2, bf16, f4 or f8 is needed", s.DType)
	}
	return readParts(s, dst, at, turn)
}

// ReadBools sets dst to the elements of a u1 or bool array from element at on:
// which of them are not 0.
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

// readParts reads dst a few elements at a time.
func readParts[T any](s *StoredArray, dst []T, at int64, turn func([]T, []byte) error) error {
	size := s.DType.Size()
	buf := make([]byte, min(len(dst), chunkElements)*size)
	for len(dst) > 0 {
		n := min(len(dst), chunkElements)
		if err := s.readBytes(buf[:n*size], at); err != nil {
			return err
		}
		if err := turn(dst[:n], buf); err != nil {
			return s.errorf("%w", err)
		}
		dst, at = dst[n:], at+int64(n)
	}
	return nil
}

// readBytes fills b from element at on.
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
