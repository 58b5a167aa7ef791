package nn

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
)

func TestConvThreadsDoNotChangeBits(t *testing.T) {
	const b, n, taps, w = 3, 301, 4, 640 // arithmetic enough to be shared
	s := &source{key: rng.New(5)}
	c := &Conv{W: weight(s, taps, w)}
	x, dy := matrix(s, b*n, w), matrix(s, b*n, w)
	run := func(threads int) [][]float {
		par.SetThreads(threads)
		defer par.SetThreads(0)
		clear(c.W.Grad)
		y, dx := matrix(s, b*n, w), matrix(s, b*n, w)
		c.Forward(y, x, b, nil)
		c.Backward(dx, dy, x, b, ConvEnds{})
		return [][]float{flat(y), flat(dx), slices.Clone(c.W.Grad)}
	}
	one, three := run(1), run(3)
	for i, what := range []string{"y", "dx", "dW"} {
		if !slices.Equal(one[i], three[i]) {
			t.Errorf("%s depends on the threads", what)
		}
	}
}
