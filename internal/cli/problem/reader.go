package problem

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/tensor"
)

// arrayReader reads named arrays of one file as float32.
type arrayReader struct {
	array.Source
	path      string
	nonfinite bool // NaN and Inf are accepted
	headers   bool // shapes alone are read, and no data
}

func (r *arrayReader) has(name string) bool { return slices.Contains(r.Names(), name) }

// Types of arrays, with the text of the error for another type.
var (
	floats   = []array.DType{array.F4, array.F8, array.F2, array.BF16}
	integers = []array.DType{array.I4, array.I8, array.U1}
	bools    = []array.DType{array.U1, array.Bool}
)

// shape returns the shape of an array, whose type has to be one of a list.
func (r *arrayReader) shape(name string, types []array.DType, needed string) ([]int, error) {
	t, shape, err := r.ReadHeader(name)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(types, t) {
		return nil, fmt.Errorf("%s: dtype is %v; %s is needed", name, t, needed)
	}
	if _, err := array.CountElements(shape); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return shape, nil
}

// data reads an array of numbers. They are nil where headers alone are read.
func (r *arrayReader) data(name string) ([]float32, []int, error) {
	if !r.has(name) {
		return nil, nil, fmt.Errorf("%s: missing; %s has %s", name, r.path, strings.Join(r.Names(), ", "))
	}
	if r.headers {
		shape, err := r.shape(name, floats, "f4 or f8")
		return nil, shape, err
	}
	a, err := r.ReadArray(name)
	if err != nil {
		return nil, nil, err
	}
	x, err := a.Float32()
	if err != nil {
		return nil, nil, err
	}
	if !r.nonfinite {
		for i, v := range x {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return nil, nil, fmt.Errorf("%s: element %s is %v (--allow-nonfinite accepts it)", name, position(i, a.Shape), v)
			}
		}
	}
	return x, a.Shape, nil
}

// position writes the place of element i in an array of that shape.
func position(i int, shape []int) string {
	at := make([]string, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		at[d] = fmt.Sprint(i % shape[d])
		i /= shape[d]
	}
	return "[" + strings.Join(at, ",") + "]"
}

// heads reads an array of rank 2 to 4 as heads.
func (r *arrayReader) heads(name string) (tensor.Heads, int, error) {
	x, shape, err := r.data(name)
	if err != nil {
		return tensor.Heads{}, 0, err
	}
	if len(shape) < 2 || len(shape) > 4 {
		return tensor.Heads{}, 0, fmt.Errorf("%s: has %d dimensions, needs (N,D), (H,N,D) or (B,H,N,D)", name, len(shape))
	}
	s := [4]int{1, 1, 1, 1}
	copy(s[4-len(shape):], shape)
	return tensor.HeadsOf(x, s[0], s[1], s[2], s[3]), len(shape), nil
}

// mask reads an array that holds one yes or no for each element of a shape,
// or, where rows is set, of the last dimension of it, repeated.
func (r *arrayReader) mask(name string, rows bool, dims string, b, n int) ([]bool, error) {
	shape, err := r.shape(name, bools, "u1 or bool")
	if err != nil {
		return nil, err
	}
	one := rows && slices.Equal(shape, []int{n})
	if !one && !slices.Equal(shape, []int{b, n}) {
		return nil, fmt.Errorf("%s: shape is %v, needs %s = [%d %d]", name, shape, dims, b, n)
	}
	m, err := r.flags(name)
	if one {
		m = slices.Repeat(m, b)
	}
	return m, err
}

// flags reads an array of yes and no; nil where headers alone are read.
func (r *arrayReader) flags(name string) ([]bool, error) {
	if r.headers {
		return nil, nil
	}
	a, err := r.ReadArray(name)
	if err != nil {
		return nil, err
	}
	return a.Bool()
}

// integers reads n lengths or offsets. They are nil where headers alone are read.
func (r *arrayReader) integers(name string) (x []int64, shape []int, n int, err error) {
	if shape, err = r.shape(name, integers, "i4, i8 or u1"); err != nil {
		return nil, nil, 0, err
	}
	if len(shape) > 1 {
		return nil, nil, 0, fmt.Errorf("%s: has %d dimensions, needs 1", name, len(shape))
	}
	if n, err = array.CountElements(shape); err != nil || r.headers {
		return nil, shape, n, err
	}
	a, err := r.ReadArray(name)
	if err != nil {
		return nil, nil, 0, err
	}
	x, err = a.Int64()
	return x, shape, n, err
}
