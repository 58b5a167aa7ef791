package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/strict"
)

// readHeader returns the JSON header. It returns an error if the length is out of range.
func readHeader(r io.ReaderAt, size int64) ([]byte, error) {
	if size < 8 {
		return nil, fmt.Errorf("not a safetensors file: it has %d bytes, at least 8 are needed", size)
	}
	var length [8]byte
	if err := readAt(r, length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return nil, fmt.Errorf("not a safetensors file: header of %d bytes, at most %d are read", n, maxHeader)
	}
	if int64(n) > size-8 {
		return nil, fmt.Errorf("header of %d bytes is beyond the end of the file, which has %d", n, size)
	}
	header := make([]byte, n)
	if err := readAt(r, header, 8); err != nil {
		return nil, err
	}
	return header, nil
}

// readAt fills b. A full read with io.EOF is no error.
func readAt(r io.ReaderAt, b []byte, at int64) error {
	if n, err := r.ReadAt(b, at); n < len(b) {
		return fmt.Errorf("truncated in the header: %w", err)
	}
	return nil
}

// parseHeader parses the tensors, in the order of the header, and the metadata.
func parseHeader(header []byte) (tensors []Tensor, metadata map[string]string, err error) {
	err = strict.EachMember(header, func(name string, value []byte) (err error) {
		if name == "__metadata__" {
			if metadata, err = parseTexts(value); err != nil {
				return fmt.Errorf("__metadata__: %w", err)
			}
			return nil
		}
		t, err := parseTensor(value)
		if err != nil {
			return fmt.Errorf("%s: %w", infile.Shorten(name), err)
		}
		t.Name = name
		tensors = append(tensors, t)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	return tensors, metadata, nil
}

// parseTensor parses {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}. Like the reference implementation, it
// ignores other keys.
func parseTensor(value []byte) (Tensor, error) {
	var x struct {
		DType   *string   `json:"dtype"`
		Shape   []natural `json:"shape"`
		Offsets []natural `json:"data_offsets"`
	}
	if err := strict.UnmarshalKnown(value, &x); err != nil {
		return Tensor{}, err
	}
	if x.DType == nil || x.Shape == nil || x.Offsets == nil {
		return Tensor{}, errors.New("dtype, shape and data_offsets are needed")
	}
	if len(x.Offsets) != 2 || x.Offsets[0] > x.Offsets[1] {
		return Tensor{}, fmt.Errorf("data_offsets: begin and end are needed, it is %v", x.Offsets)
	}
	t := Tensor{DType: *x.DType, Shape: make([]int, len(x.Shape)), start: int64(x.Offsets[0]), Bytes: int64(x.Offsets[1] - x.Offsets[0])}
	for i, n := range x.Shape {
		t.Shape[i] = int(n)
	}
	return t, nil
}

// natural is a non-negative integer. JSON's null is none.
type natural int

// UnmarshalJSON reads the number. It returns an error for other values.
func (n *natural) UnmarshalJSON(data []byte) error {
	x, err := strconv.Atoi(string(data))
	if err != nil || x < 0 {
		return fmt.Errorf("an integer from 0 to %d is needed, it is %s", math.MaxInt, infile.Shorten(string(data)))
	}
	*n = natural(x)
	return nil
}

// parseTexts parses a JSON object of strings.
func parseTexts(value []byte) (map[string]string, error) {
	m := make(map[string]string)
	return m, strict.EachMember(value, func(name string, value []byte) error {
		var text *string
		err := strict.UnmarshalKnown(value, &text)
		if err == nil && text == nil {
			err = errors.New("is null, needs a string")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", infile.Shorten(name), err)
		}
		m[name] = *text
		return nil
	})
}
