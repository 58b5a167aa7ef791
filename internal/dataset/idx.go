package dataset

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/farfield-ml/farfield/internal/array"
)

// IDX is an array of bytes in C order, the format of MNIST.
type IDX struct {
	Shape []int
	Data  []byte
}

// idxDims bounds the number of dimensions.
const idxDims = 8

// ReadIDX reads an idx file of unsigned bytes. It returns an error if the header is malformed or
// the length does not match the shape.
func ReadIDX(r io.Reader) (*IDX, error) {
	head, err := readExactly(r, "magic", 4)
	if err != nil {
		return nil, err
	}
	if head[0] != 0 || head[1] != 0 {
		return nil, fmt.Errorf("magic: it begins with 0x%02x%02x, 0x0000 is needed", head[0], head[1])
	}
	if head[2] != 8 {
		return nil, fmt.Errorf("type: it is 0x%02x, 0x08 (unsigned bytes) is needed", head[2])
	}
	if head[3] < 1 || head[3] > idxDims {
		return nil, fmt.Errorf("dimensions: there are %d, 1 to %d are read", head[3], idxDims)
	}
	sizes, err := readExactly(r, "dimensions", 4*int(head[3]))
	if err != nil {
		return nil, err
	}
	a := &IDX{Shape: make([]int, head[3])}
	for i := range a.Shape {
		size := binary.BigEndian.Uint32(sizes[4*i:])
		if int64(size) > math.MaxInt {
			return nil, fmt.Errorf("dimensions: number %d is %d, too large for an int of this machine, which ends at %d", i, size, math.MaxInt)
		}
		a.Shape[i] = int(size)
	}
	n, err := array.CountElements(a.Shape)
	if err != nil {
		return nil, fmt.Errorf("dimensions: %w", err)
	}
	if a.Data, err = readExactly(r, "data", n); err != nil {
		return nil, err
	}
	if err := checkEnd(r); err != nil {
		return nil, fmt.Errorf("data: of shape %v: %w", a.Shape, err)
	}
	return a, nil
}
