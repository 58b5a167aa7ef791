package problem

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/cli/display"
)

// CheckNames returns an error that lists the known names if one of names, those of a file's arrays,
// is not known.
func CheckNames(names []string, known ...string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%s: no array of this name is read; there are: %s", display.Escape(name), strings.Join(known, ", "))
		}
	}
	return nil
}

// ReadTokens reads a two-dimensional array of integers or bools, or returns nil if the file lacks
// it. It returns an error if the array is malformed, or if want is not nil and not its shape.
func ReadTokens(src array.Source, name string, want []int) (list []int32, shape []int, err error) {
	if !slices.Contains(src.Names(), name) {
		return nil, nil, nil
	}
	a, err := src.ReadArray(name)
	switch {
	case err != nil:
		return nil, nil, err
	case len(a.Shape) != 2:
		return nil, nil, fmt.Errorf("%s: has the shape %v, needs 2 dimensions", name, a.Shape)
	case want != nil && !slices.Equal(a.Shape, want):
		return nil, nil, fmt.Errorf("%s: has the shape %v, input_ids %v", name, a.Shape, want)
	}
	list, err = toInt32(a)
	return list, a.Shape, err
}

// ReadMask reads attention_mask, which says for each token whether it is real or padding, and has
// the shape of input_ids. It returns nil if the file lacks it.
func ReadMask(src array.Source, shape []int) ([]bool, error) {
	list, _, err := ReadTokens(src, "attention_mask", shape)
	if err != nil || list == nil {
		return nil, err
	}
	mask := make([]bool, len(list))
	for i, x := range list {
		if x != 0 && x != 1 {
			return nil, fmt.Errorf("attention_mask: element %s is %d, 0 or 1 is needed", position(i, shape), x)
		}
		mask[i] = x == 1
	}
	return mask, nil
}

// CheckPositions returns an error if position_ids differs from the positions that the model counts:
// from first on in each sequence, with skips without the tokens that mask leaves out. Positions of
// left-out tokens have no effect and are not compared.
func CheckPositions(src array.Source, shape []int, mask []bool, first int, skips bool) error {
	want := shape
	if slices.Contains(src.Names(), "position_ids") {
		if _, have, err := src.ReadHeader("position_ids"); err == nil && slices.Equal(have, []int{1, shape[1]}) {
			want = have // the same for all sequences
		}
	}
	list, _, err := ReadTokens(src, "position_ids", want)
	if err != nil || list == nil {
		return err
	}
	for row := range shape[0] {
		at := int64(first)
		for i := range shape[1] {
			isMasked := mask != nil && !mask[row*shape[1]+i]
			k := (row*shape[1] + i) % len(list)
			if !isMasked && int64(list[k]) != at {
				return fmt.Errorf("position_ids: element %s is %d; the model counts its positions itself, %d here; leave the array out", position(k, want), list[k], at)
			}
			if !isMasked || !skips {
				at++
			}
		}
	}
	return nil
}

// toInt32 returns the elements of an array of integers or bools.
func toInt32(a *array.Array) ([]int32, error) {
	if a.DType == array.Bool {
		list, err := a.Bool()
		if err != nil {
			return nil, err
		}
		out := make([]int32, len(list))
		for i, x := range list {
			if x {
				out[i] = 1
			}
		}
		return out, nil
	}
	list, err := a.Int64()
	if err != nil {
		return nil, err
	}
	out := make([]int32, len(list))
	for i, x := range list {
		if x < math.MinInt32 || x > math.MaxInt32 {
			return nil, fmt.Errorf("%s: element %d is %d, beyond int32", a.Name, i, x)
		}
		out[i] = int32(x)
	}
	return out, nil
}
