package engine

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// revealed copies the rows of a head from whole, and records the requests.
type revealed struct {
	c, whole *attention.Call

	mu    sync.Mutex
	heads []int
	ahead int
}

func reveal(to, from *tensor.Heads, h int) {
	for b := range to.B {
		copy(to.Head(b, h).Row(0), from.Head(b, h).Row(0))
	}
}

// hidden is a call of one token that is all NaN, its rows head by head or not.
func hidden(c *attention.Call, byHead bool) *attention.Call {
	h := *c
	for _, x := range []*tensor.Heads{&h.Q, &h.K, &h.V} {
		*x = calltest.Poisoned(x.B, x.H, 1, x.D)
		if byHead {
			x.SB, x.SH = x.D, x.B*x.D
		}
	}
	return &h
}

// A step whose rows are made head by head has the bits of Step, of states that take a
// head at a time and of others.
func TestStepHeads(t *testing.T) {
	defer par.SetThreads(par.Threads())
	const n = 20
	kernels := firstDegrees()
	kernels["fastmax2"] = calltest.Textbook["fastmax2"]
	for name, m := range kernels {
		e := mechanismOf(t, name, m)
		for _, shape := range [][2]int{{5, 3}, {16, 32}, {32, 32}} {
			d, dv := shape[0], shape[1]
			for _, theta := range []float64{0, 100} {
				c := aloneCall(n, d, dv, theta)
				for threads := 1; threads <= 2; threads++ {
					par.SetThreads(threads)
					want, got := newState(t, e, c), newState(t, e, c)
					for i := range n {
						one := tokens(c, i, i+1)
						out, byHead := calltest.Poisoned(2, 3, 1, dv), calltest.Poisoned(2, 3, 1, dv)
						if err := want.Step(out, one); err != nil {
							t.Fatal(err)
						}
						r := &revealed{c: hidden(one, i%2 == 0), whole: one}
						if err := attention.StepPerHead(got, byHead, r.c, r, 1e9); err != nil {
							t.Fatal(err)
						}
						if !slices.Equal(out.Data, byHead.Data) {
							t.Fatalf("%s, D = %d, Dv = %d, %d threads: token %d has other bits", name, d, dv, threads, i)
						}
						if slices.Sort(r.heads); !slices.Equal(r.heads, []int{0, 1, 2}) {
							t.Fatalf("%s: made heads %v", name, r.heads)
						}
						if want := got.HasClosedCount; (r.ahead > 0) != want {
							t.Fatalf("%s: token %d: %d numbers ahead, takes a head at a time: %v", name, i, r.ahead, want)
						}
					}
					sameState(t, name+", stepped by heads", got, want)
				}
			}
		}
	}
}

func TestStepHeadsErrors(t *testing.T) {
	c := aloneCall(2, 4, 4, 0)
	e := mechanismOf(t, "linear", calltest.Textbook["linear"])
	out := calltest.Poisoned(2, 3, 1, 4)
	for want, call := range map[string]*attention.Call{
		"call":             nil,
		"q: N is 2":        c,
		"q: has 2 heads":   func() *attention.Call { c := tokens(c, 0, 1); c.Q.H = 2; return c }(),
		"k: M is 2":        func() *attention.Call { x := tokens(c, 0, 1); x.K, x.V = c.K, c.V; return x }(),
		"key_lengths: not": func() *attention.Call { c := tokens(c, 0, 1); c.KeyLens = []int64{1, 1}; return c }(),
	} {
		st := newState(t, e, c)
		r := &revealed{c: tokens(c, 0, 1), whole: tokens(c, 0, 1)}
		err := attention.StepPerHead(st, out, call, r, 1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one of %q", err, want)
		}
		if st.TokenCount != 0 {
			t.Errorf("%s: the state has %d tokens", want, st.TokenCount)
		}
	}
}

func TestStepHeadsDoesNotAllocate(t *testing.T) {
	if calltest.Raced {
		t.Skip("the race detector allocates")
	}
	defer par.SetThreads(par.Threads())
	par.SetThreads(1)
	c := aloneCall(1, 16, 16, 0)
	e := mechanismOf(t, "linear", calltest.Textbook["linear"])
	st, out := newState(t, e, c), calltest.Poisoned(2, 3, 1, 16)
	r := &revealed{c: hidden(c, true), whole: c, heads: make([]int, 0, 1<<10)}
	if n := testing.AllocsPerRun(50, func() {
		if err := attention.StepPerHead(st, out, r.c, r, 1); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func (r *revealed) ProjectHead(h int, next []float) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heads, r.ahead = append(r.heads, h), r.ahead+len(next)
	reveal(&r.c.Q, &r.whole.Q, h)
	reveal(&r.c.K, &r.whole.K, h)
	reveal(&r.c.V, &r.whole.V, h)
}
