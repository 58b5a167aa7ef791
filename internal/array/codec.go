package array

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/farfield-ml/farfield/tensor"
)

// chunkElements is the number of elements that are converted at a time.
const chunkElements = 8192

// Decode reads the elements of an array [shape...] from r, in contiguous little-endian C order, the
// body of .npy and safetensors. F2 and BF16 become F4. Memory grows with the bytes that arrive. It
// returns an error if the type or shape is invalid or r is truncated. It reads no byte after the
// last element.
func Decode(r io.Reader, t DType, shape []int) (*Array, error) {
	n, err := CountElements(shape)
	if err != nil {
		return nil, err
	}
	a := &Array{DType: t, Shape: append([]int{}, shape...)}
	switch t {
	case F4:
		a.data, err = decodeElements[float32](r, t, n)
	case F8:
		a.data, err = decodeElements[float64](r, t, n)
	case I4:
		a.data, err = decodeElements[int32](r, t, n)
	case I8:
		a.data, err = decodeElements[int64](r, t, n)
	case I1:
		a.data, err = decodeElements[int8](r, t, n)
	case U1:
		a.data, err = decodeElements[uint8](r, t, n)
	case Bool:
		a.data, err = decodeElements[bool](r, t, n)
	case F2:
		a.DType = F4
		a.data, err = decodeHalf(r, t, n, tensor.WidenFloat16)
	case BF16:
		a.DType = F4
		a.data, err = decodeHalf(r, t, n, tensor.WidenBFloat16)
	default:
		err = fmt.Errorf("dtype is %v", t)
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// decodeElements reads n elements whose Go type has the layout of the file.
func decodeElements[T Element](r io.Reader, t DType, n int) ([]T, error) {
	return decodeWith(r, t, n, func(data []T, b []byte) error {
		_, err := binary.Decode(b, binary.LittleEndian, data)
		return err
	})
}

// decodeHalf reads n elements of 16 bits and widens them.
func decodeHalf(r io.Reader, t DType, n int, widen func([]float32, []uint16)) ([]float32, error) {
	bits := make([]uint16, min(n, chunkElements))
	return decodeWith(r, t, n, func(data []float32, b []byte) error {
		_, err := binary.Decode(b, binary.LittleEndian, bits[:len(data)])
		widen(data, bits[:len(data)])
		return err
	})
}

// decodeWith reads n elements of type t; decode converts their bytes.
func decodeWith[T Element](r io.Reader, t DType, n int, decode func([]T, []byte) error) ([]T, error) {
	size := t.Size()
	buf := make([]byte, min(n, chunkElements)*size)
	data := make([]T, 0, min(n, 16*chunkElements))
	for len(data) < n {
		have := len(data)
		k := min(n-have, chunkElements)
		got, err := io.ReadFull(r, buf[:k*size])
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("truncated: %d of %d bytes of data", have*size+got, n*size)
		}
		if err != nil {
			return nil, err
		}
		if have+k > cap(data) {
			data = append(make([]T, 0, min(n, 2*cap(data))), data...)
		}
		data = data[:have+k]
		if err := decode(data[have:], buf[:k*size]); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// Encode writes the elements in the format of Decode. It returns an error if the shape does not
// match the data or w fails.
func (a *Array) Encode(w io.Writer) error {
	err := a.checkShape()
	if err != nil {
		return a.errorf("%w", err)
	}
	switch data := a.data.(type) {
	case []float32:
		err = encodeElements(w, data)
	case []float64:
		err = encodeElements(w, data)
	case []int32:
		err = encodeElements(w, data)
	case []int64:
		err = encodeElements(w, data)
	case []uint8:
		_, err = w.Write(data)
	case []int8:
		err = encodeElements(w, data)
	case []uint16:
		err = encodeElements(w, data)
	case []bool:
		err = encodeElements(w, data)
	}
	return err
}

// encodeElements writes elements in little-endian order, in chunks.
func encodeElements[T Element | uint16](w io.Writer, data []T) error {
	var buf []byte
	for part := range slices.Chunk(data, chunkElements) {
		var err error
		if buf, err = binary.Append(buf[:0], binary.LittleEndian, part); err != nil {
			return err
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
	return nil
}
