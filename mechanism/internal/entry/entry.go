// Package entry holds what builders of mechanisms share: the reader of a row's settings and sizes, and
// small functions of several mechanisms. The rows themselves are in package mechanism.
package entry

import (
	"fmt"
	"strconv"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/settings"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// float is the element type of inputs and outputs.
type float = tensor.Float

// Reader reads the settings of a row, and has the sizes for which it is built.
type Reader struct {
	*settings.Reader
	Name                           string // of the row
	Heads, KeyHeads, Width, Length int    // as in mechanism.Options
	Seed                           uint64
	Set                            map[string]string
}

// FormatScale returns a scale as the text of its setting; 0 stands for 1/√D.
func FormatScale(x float64) string {
	if x == 0 {
		return "1/sqrt(D)"
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// CheckHeads returns an error unless an array with have heads fits a call with heads
// heads: it needs as many, or one that all of them share.
func CheckHeads(name string, have, heads int) error {
	if have != 1 && have != heads {
		return fmt.Errorf("q: has %d heads, %s is of %d", heads, name, have)
	}
	return nil
}

// EluPlusOne is elu(x) + 1: x + 1 for x > 0, else exp(x).
type EluPlusOne struct{}

func (EluPlusOne) Dim(d int) int { return d }

func (EluPlusOne) Elementwise() {}

// Roundings returns a bound of the error in roundings: those of the exponential
// (kernel.TestExpAccuracy) and of the sum.
func (EluPlusOne) Roundings() float64 { return 8 }

func (EluPlusOne) Map(dst, x []tensor.Float) { kernel.Active[float]().EluPlusOne(dst, x[:len(dst)]) }

func (EluPlusOne) Grad(dx, dy, x []tensor.Float) { kernel.Active[float]().EluPlusOneGrad(dx, dy, x) }

// ScoreCap returns the limit of scores, 0 for none.
func (r *Reader) ScoreCap() (float64, error) {
	c, err := r.Positive("cap", "none")
	if err != nil || c != 0 && (c < 1e-3 || c > maxScoreCap) {
		err = r.Refuse("cap", fmt.Sprintf("a number from 0.001 to %d, or none", maxScoreCap))
	}
	return c, err
}

const maxScoreCap = 64

// MaxNumbers bounds the elements of a parameter or constant. A configuration may come
// from an untrusted file, and its arrays are allocated before the file of weights is
// read.
const MaxNumbers = 1 << 24

// Room returns an error if an array of the shape has more than MaxNumbers elements.
func (r *Reader) Room(name string, shape ...int) error {
	n := 1.0
	for _, size := range shape {
		n *= float64(size)
	}
	if n > MaxNumbers {
		return fmt.Errorf("%s: %s of shape %v has %.0f elements, at most %d are possible", r.Name, name, shape, n, MaxNumbers)
	}
	return nil
}

// Key returns the random key of the setting seed and Seed.
func (r *Reader) Key() (rng.Key, error) {
	n, err := strconv.ParseUint(r.Text("seed"), 10, 64)
	if err != nil {
		return rng.Key{}, r.Refuse("seed", "a whole number from 0 to 2^64-1")
	}
	return rng.New(n).Fold(r.Seed), nil
}

// Redraws returns the number of updates between two redraws, 0 for none.
func (r *Reader) Redraws() (int, error) { return r.Integer("redraw", 0, MaxSettingTokens) }

// ParamWidth returns the width of parameters, 64 if Width is 0.
func (r *Reader) ParamWidth() int {
	if r.Width == 0 {
		return 64
	}
	return r.Width
}

// ElementBytes returns the size of an element in bytes.
func ElementBytes() float64 { return float64(scratch.ElementSize[float]()) }

// SliceColumns returns the columns j0 ≤ j < j1 of x.
func SliceColumns(x tensor.Mat, j0, j1 int) tensor.Mat {
	return tensor.Mat{Data: x.Data[j0:], Rows: x.Rows, Cols: j1 - j0, Stride: x.Stride}
}

// MaxSettingTokens is the largest number of tokens that settings accept.
const MaxSettingTokens = 1 << 30

// SortGroups sorts the indices of groups [m], whose elements are below n, by group and
// then by index. It returns the sorted indices, order [m]. Group g is
// order[begin[g]:begin[g+1]], with begin [n+1].
func SortGroups(ar *arena.Arena, groups []int32, n int) (order, begin []int32) {
	order, begin = arena.Take[int32](ar, len(groups)), arena.TakeZeros[int32](ar, n+1)
	for _, g := range groups {
		begin[g+1]++
	}
	for g := range n {
		begin[g+1] += begin[g]
	}
	for i, g := range groups {
		order[begin[g]] = int32(i)
		begin[g]++
	}
	copy(begin[1:], begin[:n])
	begin[0] = 0
	return order, begin
}

// SoftmaxScale returns the factor of scores, 0 for 1/√D.
func (r *Reader) SoftmaxScale() (float64, error) {
	return r.Positive("scale", "1/sqrt(D)")
}

func (EluPlusOne) Positive() bool { return true }
