// Package scratch takes matrices from scratch memory and resizes slices without clearing them.
package scratch

import (
	"math/bits"
	"slices"
	"unsafe"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// TakeMat returns a matrix [rows,cols] in scratch memory with undefined contents.
func TakeMat(ar *arena.Arena, rows, cols int) tensor.Mat {
	return tensor.Mat{Data: arena.Take[tensor.Float](ar, rows*cols), Rows: rows, Cols: cols, Stride: cols}
}

// ZeroMat returns a matrix [rows,cols] of zeros in scratch memory.
func ZeroMat(ar *arena.Arena, rows, cols int) tensor.Mat {
	x := TakeMat(ar, rows, cols)
	clear(x.Data)
	return x
}

// CopyMat copies x to dst, which has the same shape and may be x itself.
func CopyMat(dst, x tensor.Mat) {
	if len(dst.Data) == 0 || &dst.Data[0] == &x.Data[0] {
		return
	}
	for i := range x.Rows {
		copy(dst.Row(i), x.Row(i))
	}
}

// ClearRows sets rows i0 ≤ i < i1 of x to zero.
func ClearRows(x tensor.Mat, i0, i1 int) {
	for i := i0; i < i1; i++ {
		clear(x.Row(i))
	}
}

// GatherRows returns a copy of the given rows of x [m,n] in scratch memory.
func GatherRows(ar *arena.Arena, x tensor.Mat, rows []int32) tensor.Mat {
	y := TakeMat(ar, len(rows), x.Cols)
	for i, j := range rows {
		copy(y.Row(i), x.Row(int(j)))
	}
	return y
}

// IsContiguous reports whether the rows of x follow each other without a gap.
func IsContiguous(x tensor.Mat) bool { return x.Stride == x.Cols || x.Rows <= 1 }

// Contiguous returns x if its rows are contiguous, otherwise a contiguous copy in scratch
// memory.
func Contiguous(ar *arena.Arena, x tensor.Mat) tensor.Mat {
	if IsContiguous(x) {
		x.Stride = x.Cols
		return x
	}
	y := TakeMat(ar, x.Rows, x.Cols)
	CopyMat(y, x)
	return y
}

// ForOutput returns x if its rows are contiguous, else a matrix of the same shape in scratch
// memory with undefined contents. The caller copies the result back with CopyMat.
func ForOutput(ar *arena.Arena, x tensor.Mat) tensor.Mat {
	if IsContiguous(x) {
		x.Stride = x.Cols
		return x
	}
	return TakeMat(ar, x.Rows, x.Cols)
}

// Stride returns a stride for rows of n elements: a multiple of the vector length, and an odd
// number of cache lines, so that the elements of a column spread over the cache.
func Stride[T kernel.Float](n int) int {
	var z T
	line := 64 / int(unsafe.Sizeof(z))
	n = kernel.Pad(n)
	if n/line%2 == 0 {
		n += line
	}
	return n
}

// Grow appends n elements with undefined contents to x [len(x)].
func Grow[E any](x []E, n int) []E { return slices.Grow(x, n)[:len(x)+n] }

// Resize returns x [len(x)] with n elements. The first min(n, len(x)) keep their
// values.
func Resize[E any](x []E, n int) []E {
	if cap(x) >= n {
		return x[:n]
	}
	return append(x[:cap(x)], make([]E, n-cap(x))...)
}

// ElementSize returns the number of bytes of a T.
func ElementSize[T kernel.Float]() int64 {
	var z T
	return int64(unsafe.Sizeof(z))
}

// AllocatedBytes estimates how many bytes the runtime allocates for an object of n bytes: whole
// pages above 32 KiB, and otherwise one of eight sizes between a power of two and the next.
func AllocatedBytes(n int64) int64 {
	const page, large = 8 << 10, 32 << 10
	step := int64(page)
	if n <= large {
		step = int64(max(1<<max(bits.Len64(uint64(max(n-1, 0)))-4, 0), 16))
	}
	return (n + step - 1) / step * step
}
