package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Mechanisms with landmarks take all their memory from scratch, and the memory they
// keeps for the gradient from Saved.
func TestLandmarksDoNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	for _, x := range []struct{ name, key, value string }{
		{"nystrom", "conv", "5"},
		{"informer", "factor", "5"},
		{"luna", "form", "encoder"},
		{"luna", "form", "causal"},
		{"eva", "rpe", "true"},
		{"eva", "chunk", "16"},
		{"primal", "data", "independent"},
		{"primal", "data", "dependent"},
	} {
		doNotAllocate(t, x.name, map[string]string{x.key: x.value})
	}
}

// doNotAllocate fails where a call and its gradient take memory of their own.
func doNotAllocate(t *testing.T, name string, set map[string]string) {
	t.Helper()
	doNotAllocateAt(t, name, 0, set)
}

// doNotAllocateAt is doNotAllocate with an order.
func doNotAllocateAt(t *testing.T, name string, order int, set map[string]string) {
	t.Helper()
	oc, do := shape{b: 1, h: 2, hkv: 2, n: 100, m: 100, d: 8, dv: 8}.call(104)
	c, dout := callIn(oc), in(do)
	heads := func() tensor.Heads { return tensor.NewHeads(1, 2, 100, 8) }
	m, err := New(name, Options{Order: order, Width: 8, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	out, keep := heads(), new(attention.Saved)
	g := &attention.Grads{DQ: heads(), DK: heads(), DV: heads()}
	if n := testing.AllocsPerRun(20, func() {
		if err := m.Forward(out, c, keep); err != nil {
			t.Fatal(err)
		}
		if err := m.Backward(g, dout, out, c, keep); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%s of order %d, %v: %.0f allocations a call", name, order, set, n)
	}
}
