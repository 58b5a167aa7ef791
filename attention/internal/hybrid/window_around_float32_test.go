//go:build !float64

package hybrid

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
)

func TestThreadsChangeNoBitOfUnmaskedWindows(t *testing.T) {
	defer func(work float64) { headtask.SplitWork = work }(headtask.SplitWork)
	defer par.SetThreads(0)
	headtask.SplitWork = 1
	r := rand.New(rand.NewPCG(32, 33))
	for name, m := range nearFar() {
		e := windowedOf(t, m)
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 4, 150, 6), K: calltest.Normal(r, 1, 1, 150, 6), V: calltest.Normal(r, 1, 1, 150, 5), KeyMask: calltest.Flags(r, 150)})
		do := calltest.Convert(calltest.Normal(r, 1, 4, 150, 5))
		c.Chunk = 16
		for _, form := range []attention.Form{attention.Direct, attention.Linear} {
			var bits [][]float32
			for _, threads := range []int{1, 3} {
				par.SetThreads(threads)
				out, keep := calltest.Forward(t, e, c, form)
				g, dtau := calltest.Backward(t, e, c, do, out, keep)
				bits = append(bits, slices.Concat(out.Data, g.DQ.Data, g.DK.Data, g.DV.Data, dtau))
			}
			if !slices.Equal(bits[0], bits[1]) {
				t.Errorf("%s, %v: three threads change bits", name, form)
			}
		}
	}
}
