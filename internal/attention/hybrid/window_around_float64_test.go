//go:build float64

package hybrid

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// A sequence in reverse order has the outputs of the sequence in reverse order.
func TestUnmaskedWindowKnowsNoDirection(t *testing.T) {
	r := rand.New(rand.NewPCG(34, 35))
	reversed := func(x tensor.Heads) tensor.Heads {
		y := tensor.NewHeads(x.B, x.H, x.N, x.D)
		for h := range x.H {
			for i := range x.N {
				copy(y.Head(0, h).Row(x.N-1-i), x.Head(0, h).Row(i))
			}
		}
		return y
	}
	for name, m := range nearFar() {
		e := windowedOf(t, m)
		q, k, v := calltest.Normal(r, 1, 4, 40, 6), calltest.Normal(r, 1, 2, 40, 6), calltest.Normal(r, 1, 2, 40, 5)
		for _, form := range []attention.Form{attention.Direct, attention.Linear} {
			out, _ := calltest.Forward(t, e, calltest.NewCall(&oracle.Call{Q: q, K: k, V: v}), form)
			back, _ := calltest.Forward(t, e, calltest.NewCall(&oracle.Call{Q: reversed(q), K: reversed(k), V: reversed(v)}), form)
			if x := check.ErrorRatio(reversed(back).Data, out.Data, 1e-13); x > 1 {
				t.Errorf("%s, %v: the reversed sequence differs by %.3g", name, form, x*1e-13)
			}
		}
	}
}

// Both forms of the far field agree where the sums of its keys exist for a few chunks at a
// time, with more queries than keys or less, with any alignment of chunks and windows,
// and with several blocks of features.
func TestFormsOfUnmaskedWindowsAgree(t *testing.T) {
	defer func(room int) { headtask.TwoSidedRoom = room }(headtask.TwoSidedRoom)
	defer func(work float64) { headtask.SplitWork = work }(headtask.SplitWork)
	defer par.SetThreads(0)
	headtask.SplitWork = 1
	r := rand.New(rand.NewPCG(40, 41))
	for trial := range 60 {
		d, order := 4+trial%5*5, 2
		if d < 10 {
			order = 2 + trial%2*2
		}
		m := &oracle.Mechanism{Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(order), Window: &oracle.Window{Width: 1 + r.IntN(20), Gamma: []float64{1}}}
		n, keys := 1+r.IntN(200), 1+r.IntN(200)
		if trial%3 == 0 {
			keys = n
		}
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 2, n, d), K: calltest.Normal(r, 1, 1, keys, d), V: calltest.Normal(r, 1, 1, keys, 5)})
		if trial%4 == 0 {
			c.KeyMask = calltest.Flags(r, keys)
		}
		do := calltest.Normal(r, 1, 2, n, 5)
		e := windowedOf(t, m)
		bits := map[string][]float64{}
		for _, x := range []struct {
			name          string
			form          attention.Form
			room, threads int
		}{{"direct", attention.Direct, 1 << 22, 1}, {"whole", attention.Linear, 1 << 22, 1}, {"stretches", attention.Linear, 1, 1}, {"threads", attention.Linear, 1, 3}} {
			headtask.TwoSidedRoom, c.Chunk = x.room, 1+trial%7
			par.SetThreads(x.threads)
			out, keep := calltest.Forward(t, e, c, x.form)
			g, _ := calltest.Backward(t, e, c, do, out, keep)
			bits[x.name] = slices.Concat(out.Data, g.DQ.Data, g.DK.Data, g.DV.Data)
		}
		if x := check.ErrorRatio(bits["whole"], bits["direct"], 1e-11*(1+check.MaxAbs(bits["direct"]))); x > 1 {
			t.Errorf("%d queries, %d keys, D = %d, window %d, chunks of %d: the linear form differs by %.3g limits", n, keys, d, m.Window.Width, c.Chunk, x)
		}
		if !slices.Equal(bits["stretches"], bits["threads"]) {
			t.Errorf("%d queries, %d keys, D = %d, window %d, chunks of %d: three threads change bits", n, keys, d, m.Window.Width, c.Chunk)
		}
		if !slices.Equal(bits["whole"], bits["stretches"]) {
			t.Errorf("%d queries, %d keys, D = %d, window %d, chunks of %d: the room for sums changes bits", n, keys, d, m.Window.Width, c.Chunk)
		}
	}
}

func TestWindowNeedsTheWholeDenominator(t *testing.T) {
	_, err := New(attention.Spec{Name: "floored", Coef: []float64{1, 1}, Floor: 1, Window: &attention.Window{Width: 2}})
	if want := "floored: window: not defined with a least denominator of 1"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestWindowBoundsItsWidth(t *testing.T) {
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, "near: window: 0 tokens, needs 1 or more"},
		{1 << 30, "<nil>"},
		{1<<30 + 1, "near: window: 1073741825 tokens, needs 1073741824 or less"},
		{math.MaxInt, fmt.Sprintf("near: window: %d tokens, needs 1073741824 or less", math.MaxInt)},
	} {
		_, err := New(attention.Spec{Name: "near", Coef: []float64{1, 1}, Window: &attention.Window{Width: c.width}})
		if got := fmt.Sprint(err); got != c.want {
			t.Errorf("error %s, want %s", got, c.want)
		}
	}
}
