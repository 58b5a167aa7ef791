package model

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// The rows of a piece, and the work of an element in operations.
const (
	windowPiece = 64
	windowWork  = 4
)

// windowRows sets row i of y [B·N,K·width] to the K rows of x [B·N,width] around row i, side by
// side, with zeros beyond the ends of the sequence. K is odd. A Linear of windows is a
// convolution over all channels that keeps the length. lens [B] holds the number of valid rows
// of each sequence; others count as zeros. nil: all are valid.
func windowRows(y, x tensor.Mat, b int, lens []int64) {
	par.Run(y.Rows, windowPiece, windowWork*float64(y.Rows)*float64(y.Cols), rowWindows{y, x, x.Rows / b, lens})
}

// rowWindows copies the windows of sequences of n rows.
type rowWindows struct {
	y, x tensor.Mat
	n    int
	lens []int64
}

// validEnd returns the row after the last that counts, of the sequence that starts at
// row start.
func (f *rowWindows) validEnd(start int) int {
	if f.lens == nil {
		return start + f.n
	}
	return start + int(f.lens[start/f.n])
}

func (f *rowWindows) RunRange(i0, i1 int) {
	w := f.x.Cols
	k := f.y.Cols / w
	for i := i0; i < i1; i++ {
		start := i - i%f.n
		end := f.validEnd(start)
		for j := range k {
			to := f.y.Row(i)[j*w:][:w]
			if at := i + j - k/2; at >= start && at < end {
				copy(to, f.x.Row(at))
			} else {
				clear(to)
			}
		}
	}
}

// windowRowsGrad sets dx [B·N,width] to the gradient of x, given the gradient dy [B·N,K·width] of
// the result of windowRows with the same lens.
func windowRowsGrad(dx, dy tensor.Mat, b int, lens []int64) {
	par.Run(dx.Rows, windowPiece, windowWork*float64(dy.Rows)*float64(dy.Cols), rowWindowsGrad{rowWindows{dy, dx, dx.Rows / b, lens}})
}

// rowWindowsGrad sets the rows of x to their gradients from the gradients y of windows.
type rowWindowsGrad struct{ rowWindows }

func (f *rowWindowsGrad) RunRange(i0, i1 int) {
	t := kernel.Active[float]()
	w := f.x.Cols
	k := f.y.Cols / w
	for i := i0; i < i1; i++ {
		row := f.x.Row(i)
		clear(row)
		start := i - i%f.n
		if i >= f.validEnd(start) {
			continue
		}
		for j := range k {
			if at := i - j + k/2; at >= start && at < start+f.n {
				t.Add(row, row, f.y.Row(at)[j*w:][:w])
			}
		}
	}
}
