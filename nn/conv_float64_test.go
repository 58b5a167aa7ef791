//go:build float64

package nn

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

func TestConvIsItsDefinition(t *testing.T) {
	const b, n, taps, w = 2, 11, 4, 5
	s := &source{key: rng.New(4)}
	c := &Conv{W: weight(s, taps, w)}
	x, y := matrix(s, b*n, w), matrix(s, b*n, w)
	c.Forward(y, x, b, nil)
	for r := range b {
		for i := range n {
			for j := range w {
				var want float64
				for k := range min(taps, i+1) {
					want += c.W.Data[k*w+j] * x.Row(r*n + i - k)[j]
				}
				if got := y.Row(r*n + i)[j]; got != want {
					t.Errorf("row %d, token %d, channel %d: %v, want %v", r, i, j, got, want)
				}
			}
		}
	}
	// In pieces, each continued from the rows before it, to the same bits.
	for _, sizes := range [][]int{{11}, {1, 2, 1, 7}, {5, 6}, {3, 3, 5}} {
		past := make([]float64, b*c.PastSize())
		at := 0
		for _, size := range sizes {
			px, py := matrix(s, b*size, w), matrix(s, b*size, w)
			for r := range b {
				for i := range size {
					copy(px.Row(r*size+i), x.Row(r*n+at+i))
				}
			}
			c.Forward(py, px, b, past)
			for r := range b {
				for i := range size {
					if !slices.Equal(py.Row(r*size+i), y.Row(r*n+at+i)) {
						t.Errorf("pieces of %v: row %d, token %d differs from the whole", sizes, r, at+i)
					}
				}
			}
			at += size
		}
	}
}

// Parts of sequences, each with what lies around it, have the gradients of the whole.
func TestConvBackwardInParts(t *testing.T) {
	const b, n, taps, w = 2, 11, 4, 5
	s := &source{key: rng.New(6)}
	whole := &Conv{W: weight(s, taps, w)}
	x, dy, want := matrix(s, b*n, w), matrix(s, b*n, w), matrix(s, b*n, w)
	whole.Backward(want, dy, x, b, ConvEnds{})
	for _, sizes := range [][]int{{11}, {4, 7}, {3, 3, 5}, {9, 2}} {
		c := &Conv{W: weight(s, taps, w)}
		copy(c.W.Data, whole.W.Data)
		cut := func(m tensor.Mat, at, size int) tensor.Mat {
			part := matrix(s, b*size, w)
			for r := range b {
				for i := range size {
					copy(part.Row(r*size+i), m.Row(r*n+at+i))
				}
			}
			return part
		}
		pasts, past, at := [][]float64{}, make([]float64, b*c.PastSize()), 0
		for _, size := range sizes {
			pasts = append(pasts, slices.Clone(past))
			c.Forward(matrix(s, b*size, w), cut(x, at, size), b, past)
			at += size
		}
		next := make([]float64, b*c.PastSize())
		for p := len(sizes) - 1; p >= 0; p-- {
			size := sizes[p]
			at -= size
			dx := matrix(s, b*size, w)
			c.Backward(dx, cut(dy, at, size), cut(x, at, size), b, ConvEnds{PastRows: pasts[p], NextGrads: next, Last: p == len(sizes)-1})
			for i := range dx.Rows {
				if !slices.Equal(dx.Row(i), want.Row(i/size*n+at+i%size)) {
					t.Errorf("parts of %v: dx of row %d of part %d differs from the whole", sizes, i, p)
				}
			}
		}
		for i, g := range c.W.Grad {
			// Sums of 22 products in another order.
			if math.Abs(g-whole.W.Grad[i]) > 22*0x1p-52*22 {
				t.Errorf("parts of %v: dW[%d] is %v, of the whole %v", sizes, i, g, whole.W.Grad[i])
			}
		}
	}
}
