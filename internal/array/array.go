package array

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// DType is the element type of an array, with numpy's name.
type DType uint8

// Element types that are read and written, little-endian.
const (
	F4   DType = iota + 1 // float32
	F8                    // float64
	I4                    // int32
	I8                    // int64
	U1                    // uint8
	Bool                  // one byte, 0 is false

	// Types that Decode widens exactly to F4. F2 is not written.
	F2   // float16, IEEE 754 binary16
	BF16 // bfloat16, which numpy does not have

	I1 // int8
)

// Size returns the bytes of one element, or 0 for an unknown type.
func (t DType) Size() int {
	switch t {
	case F8, I8:
		return 8
	case F4, I4:
		return 4
	case F2, BF16:
		return 2
	case U1, I1, Bool:
		return 1
	}
	return 0
}

// String returns numpy's name of the type.
func (t DType) String() string {
	switch t {
	case F4:
		return "f4"
	case F8:
		return "f8"
	case I4:
		return "i4"
	case I8:
		return "i8"
	case U1:
		return "u1"
	case I1:
		return "i1"
	case Bool:
		return "bool"
	case F2:
		return "f2"
	case BF16:
		return "bf16"
	}
	return "DType(" + strconv.Itoa(int(t)) + ")"
}

// Element constrains the Go types of elements.
type Element interface {
	float32 | float64 | int32 | int64 | int8 | uint8 | bool
}

// Array is a named array in C order: the last index runs fastest. An empty Shape is a scalar.
// Callers may change Name, but neither DType nor Shape.
type Array struct {
	Name  string
	DType DType
	Shape []int
	data  any // slice of the Element type of DType
}

// Source is an open file of arrays that are decoded on request.
type Source interface {
	// Names lists all arrays in the order of the file, including unreadable types.
	Names() []string
	// ReadHeader returns type and shape of one array without reading its data.
	// It returns an error, which begins with the name, if the header cannot be read.
	ReadHeader(name string) (DType, []int, error)
	// ReadArray reads one array. It returns an error, which begins with the name, if the array
	// cannot be read.
	ReadArray(name string) (*Array, error)
	// Close closes the file. It returns the error of closing.
	Close() error
}

// New returns an array [shape...] over data without copying it. No shape means a scalar. It
// returns an error if the shape does not have len(data) elements.
func New[T Element](name string, data []T, shape ...int) (*Array, error) {
	a := &Array{Name: name, Shape: append([]int{}, shape...), data: data}
	a.DType, _ = a.elementType()
	if err := a.checkShape(); err != nil {
		return nil, a.errorf("%w", err)
	}
	return a, nil
}

// NewBF16 is New of an array of type BF16, whose data are the bits of its elements.
func NewBF16(name string, data []uint16, shape ...int) (*Array, error) {
	a := &Array{Name: name, DType: BF16, Shape: append([]int{}, shape...), data: data}
	if err := a.checkShape(); err != nil {
		return nil, a.errorf("%w", err)
	}
	return a, nil
}

// maxDims is numpy's maximum number of dimensions.
const maxDims = 64

// maxEmpty bounds the product of the nonzero dimensions of an empty array.
const maxEmpty = 1 << 16

// CountElements returns the number of elements of a shape, 1 for a scalar. It returns an error if
// a dimension is negative, there are more than 64, or the product of the nonzero dimensions is too
// large for memory.
func CountElements(shape []int) (int, error) {
	if len(shape) > maxDims {
		return 0, fmt.Errorf("shape has %d dimensions, at most %d are read", len(shape), maxDims)
	}
	// A dimension of 0 must not hide an overflow: callers also use products of some dimensions,
	// and single dimensions.
	n, empty := 1, false
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %s has a negative dimension", formatShape(shape))
		}
		if d == 0 {
			empty = true
			continue
		}
		if n > math.MaxInt/8/d {
			return 0, fmt.Errorf("shape %s is too large", formatShape(shape))
		}
		n *= d
	}
	if empty && n > maxEmpty {
		return 0, fmt.Errorf("shape %s has no elements, but %d without its zeros; at most %d are read", formatShape(shape), n, maxEmpty)
	}
	if empty {
		return 0, nil
	}
	return n, nil
}

// formatShape formats a shape as a Python tuple: (), (3,) or (3, 4).
func formatShape(shape []int) string {
	var b strings.Builder
	b.WriteByte('(')
	for i, d := range shape {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(d))
	}
	if len(shape) == 1 {
		b.WriteByte(',')
	}
	b.WriteByte(')')
	return b.String()
}

// elementType returns the type and number of the elements in data.
func (a *Array) elementType() (DType, int) {
	switch data := a.data.(type) {
	case []float32:
		return F4, len(data)
	case []float64:
		return F8, len(data)
	case []int32:
		return I4, len(data)
	case []int64:
		return I8, len(data)
	case []int8:
		return I1, len(data)
	case []uint16:
		return BF16, len(data)
	case []uint8:
		return U1, len(data)
	case []bool:
		return Bool, len(data)
	}
	return 0, 0
}

// checkShape returns an error if type or shape do not match the data.
func (a *Array) checkShape() error {
	t, have := a.elementType()
	if t == 0 || t != a.DType {
		return fmt.Errorf("dtype is %v, the data %v", a.DType, t)
	}
	n, err := CountElements(a.Shape)
	if err != nil {
		return err
	}
	if n != have {
		return fmt.Errorf("shape %s has %d elements, the data %d", formatShape(a.Shape), n, have)
	}
	return nil
}

// errorf returns an error that begins with the array's name.
func (a *Array) errorf(format string, args ...any) error {
	name := a.Name
	if name == "" {
		name = "array"
	}
	return fmt.Errorf("%s: %w", name, fmt.Errorf(format, args...))
}

// typeError returns the error for an unsuitable type; types names the suitable ones.
func (a *Array) typeError(types string) error {
	return a.errorf("dtype is %v; %s is needed", a.DType, types)
}

// Float32 returns the elements of an f4 array, shared, or of an f8 array, rounded. It returns an
// error for other types, or if a finite f8 exceeds the range of f4.
func (a *Array) Float32() ([]float32, error) {
	switch data := a.data.(type) {
	case []float32:
		return data, nil
	case []float64:
		out := make([]float32, len(data))
		for i, x := range data {
			out[i] = float32(x)
			if math.IsInf(float64(out[i]), 0) && !math.IsInf(x, 0) {
				return nil, a.errorf("element %d is %g, beyond the range of f4", i, x)
			}
		}
		return out, nil
	}
	return nil, a.typeError("f4 or f8")
}

// Float64 returns the elements of an f8 array, shared, or of an f4 array, widened. It returns an
// error for other types.
func (a *Array) Float64() ([]float64, error) {
	switch data := a.data.(type) {
	case []float64:
		return data, nil
	case []float32:
		return widenElements[float64](data), nil
	}
	return nil, a.typeError("f4 or f8")
}

// Int64 returns the elements of an i8 array, shared, or of an i4 or u1 array, widened. It returns
// an error for other types.
func (a *Array) Int64() ([]int64, error) {
	switch data := a.data.(type) {
	case []int64:
		return data, nil
	case []int32:
		return widenElements[int64](data), nil
	case []uint8:
		return widenElements[int64](data), nil
	}
	return nil, a.typeError("i4, i8 or u1")
}

// Bytes returns the elements of a u1 array, shared. It returns an error for other types.
func (a *Array) Bytes() ([]uint8, error) {
	if data, ok := a.data.([]uint8); ok {
		return data, nil
	}
	return nil, a.typeError("u1")
}

// Bool returns the elements of a bool array, shared, or x ≠ 0 for the elements of a u1 array. It
// returns an error for other types.
func (a *Array) Bool() ([]bool, error) {
	switch data := a.data.(type) {
	case []bool:
		return data, nil
	case []uint8:
		out := make([]bool, len(data))
		for i, x := range data {
			out[i] = x != 0
		}
		return out, nil
	}
	return nil, a.typeError("u1 or bool")
}

// widenElements converts each element to a wider type.
func widenElements[To float64 | int64, From float32 | int32 | uint8](data []From) []To {
	out := make([]To, len(data))
	for i, x := range data {
		out[i] = To(x)
	}
	return out
}
