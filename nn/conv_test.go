package nn

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
)

func TestConvIsItsDefinition(t *testing.T) {
	const b, n, taps, w = 2, 11, 4, 5
	s := &source{key: rng.New(4)}
	c := &Conv[float64]{W: weight[float64](s, taps, w)}
	x, y := matrix[float64](s, b*n, w), matrix[float64](s, b*n, w)
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
		past := make([]float64, b*c.Past())
		at := 0
		for _, size := range sizes {
			px, py := matrix[float64](s, b*size, w), matrix[float64](s, b*size, w)
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

func TestConvThreadsDoNotChangeBits(t *testing.T) {
	const b, n, taps, w = 3, 301, 4, 640 // arithmetic enough to be shared
	s := &source{key: rng.New(5)}
	c := &Conv[float32]{W: weight[float32](s, taps, w)}
	x, dy := matrix[float32](s, b*n, w), matrix[float32](s, b*n, w)
	run := func(threads int) [][]float32 {
		par.SetThreads(threads)
		defer par.SetThreads(0)
		clear(c.W.Grad)
		y, dx := matrix[float32](s, b*n, w), matrix[float32](s, b*n, w)
		c.Forward(y, x, b, nil)
		c.Backward(dx, dy, x, b)
		return [][]float32{flat(y), flat(dx), slices.Clone(c.W.Grad)}
	}
	one, three := run(1), run(3)
	for i, what := range []string{"y", "dx", "dW"} {
		if !slices.Equal(one[i], three[i]) {
			t.Errorf("%s depends on the threads", what)
		}
	}
}
