package headwise

import (
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// GatherUnmasked returns the unmasked rows of x [m,w], one row per key, without gaps. It
// returns x if no key is masked. Mechanisms whose result depends on the positions of keys use
// it to treat a masked key as if it were absent.
func (h *Head) GatherUnmasked(x tensor.Mat) tensor.Mat {
	if h.Mask == nil {
		return x
	}
	y := h.TakeScratch(x.Rows, x.Cols)
	n := 0
	for j := range x.Rows {
		if h.Mask[j] {
			copy(y.Row(n), x.Row(j))
			n++
		}
	}
	return y.Slice(0, n)
}

// ScatterUnmasked copies the rows of x, in the order of GatherUnmasked, to the rows of
// unmasked keys in dst [m,w]. Other rows of dst are unchanged. x may be dst if no key is masked.
func (h *Head) ScatterUnmasked(dst, x tensor.Mat) {
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

// UnmaskedGradBuffer returns a matrix with the given number of rows for the gradient of
// GatherUnmasked(x), which ScatterUnmasked then copies to dx. It returns dx itself if no key is
// masked.
func (h *Head) UnmaskedGradBuffer(dx tensor.Mat, rows int) tensor.Mat {
	if h.Mask == nil {
		return dx
	}
	return h.TakeScratch(rows, dx.Cols)
}

// CountUnmasked returns the number of unmasked keys.
func (h *Head) CountUnmasked() int {
	n := h.K.Rows
	for _, exists := range h.Mask {
		if !exists {
			n--
		}
	}
	return n
}
