package golden

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/oracle"
)

// reader reads the arrays of one case and keeps the first error.
type reader struct {
	f   *file
	err error
}

func (r *reader) array(name string) *array.Array {
	if r.err != nil {
		return nil
	}
	a, err := r.f.src.ReadArray(name)
	r.err = err
	return a
}

// floats returns the elements of an array of numbers.
func (r *reader) floats(name string) []float64 {
	a := r.array(name)
	if r.err != nil {
		return nil
	}
	x, err := a.Float64()
	r.err = err
	return x
}

// scalar returns the only element of an array of numbers.
func (r *reader) scalar(name string) float64 {
	x := r.floats(name)
	if r.err == nil && len(x) != 1 {
		r.err = fmt.Errorf("%s: has %d elements, needs 1", name, len(x))
	}
	if r.err != nil {
		return 0
	}
	return x[0]
}

func (r *reader) ints(name string) []int64 {
	a := r.array(name)
	if r.err != nil {
		return nil
	}
	x, err := a.Int64()
	r.err = err
	return x
}

// truth returns the only element of an array of integers, whether it is not 0.
func (r *reader) truth(name string) bool {
	x := r.ints(name)
	if r.err == nil && len(x) != 1 {
		r.err = fmt.Errorf("%s: has %d elements, needs 1", name, len(x))
	}
	return r.err == nil && x[0] != 0
}

func (r *reader) bools(name string) []bool {
	a := r.array(name)
	if r.err != nil {
		return nil
	}
	x, err := a.Bool()
	r.err = err
	return x
}

// heads returns an array of shape (N,D), (H,N,D) or (B,H,N,D).
func (r *reader) heads(name string) oracle.Heads {
	a := r.array(name)
	if r.err != nil {
		return oracle.Heads{}
	}
	x, err := a.Float64()
	if err != nil {
		r.err = err
		return oracle.Heads{}
	}
	n := len(a.Shape)
	if n < 2 || n > 4 {
		r.err = fmt.Errorf("%s: has %d dimensions, needs 2 to 4", name, n)
		return oracle.Heads{}
	}
	s := append([]int{1, 1}[:4-n:4-n], a.Shape...)
	return oracle.HeadsOf(x, s[0], s[1], s[2], s[3])
}

// perToken returns an array of shape (N), (H,N) or (B,H,N) as heads of width 1.
func (r *reader) perToken(name string) oracle.Heads {
	a := r.array(name)
	if r.err != nil {
		return oracle.Heads{}
	}
	x, err := a.Float64()
	n := len(a.Shape)
	if err == nil && (n < 1 || n > 3) {
		err = fmt.Errorf("%s: has %d dimensions, needs 1 to 3", name, n)
	}
	if r.err = err; err != nil {
		return oracle.Heads{}
	}
	s := [3]int{1, 1, 1}
	copy(s[3-n:], a.Shape)
	return oracle.HeadsOf(x, s[0], s[1], s[2], 1)
}

// shape returns the dimensions of an array.
func (r *reader) shape(name string) []int {
	a := r.array(name)
	if r.err != nil {
		return nil
	}
	return a.Shape
}
