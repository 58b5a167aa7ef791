package hybrid

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/attention/internal/engine"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// windowedOf returns the engine for a calltest.Textbook with a window.
func windowedOf[T tensor.Float](t *testing.T, m *oracle.Mechanism) attention.Mechanism[T] {
	t.Helper()
	s := attention.Spec[T]{Name: "windowed", Setting: "test", Norm: attention.Norm(m.Norm), Scale: m.Scale, Coef: m.Coef, Eps: m.Eps, Positive: true}
	s.Window = &attention.Window[T]{Width: m.Window.Width}
	if m.Window.Separate {
		s.Window.Join = attention.Separate
	}
	if m.Tau != nil {
		s.Tau = &param.Param[T]{Name: "tau", Shape: []int{len(m.Tau)}, Grad: make([]T, len(m.Tau))}
		for _, x := range m.Tau {
			s.Tau.Data = append(s.Tau.Data, T(x))
		}
	}
	e, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// nearFar are textbooks with windows.
func nearFar() map[string]*oracle.Mechanism {
	list := map[string]*oracle.Mechanism{}
	for _, join := range []string{"denominator", "separate"} {
		window := &oracle.Window{Width: 3, Separate: join == "separate", Gamma: []float64{1}}
		list["fastmax2 "+join] = &oracle.Mechanism{Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(2), Window: window}
		list["taylorshift "+join] = &oracle.Mechanism{Norm: oracle.Unit, Scale: 1, Tau: []float64{0.5, 1.5, 2, 1}, Coef: oracle.TaylorCoef(2), Window: window}
	}
	return list
}

func TestUnmaskedWindowWithDropoutIsTheTextbook(t *testing.T) {
	for name, m := range nearFar() {
		for _, kind := range []attention.DropKind{attention.TokenDrop, attention.ElementDrop} {
			r := rand.New(rand.NewPCG(30, 31))
			c := &oracle.Call{Q: calltest.Normal(r, 2, 4, 11, 5), K: calltest.Normal(r, 2, 2, 13, 5), V: calltest.Normal(r, 2, 2, 13, 3), KeyMask: calltest.Flags(r, 2*13), KeyLens: []int64{13, 9}, Theta: 100}
			d, book := calltest.GivenDrop(r, kind, 0.3, c)
			c.Drop = book
			want, do := m.Forward(c), calltest.Normal(r, 2, 4, 11, 3)
			grads := m.Backward(c, do)
			windowDropped[float64](t, name, m, c, d, do, want, grads)
			windowDropped[float32](t, name, m, c, d, do, want, grads)
		}
	}
}

// windowDropped compares both forms of an unmasked call with the calltest.Textbook.
func windowDropped[T tensor.Float](t *testing.T, name string, m *oracle.Mechanism, c *oracle.Call, d *attention.Drop, do tensor.Heads[float64], want *oracle.Result, grads *oracle.Grads) {
	t.Helper()
	e, call := windowedOf[T](t, m), calltest.NewCall[T](c)
	kind := "no dropout"
	if call.Drop, call.Chunk = d, 3; d != nil {
		kind = d.Kind.String()
	}
	limits := check.LinearLimits[T](e.Plan(call.Shape()).F, 13)
	cond, size := check.MaxAbs(want.Cond), check.MaxAbs(c.V.Data)+check.MaxAbs(want.O.Data)
	for _, form := range []attention.Form{attention.Direct, attention.Linear} {
		out, keep := calltest.Forward(t, e, call, form)
		if x := check.ErrorRatio(out.Data, want.O.Data, limits.Output(cond, size)); x > 1 {
			t.Errorf("%s, %s, %v: outputs are off by %.3g limits", name, kind, form, x)
		}
		g, dtau := calltest.Backward(t, e, call, calltest.Convert[T](do), out, keep)
		for _, x := range []struct {
			name string
			got  []T
			want []float64
			sum  float64
		}{{"dq", g.DQ.Data, grads.DQ.Data, 1}, {"dk", g.DK.Data, grads.DK.Data, 2}, {"dv", g.DV.Data, grads.DV.Data, 1}, {"dtau", dtau, grads.DTau, 22}} {
			limit := limits.Gradient(max(1, cond), max(check.MaxAbs(x.want), check.MaxAbs(do.Data)*check.MaxAbs(c.V.Data))) * x.sum
			if e := check.ErrorRatio(x.got, x.want, limit); e > 1 {
				t.Errorf("%s, %s, %v: %s is off by %.3g limits", name, kind, form, x.name, e)
			}
		}
	}
}

// Where all keys are near there is no far field, and nothing of it is left in memory.
func TestUnmaskedWindowOfAllKeysIsTheTextbook(t *testing.T) {
	for name, m := range nearFar() {
		r := rand.New(rand.NewPCG(36, 37))
		c := &oracle.Call{Q: calltest.Normal(r, 2, 4, 3, 5), K: calltest.Normal(r, 2, 2, 3, 5), V: calltest.Normal(r, 2, 2, 3, 4), KeyLens: []int64{3, 2}}
		want, do := m.Forward(c), calltest.Normal(r, 2, 4, 3, 4)
		grads := m.Backward(c, do)
		windowDropped[float64](t, name, m, c, nil, do, want, grads)
		windowDropped[float32](t, name, m, c, nil, do, want, grads)
	}
}

func TestThreadsChangeNoBitOfUnmaskedWindows(t *testing.T) {
	defer func(work float64) { headtask.SplitWork = work }(headtask.SplitWork)
	defer par.SetThreads(0)
	headtask.SplitWork = 1
	r := rand.New(rand.NewPCG(32, 33))
	for name, m := range nearFar() {
		e := windowedOf[float32](t, m)
		c := calltest.NewCall[float32](&oracle.Call{Q: calltest.Normal(r, 1, 4, 150, 6), K: calltest.Normal(r, 1, 1, 150, 6), V: calltest.Normal(r, 1, 1, 150, 5), KeyMask: calltest.Flags(r, 150)})
		do := calltest.Convert[float32](calltest.Normal(r, 1, 4, 150, 5))
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

// A sequence in reverse order has the outputs of the sequence in reverse order.
func TestUnmaskedWindowKnowsNoDirection(t *testing.T) {
	r := rand.New(rand.NewPCG(34, 35))
	reversed := func(x tensor.Heads[float64]) tensor.Heads[float64] {
		y := tensor.NewHeads[float64](x.B, x.H, x.N, x.D)
		for h := range x.H {
			for i := range x.N {
				copy(y.Head(0, h).Row(x.N-1-i), x.Head(0, h).Row(i))
			}
		}
		return y
	}
	for name, m := range nearFar() {
		e := windowedOf[float64](t, m)
		q, k, v := calltest.Normal(r, 1, 4, 40, 6), calltest.Normal(r, 1, 2, 40, 6), calltest.Normal(r, 1, 2, 40, 5)
		for _, form := range []attention.Form{attention.Direct, attention.Linear} {
			out, _ := calltest.Forward(t, e, calltest.NewCall[float64](&oracle.Call{Q: q, K: k, V: v}), form)
			back, _ := calltest.Forward(t, e, calltest.NewCall[float64](&oracle.Call{Q: reversed(q), K: reversed(k), V: reversed(v)}), form)
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
		c := calltest.NewCall[float64](&oracle.Call{Q: calltest.Normal(r, 1, 2, n, d), K: calltest.Normal(r, 1, 1, keys, d), V: calltest.Normal(r, 1, 1, keys, 5)})
		if trial%4 == 0 {
			c.KeyMask = calltest.Flags(r, keys)
		}
		do := calltest.Normal(r, 1, 2, n, 5)
		e := windowedOf[float64](t, m)
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
	_, err := New(attention.Spec[float64]{Name: "floored", Coef: []float64{1, 1}, Floor: 1, Window: &attention.Window[float64]{Width: 2}})
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
		_, err := New(attention.Spec[float64]{Name: "near", Coef: []float64{1, 1}, Window: &attention.Window[float64]{Width: c.width}})
		if got := fmt.Sprint(err); got != c.want {
			t.Errorf("error %s, want %s", got, c.want)
		}
	}
}

func TestUnmaskedWindowRefusesGradientsOfStatesAndDecay(t *testing.T) {
	for name, m := range nearFar() {
		e, c := windowedOf[float32](t, m), calltest.NewCall[float32](calltest.Problems()["causal"])
		c.Causal = false
		out, keep := calltest.Forward(t, e, c, attention.Auto)
		for _, x := range []struct {
			want string
			g    attention.Grads[float32]
		}{
			{"dinit: the call has no initial state", attention.Grads[float32]{DInit: new(attention.StateGrad[float32])}},
			{"dfinal: the call has no final state", attention.Grads[float32]{DFinal: new(attention.StateGrad[float32])}},
			{"d_log_g: the call has no log_g", attention.Grads[float32]{DLogG: calltest.Poisoned[float32](c.K.B, c.K.H, c.K.N, 1)}},
		} {
			g, like := x.g, func(x tensor.Heads[float32]) tensor.Heads[float32] {
				return tensor.NewHeads[float32](x.B, x.H, x.N, x.D)
			}
			g.DQ, g.DK, g.DV = like(c.Q), like(c.K), like(c.V)
			if err := e.Backward(&g, out, out, c, keep); err == nil || err.Error() != x.want {
				t.Errorf("%s: error %v, want %s", name, err, x.want)
			}
		}
	}
}

func TestForwardForgetsTheLossesOfAnotherMechanism(t *testing.T) {
	softmax, err := engine.New(headtask.Spec[float32]{Spec: calltest.SpecOf[float32]("softmax", calltest.Textbook["softmax"])})
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]attention.Mechanism[float32]{"softmax": softmax}
	for name, m := range nearFar() {
		list[name] = windowedOf[float32](t, m)
	}
	c := calltest.NewCall[float32](calltest.Problems()["causal"])
	for name, e := range list {
		keep := &attention.Saved[float32]{Aux: 1, Residual: 1}
		if err := e.Forward(calltest.Poisoned[float32](c.Q.B, c.Q.H, c.Q.N, c.V.D), c, keep); err != nil {
			t.Fatal(err)
		}
		if keep.Aux != 0 || keep.Residual != 0 {
			t.Errorf("%s: aux is %v and residual %v, of another mechanism", name, keep.Aux, keep.Residual)
		}
	}
}
