package array

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
)

// layout says how the elements of an .npy file lie, if not in C order with the least significant byte
// first.
type layout struct{ isBig, isFortran bool }

// rewrite returns the elements [shape...] of r in C order with the least significant byte first. It
// reads them into memory unless r has them so. It returns an error if r ends before.
func (o layout) rewrite(r io.Reader, t DType, shape []int) (io.Reader, error) {
	if !o.isBig && !o.isFortran {
		return r, nil
	}
	n, err := CountElements(shape)
	if err != nil {
		return nil, err
	}
	size := t.Size()
	if n > math.MaxInt/size {
		return nil, fmt.Errorf("shape %s of %v is beyond any memory", formatShape(shape), t)
	}
	data, err := io.ReadAll(io.LimitReader(r, int64(n)*int64(size))) // grows with what there is
	if err != nil {
		return nil, err
	}
	if len(data) < n*size {
		return nil, fmt.Errorf("truncated: %d of %d bytes of data", len(data), n*size)
	}
	if o.isBig {
		for element := range slices.Chunk(data, size) {
			slices.Reverse(element)
		}
	}
	if o.isFortran {
		data = transpose(data, shape, size)
	}
	return bytes.NewReader(data), nil
}

// transpose returns elements of size bytes that lie in Fortran order in C order.
func transpose(data []byte, shape []int, size int) []byte {
	out := make([]byte, 0, len(data))
	steps, step := make([]int, len(shape)), size // bytes between neighbours in data
	for i, n := range shape {
		steps[i] = step
		step *= n
	}
	at, index := 0, make([]int, len(shape))
	for len(out) < len(data) {
		out = append(out, data[at:][:size]...)
		for i := len(shape) - 1; i >= 0; i-- {
			if index[i]++; index[i] < shape[i] {
				at += steps[i]
				break
			}
			at -= (shape[i] - 1) * steps[i]
			index[i] = 0
		}
	}
	return out
}
