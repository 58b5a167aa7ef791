//go:build float64

package model

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

func TestWindows(t *testing.T) {
	const b, n, w, k = 3, 5, 2, 3
	x := tensor.NewMat(b*n, w)
	for i := range x.Data {
		x.Data[i] = rng.New(1).Normal(uint64(i))
	}
	for _, lens := range [][]int64{nil, {5, 3, 0}} {
		want := tensor.NewMat(b*n, k*w)
		for r := range b {
			end := n
			if lens != nil {
				end = int(lens[r])
			}
			for i := range n {
				for j := range k {
					if at := i + j - 1; at >= 0 && at < end {
						copy(want.Row(r*n + i)[j*w:], x.Row(r*n+at))
					}
				}
			}
		}
		y := tensor.NewMat(b*n, k*w)
		windowRows(y, x, b, lens)
		if !slices.Equal(y.Data, want.Data) {
			t.Errorf("lens %v: windows are %v, want %v", lens, y.Data, want.Data)
		}
		// <dy, windows(x)> = <windowsᵀ(dy), x>, for whatever dy.
		dx := tensor.NewMat(b*n, w)
		dy := tensor.NewMat(b*n, k*w)
		for i := range dy.Data {
			dy.Data[i] = rng.New(2).Normal(uint64(i))
		}
		windowRowsGrad(dx, dy, b, lens)
		var there, back float64
		for i := range dy.Data {
			there += dy.Data[i] * y.Data[i]
		}
		for i := range dx.Data {
			back += dx.Data[i] * x.Data[i]
		}
		if d := there - back; d > 1e-13 || d < -1e-13 {
			t.Errorf("lens %v: the gradient is not the transpose: %v and %v", lens, there, back)
		}
	}
}
