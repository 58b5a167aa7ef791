package golden

import (
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// float is the element of arrays: see tensor.Float.
type float = tensor.Float

// arrays reads the arrays of a case and keeps the first error. A missing array is empty.
type arrays struct {
	file   *array.File
	prefix string // of the case's own
	err    error
}

// name returns the name of an array in the file; "": there is none.
func (a *arrays) name(name string) string {
	for _, full := range []string{a.prefix + name, name} {
		if slices.Contains(a.file.Names(), full) {
			return full
		}
	}
	return ""
}

func (a *arrays) has(name string) bool { return a.name(name) != "" }

// read returns the elements of an array, as of says, and its shape.
func read[T any](a *arrays, name string, of func(x *array.Array) ([]T, error)) ([]T, []int) {
	full := a.name(name)
	if full == "" {
		return nil, nil
	}
	x, err := a.file.ReadArray(full)
	var list []T
	if err == nil {
		list, err = of(x)
	}
	if err != nil {
		if a.err == nil {
			a.err = err
		}
		return nil, nil
	}
	return list, x.Shape
}

func (a *arrays) floats(name string) []float64 {
	x, _ := read(a, name, (*array.Array).Float64)
	return x
}

func (a *arrays) bools(name string) []bool {
	x, _ := read(a, name, (*array.Array).Bool)
	return x
}

func (a *arrays) ints(name string) []int64 {
	x, _ := read(a, name, (*array.Array).Int64)
	return x
}

// heads returns an array of shape (N,D), (H,N,D) or (B,H,N,D).
func (a *arrays) heads(name string) oracle.Heads {
	x, shape := read(a, name, (*array.Array).Float64)
	if x == nil {
		return oracle.Heads{}
	}
	n := len(shape)
	if n < 2 || n > 4 {
		if a.err == nil {
			a.err = fmt.Errorf("%s: has %d dimensions, needs 2 to 4", name, n)
		}
		return oracle.Heads{}
	}
	s := append([]int{1, 1}[:4-n:4-n], shape...)
	return oracle.HeadsOf(x, s[0], s[1], s[2], s[3])
}

// rows returns an array of shape (B,N,C), and its shape.
func (a *arrays) rows(name string) (tensor.Mat, [3]int) {
	x, shape := read(a, name, (*array.Array).Float64)
	if len(shape) != 3 {
		if a.err == nil {
			a.err = fmt.Errorf("%s: has shape %v, needs 3 dimensions", name, shape)
		}
		return tensor.Mat{}, [3]int{}
	}
	y := tensor.NewMat(shape[0]*shape[1], shape[2])
	copyTo(y.Data, x)
	return y, [3]int(shape)
}

// copyTo rounds x to dst.
func copyTo(dst []float, x []float64) {
	for i, v := range x {
		dst[i] = float(v)
	}
}

// narrow returns x as a call has it.
func narrow(x oracle.Heads) tensor.Heads {
	y := tensor.Heads{B: x.B, H: x.H, N: x.N, D: x.D, SB: x.SB, SH: x.SH, SN: x.SN}
	if x.Data != nil {
		y.Data = make([]float, len(x.Data))
		copyTo(y.Data, x.Data)
	}
	return y
}
