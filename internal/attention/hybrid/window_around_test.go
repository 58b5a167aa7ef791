package hybrid

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/attention/engine"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// windowedOf returns the engine for a calltest.Textbook with a window.
func windowedOf(t *testing.T, m *oracle.Mechanism) attention.Mechanism {
	t.Helper()
	s := attention.Spec{Name: "windowed", Setting: "test", Norm: attention.Norm(m.Norm), Scale: m.Scale, Coef: m.Coef, Eps: m.Eps, Positive: true}
	s.Window = &attention.Window{Width: m.Window.Width}
	if m.Window.Separate {
		s.Window.Join = attention.Separate
	}
	if m.Tau != nil {
		s.Tau = &param.Param{Name: "tau", Shape: []int{len(m.Tau)}, Grad: make([]float, len(m.Tau))}
		for _, x := range m.Tau {
			s.Tau.Data = append(s.Tau.Data, float(x))
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
			windowDropped(t, name, m, c, d, do, want, grads)
		}
	}
}

// windowDropped compares both forms of an unmasked call with the calltest.Textbook.
func windowDropped(t *testing.T, name string, m *oracle.Mechanism, c *oracle.Call, d *attention.Drop, do oracle.Heads, want *oracle.Result, grads *oracle.Grads) {
	t.Helper()
	e, call := windowedOf(t, m), calltest.NewCall(c)
	kind := "no dropout"
	if call.Drop, call.Chunk = d, 3; d != nil {
		kind = d.Kind.String()
	}
	limits := check.LinearLimits[float](e.Plan(call.Shape()).F, 13)
	cond, size := check.MaxAbs(want.Cond), check.MaxAbs(c.V.Data)+check.MaxAbs(want.O.Data)
	for _, form := range []attention.Form{attention.Direct, attention.Linear} {
		out, keep := calltest.Forward(t, e, call, form)
		if x := check.ErrorRatio(out.Data, want.O.Data, limits.Output(cond, size)); x > 1 {
			t.Errorf("%s, %s, %v: outputs are off by %.3g limits", name, kind, form, x)
		}
		g, dtau := calltest.Backward(t, e, call, calltest.Convert(do), out, keep)
		for _, x := range []struct {
			name string
			got  []float
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
		windowDropped(t, name, m, c, nil, do, want, grads)
	}
}

func TestUnmaskedWindowRefusesGradientsOfStatesAndDecay(t *testing.T) {
	for name, m := range nearFar() {
		e, c := windowedOf(t, m), calltest.NewCall(calltest.Problems()["causal"])
		c.Causal = false
		out, keep := calltest.Forward(t, e, c, attention.Auto)
		for _, x := range []struct {
			want string
			g    attention.Grads
		}{
			{"dinit: the call has no initial state", attention.Grads{DInit: new(attention.StateGrad)}},
			{"dfinal: the call has no final state", attention.Grads{DFinal: new(attention.StateGrad)}},
			{"d_log_g: the call has no log_g", attention.Grads{DLogG: calltest.Poisoned(c.K.B, c.K.H, c.K.N, 1)}},
		} {
			g, like := x.g, func(x tensor.Heads) tensor.Heads {
				return tensor.NewHeads(x.B, x.H, x.N, x.D)
			}
			g.DQ, g.DK, g.DV = like(c.Q), like(c.K), like(c.V)
			if err := e.Backward(&g, out, out, c, keep); err == nil || err.Error() != x.want {
				t.Errorf("%s: error %v, want %s", name, err, x.want)
			}
		}
	}
}

func TestForwardForgetsTheLossesOfAnotherMechanism(t *testing.T) {
	softmax, err := engine.New(headtask.Spec{Spec: calltest.SpecOf("softmax", calltest.Textbook["softmax"])})
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]attention.Mechanism{"softmax": softmax}
	for name, m := range nearFar() {
		list[name] = windowedOf(t, m)
	}
	c := calltest.NewCall(calltest.Problems()["causal"])
	for name, e := range list {
		keep := &attention.Saved{Aux: 1, Residual: 1}
		if err := e.Forward(calltest.Poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D), c, keep); err != nil {
			t.Fatal(err)
		}
		if keep.Aux != 0 || keep.Residual != 0 {
			t.Errorf("%s: aux is %v and residual %v, of another mechanism", name, keep.Aux, keep.Residual)
		}
	}
}

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
			var bits [][]float
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
