//go:build !float64

package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// A task may allocate a handful of small things, its pieces nothing.
func TestDirectAllocations(t *testing.T) {
	if calltest.Raced {
		t.Skip("the race detector allocates")
	}
	par.SetThreads(1)
	defer par.SetThreads(0)
	r := rand.New(rand.NewPCG(14, 15))
	for _, name := range []string{"softmax", "fastmax2"} {
		e := mechanismOf(t, name, calltest.Textbook[name])
		var last float64
		for _, n := range []int{50, 700} {
			c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 2, n, 5), K: calltest.Normal(r, 1, 1, n, 5), V: calltest.Normal(r, 1, 1, n, 3), Causal: true})
			c.Form = attention.Direct
			out, keep := tensor.NewHeads(1, 2, n, 3), new(attention.Saved)
			g := &attention.Grads{DQ: tensor.NewHeads(1, 2, n, 5), DK: tensor.NewHeads(1, 1, n, 5), DV: tensor.NewHeads(1, 1, n, 3)}
			allocs := testing.AllocsPerRun(5, func() {
				if err := e.Forward(out, c, keep); err != nil {
					t.Fatal(err)
				}
				if err := e.Backward(g, out, out, c, keep); err != nil {
					t.Fatal(err)
				}
			})
			if allocs > 0 || last > 0 && allocs != last {
				t.Errorf("%s: %v allocations for %d tokens, %v for fewer", name, allocs, n, last)
			}
			last = allocs
		}
	}
}
