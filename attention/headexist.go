package attention

import (
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// Compact returns the rows of x, one for each key, whose keys exist, one after
// another: x itself where all do. A mechanism to which the places of keys mean
// something, as means of neighbours do, meets masked keys as absent ones so.
func (h *Head[T]) Compact(x tensor.Mat[T]) tensor.Mat[T] {
	if h.Mask == nil {
		return x
	}
	y := h.Take(x.Rows, x.Cols)
	n := 0
	for j := range x.Rows {
		if h.Mask[j] {
			copy(y.Row(n), x.Row(j))
			n++
		}
	}
	return y.Slice(0, n)
}

// Spread puts the rows of x, which Compact gave the shape of, to the places of
// their keys in dst, which may be x itself where all keys exist. Others are left
// as they are.
func (h *Head[T]) Spread(dst, x tensor.Mat[T]) {
	if h.Mask == nil {
		scratch.CopyMat(dst, x)
		return
	}
	n := 0
	for j := range dst.Rows {
		if h.Mask[j] {
			copy(dst.Row(j), x.Row(n))
			n++
		}
	}
}

// Compacted returns where the gradients of Compact(x) go that Spread takes to
// dx: dx itself where all keys exist.
func (h *Head[T]) Compacted(dx tensor.Mat[T], rows int) tensor.Mat[T] {
	if h.Mask == nil {
		return dx
	}
	return h.Take(rows, dx.Cols)
}

// Existing returns how many keys exist.
func (h *Head[T]) Existing() int {
	n := h.K.Rows
	for _, exists := range h.Mask {
		if !exists {
			n--
		}
	}
	return n
}
