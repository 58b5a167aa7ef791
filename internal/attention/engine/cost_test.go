package engine

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// poly2 is Fastmax of degree 2 as the tables measure it.
func poly2(t *testing.T) *Engine {
	t.Helper()
	m, err := newMechanism(attention.Spec{Name: "poly", Norm: attention.Standard, Scale: 1, Coef: []float64{1, 1, 0.5}, Positive: true})
	if err != nil {
		t.Fatal(err)
	}
	return m.(*Engine)
}

// The form depends on nothing but the mechanism and the sequence's own shape,
// and from somewhere on it is linear.
func TestChoice(t *testing.T) {
	fast := poly2(t)
	for _, d := range []int{5, 8, 16, 20, 32, 64, 100, 128, 200} {
		for _, causal := range []bool{false, true} {
			one := attention.Shape{B: 1, H: 1, Hkv: 1, D: d, Dv: d, Causal: causal}
			forms := func(n int) [2]attention.Form {
				one.N, one.M = n, n
				p := fast.Plan(one)
				return [2]attention.Form{p.Form, p.Back}
			}
			f := float64((d + 1) * (d + 2) / 2)
			if got := forms(int(20*f) + 1000); got != [2]attention.Form{attention.Linear, attention.Linear} {
				t.Errorf("D = %d, causal %v: %v of many tokens", d, causal, got)
			}
			if got := forms(int(f / 20)); d >= 32 && !causal && got != [2]attention.Form{attention.Direct, attention.Direct} {
				t.Errorf("D = %d: %v of few tokens", d, got)
			}
		}
	}
	one := attention.Shape{B: 1, H: 2, Hkv: 2, N: 300, M: 300, D: 16, Dv: 16}
	many := one
	many.B, many.H, many.Hkv = 64, 8, 8
	a, b := fast.Plan(one), fast.Plan(many)
	if a.Form != b.Form || a.Back != b.Back || a.Chunk != b.Chunk || b.Cost != 256*a.Cost || b.BackCost != 256*a.BackCost {
		t.Errorf("batch and heads change the plan from %+v to %+v", a, b)
	}
	soft, err := newMechanism(attention.Spec{Name: "exp", Exp: true})
	if err != nil {
		t.Fatal(err)
	}
	p := soft.Plan(attention.Shape{B: 1, H: 1, Hkv: 1, N: 1 << 20, M: 1 << 20, D: 16, Dv: 16})
	if p.Form != attention.Direct || p.Back != attention.Direct || p.F != 0 || !strings.Contains(p.Reason, "exponential") || !(p.Cost > p.FLOPs) {
		t.Errorf("softmax over 2²⁰ tokens: %+v", p)
	}
}

// What is chosen costs no more than what is not.
func TestChoiceIsTheCheaper(t *testing.T) {
	fast := poly2(t)
	for _, s := range []attention.Shape{
		{N: 100, M: 100, D: 16, Dv: 16}, {N: 1000, M: 1000, D: 16, Dv: 16}, {N: 3, M: 5000, D: 8, Dv: 40},
		{N: 5000, M: 7, D: 8, Dv: 8}, {N: 1, M: 1, D: 1, Dv: 1}, {N: 500, M: 700, D: 24, Dv: 24}, {N: 700, M: 500, D: 24, Dv: 24},
		{N: 40, M: 40, D: 64, Dv: 64}, {N: 0, M: 10, D: 8, Dv: 8}, {N: 10, M: 0, D: 8, Dv: 8},
	} {
		for _, s.Causal = range []bool{false, true} {
			for _, s.H = range []int{1, 4} {
				s.B, s.Hkv = 1, 1
				asked := func(f attention.Form) attention.Plan {
					s := s
					s.Form = f
					return fast.Plan(s)
				}
				auto, direct, linear := asked(attention.Auto), asked(attention.Direct), asked(attention.Linear)
				back := min(direct.BackCost, linear.BackCost)
				if auto.Form == attention.Direct && auto.Back == attention.Direct && !s.Causal {
					back = direct.BackCost // the linear form would miss what Forward did not keep
				}
				if auto.Cost != min(direct.Cost, linear.Cost) || auto.BackCost < back || auto.Form == attention.Linear && auto.BackCost != back {
					t.Errorf("%+v: cost %g of %g and %g, backward %g of %g and %g", s, auto.Cost, direct.Cost, linear.Cost,
						auto.BackCost, direct.BackCost, linear.BackCost)
				}
				if direct.Form != attention.Direct || direct.Back != attention.Direct || linear.Form != attention.Linear || linear.Back != attention.Linear {
					t.Errorf("%+v: the form asked for is not planned", s)
				}
				if !(direct.Cost >= 0 && direct.Cost < math.MaxFloat64 && linear.Cost >= 0 && linear.Cost < math.MaxFloat64) {
					t.Errorf("%+v: costs %g, %g", s, direct.Cost, linear.Cost)
				}
			}
		}
	}
}

// Query heads that share a key head share its moments but not its weights.
func TestSharedMomentsPullToTheLinearForm(t *testing.T) {
	fast := poly2(t)
	ratio := func(h int) float64 {
		s := attention.Shape{B: 1, H: h, Hkv: 1, N: 500, M: 500, D: 32, Dv: 32, Form: attention.Linear}
		linear := fast.Plan(s).Cost
		s.Form = attention.Direct
		return linear / fast.Plan(s).Cost
	}
	if one, four := ratio(1), ratio(4); four > 0.75*one {
		t.Errorf("linear over direct is %g with one query head, %g with four", one, four)
	}
}

// A tally counts the tokens that meet moments.
func TestTally(t *testing.T) {
	fast := poly2(t)
	c := &attention.Call{Causal: true, Chunk: 10}
	c.Q.H, c.Q.D, c.K.H, c.V.D = 1, 8, 1, 16
	for _, x := range []struct{ n, m, keys, queries int }{
		{10, 10, 0, 0}, {11, 11, 10, 1}, {35, 35, 30, 25}, {5, 35, 30, 5}, {35, 5, 0, 0}, {35, 25, 20, 15},
	} {
		tally := fast.Tally(c, &SequenceTask{Sequence: attention.Sequence{N: x.n, M: x.m, Offset: x.m - x.n}}, false)
		each := 2 * 36 * 17.5 // (7+1)(7+2)/2 features: rows have mean 0
		if want := each * float64(x.keys+x.queries); tally.Moments != want {
			t.Errorf("N = %d, M = %d: %g operations with moments, want %g", x.n, x.m, tally.Moments, want)
		}
		if tally.Open > tally.Pairs {
			t.Errorf("N = %d, M = %d: %g operations within chunks of %g", x.n, x.m, tally.Open, tally.Pairs)
		}
	}
}

// Queries of a far field are all there: its keys are fewer by the window.
func TestTallyOfAFarFieldHasAllQueries(t *testing.T) {
	far, plain := poly2(t), poly2(t)
	far.Spec.FarLag = 64
	c := &attention.Call{Causal: true, Chunk: 10}
	c.Q.H, c.Q.D, c.K.H, c.V.D = 1, 8, 1, 16
	for _, n := range []int{40, 200} {
		s := attention.Sequence{N: n, M: 200 - 64, Keys: 200, Offset: 200 - n - 64}
		got := far.Tally(c, &SequenceTask{Sequence: s}, false)
		s.Keys = s.M
		if want := plain.Tally(c, &SequenceTask{Sequence: s}, false); got != want || got.Pairs == 0 {
			t.Errorf("N = %d: %+v, want %+v", n, got, want)
		}
	}
}

// Forward and Backward run in the forms of the plan, each in its own.
func TestPlannedFormsRun(t *testing.T) {
	fast := poly2(t)
	const d = 8
	mixed := false
	for _, n := range []int{20, 64, 150, 700} {
		for _, causal := range []bool{false, true} {
			in := randomTokens(1, n, d)
			c := &attention.Call{Q: in, K: in, V: in, Causal: causal}
			p := fast.Plan(c.Shape())
			mixed = mixed || p.Form == attention.Linear
			run := func(form, back attention.Form) (out tensor.Heads, g attention.Grads) {
				c := *c
				c.Form = form
				var keep attention.Saved
				out = tensor.NewHeads(1, 1, n, d)
				g = attention.Grads{DQ: tensor.NewHeads(1, 1, n, d), DK: tensor.NewHeads(1, 1, n, d), DV: tensor.NewHeads(1, 1, n, d)}
				if err := fast.Forward(out, &c, &keep); err != nil {
					t.Fatal(err)
				}
				c.Form = back
				if err := fast.Backward(&g, in, out, &c, &keep); err != nil {
					t.Fatal(err)
				}
				return out, g
			}
			out, g := run(attention.Auto, attention.Auto)
			want, grads := run(p.Form, p.Back)
			if !slices.Equal(out.Data, want.Data) || !slices.Equal(g.DQ.Data, grads.DQ.Data) ||
				!slices.Equal(g.DK.Data, grads.DK.Data) || !slices.Equal(g.DV.Data, grads.DV.Data) {
				t.Errorf("N = %d, causal %v: not what forward %v, backward %v gives", n, causal, p.Form, p.Back)
			}
		}
	}
	if !mixed {
		t.Error("no length runs in the linear form")
	}
}

func randomTokens(key uint64, n, d int) tensor.Heads {
	x := tensor.NewHeads(1, 1, n, d)
	for i := range x.Data {
		key = key*6364136223846793005 + 1442695040888963407
		x.Data[i] = float(int64(key)) / (1 << 63)
	}
	return x
}
