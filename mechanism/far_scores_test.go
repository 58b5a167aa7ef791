package mechanism

import (
	"fmt"
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/tensor"
)

// sharedScore returns a call of n tokens whose scores are products of the first channel
// plus a common number: k is 1 in the channel that holds it in q. Products are small
// multiples of 1/16, and the scale is ½, so that sums up to 2^19 have no rounding.
func sharedScore(n int, common float64) *attention.Call {
	const d = 4
	c := &attention.Call{Q: tensor.NewHeads(1, 1, n, d), K: tensor.NewHeads(1, 1, n, d), V: tensor.NewHeads(1, 1, n, 3), Causal: true}
	for i := range n {
		q, k, v := c.Q.Head(0, 0).Row(i), c.K.Head(0, 0).Row(i), c.V.Head(0, 0).Row(i)
		q[0], k[0] = float(i*5%7-3)/4, float(i*3%11-5)/4
		q[1], k[1] = float(2*common), 1
		for a := range v {
			v[a] = float((i+2)*(a+3)%7) - 3
		}
	}
	return c
}

// A number common to all scores of a row does not change the softmax weights, even if its
// exponential is 0 or infinite.
func TestWindowIgnoresWhatAllItsScoresShare(t *testing.T) {
	for _, x := range []struct {
		name     string
		set      map[string]string
		tailless int // queries that see no key before the window; 0: all
	}{
		{"fastmax", map[string]string{"window": "16", "join": "denominator"}, 0},
		{"taylorshift", map[string]string{"window": "3", "join": "denominator"}, 3},
		{"fastmax", map[string]string{"window": "1", "join": "denominator"}, 1},
		{"linear", map[string]string{"window": "2", "join": "denominator", "eps": "0"}, 2},
	} {
		t.Run(fmt.Sprint(x.name, x.set), func(t *testing.T) {
			low, high := check.Pick(-200.0, -720), check.Pick(100.0, 720)
			windowShift(t, x.name, Options{Set: x.set}, x.tailless, -90, low, -2e4, -1e5, high, 2e4, 1e5)
		})
	}
}

func windowShift(t *testing.T, name string, o Options, tailless int, commons ...float64) {
	t.Helper()
	const n = 16
	rows := n
	if tailless > 0 {
		rows = tailless
	}
	m, err := New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	// Gradients come to the rows alone that have no tail: with one the window's share
	// is 0 or all.
	dout := tensor.NewHeads(1, 1, n, 3)
	for i := range rows * 3 {
		dout.Data[i] = float(i*5%7) - 2
	}
	run := func(common float64, form attention.Form) (o tensor.Heads, g attention.Grads) {
		c := sharedScore(n, common)
		c.Form = form
		var keep attention.Saved
		o, g = output(c), attention.Grads{DQ: tensor.NewHeads(1, 1, n, 4), DK: tensor.NewHeads(1, 1, n, 4), DV: tensor.NewHeads(1, 1, n, 3)}
		if form == attention.Step {
			if err := m.Forward(o, c, nil); err != nil {
				t.Fatal(err)
			}
			return o, g
		}
		if err := m.Forward(o, c, &keep); err != nil {
			t.Fatal(err)
		}
		if keep.WeakCount > 0 && !(common > 0) {
			t.Errorf("%g: %d rows count as ill-conditioned", common, keep.WeakCount)
		}
		if err := m.Backward(&g, dout, o, c, &keep); err != nil {
			t.Fatal(err)
		}
		return o, g
	}
	for _, form := range []attention.Form{attention.Direct, attention.Linear, attention.Step} {
		want, wantG := run(0, form)
		for _, common := range commons {
			got, g := run(common, form)
			for i := range n {
				for a, y := range got.Head(0, 0).Row(i) {
					if math.IsNaN(float64(y)) || math.IsInf(float64(y), 0) {
						t.Fatalf("%v %g: row %d of the output is %v", form, common, i, got.Head(0, 0).Row(i))
					}
					if w := want.Head(0, 0).Row(i)[a]; i < rows && math.Abs(float64(y-w)) > 1e-5 {
						t.Fatalf("%v %g: row %d of the output is %v, want %v", form, common, i, got.Head(0, 0).Row(i), want.Head(0, 0).Row(i))
					}
				}
				for _, x := range []struct {
					name      string
					got, want tensor.Heads
					channels  int // the second channel of dk is common·Σ dS, of rows whose sum is 0
				}{{"dq", g.DQ, wantG.DQ, 4}, {"dk", g.DK, wantG.DK, 1}, {"dv", g.DV, wantG.DV, 3}} {
					for a := range x.channels {
						if y, w := x.got.Head(0, 0).Row(i)[a], x.want.Head(0, 0).Row(i)[a]; !(math.Abs(float64(y-w)) <= 1e-4) {
							t.Fatalf("%v %g: %s[%d] is %v, want %v", form, common, x.name, i, x.got.Head(0, 0).Row(i), x.want.Head(0, 0).Row(i))
						}
					}
				}
			}
		}
	}
}

// Scores times a large power of 2 keep the order of small scores. The largest scores share
// all weight equally, at any magnitude.
func TestSoftmaxOfLargeScoresIsTheMeanOfTheLargest(t *testing.T) {
	for _, x := range []struct {
		name string
		set  map[string]string
	}{
		{"softmax", nil},
		{"local", map[string]string{"window": "5"}},
		{"longformer", map[string]string{"window": "5", "global": "0,3"}},
		{"sparse-strided", map[string]string{"stride": "4"}},
		{"transformer-xl", nil},
		{"fastmax", map[string]string{"window": "40"}},
		{"exact-topk", map[string]string{"topk": "9"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			meanOfLargest(t, x.name, x.set, check.Pick([]int{15, 24, 31, 33, 60, 110}, []int{15, 33, 60, 110, 900}))
		})
	}
}

func meanOfLargest(t *testing.T, name string, set map[string]string, powers []int) {
	t.Helper()
	const n, d, dv = 24, 4, 3
	m, err := New(name, Options{Set: set, Width: d, Heads: 1})
	if err != nil {
		t.Fatal(err)
	}
	if p := m.Params(); p != nil {
		for _, x := range p.All() {
			clear(x.Data)
		}
	}
	for _, causal := range []bool{true, false} {
		if !causal && m.Traits().CausalOnly {
			continue
		}
		c := &attention.Call{Q: tensor.NewHeads(1, 1, n, d), K: tensor.NewHeads(1, 1, n, d), V: tensor.NewHeads(1, 1, n, dv), Causal: causal}
		dout := tensor.NewHeads(1, 1, n, dv)
		for i := range n {
			for a := range d {
				c.Q.Head(0, 0).Row(i)[a] = float((i*7+a*5+i*a)%5 - 2)
				c.K.Head(0, 0).Row(i)[a] = float((i*i+a*3+1)%5 - 2)
			}
			for a := range dv {
				c.V.Head(0, 0).Row(i)[a] = float((i+2)*(a+3)%7 - 3)
				dout.Head(0, 0).Row(i)[a] = float((i*3+a*5)%5 - 2)
			}
		}
		a := tensor.NewMat(n, n)
		if err := m.Weights(a, c, 0, 0, 0, n); err != nil {
			t.Fatal(err)
		}
		w := make([][]float64, n) // of the largest alone
		for i := range w {
			w[i] = make([]float64, n)
			var most float
			ties := 0.0
			for _, y := range a.Row(i) {
				most = max(most, y)
			}
			for j, y := range a.Row(i) {
				if y > most*0.99 {
					w[i][j] = 1
					ties++
				}
			}
			for j := range w[i] {
				w[i][j] /= ties
			}
		}
		for _, e := range powers {
			call := *c
			call.Q = tensor.NewHeads(1, 1, n, d)
			for i, y := range c.Q.Data {
				call.Q.Data[i] = float(math.Ldexp(float64(y), e))
			}
			o, want := output(c), tensor.NewHeads(1, 1, n, dv)
			dq, dk, dvs := tensor.NewHeads(1, 1, n, d), tensor.NewHeads(1, 1, n, d), tensor.NewHeads(1, 1, n, dv)
			for i := range n {
				oi := want.Head(0, 0).Row(i)
				for j, x := range w[i] {
					for a, y := range c.V.Head(0, 0).Row(j) {
						oi[a] += float(x) * y
					}
				}
				for j, x := range w[i] {
					var along float64
					for a, y := range dout.Head(0, 0).Row(i) {
						dvs.Head(0, 0).Row(j)[a] += float(x) * y
						along += float64(y) * float64(c.V.Head(0, 0).Row(j)[a]-oi[a])
					}
					for a := range d {
						dq.Head(0, 0).Row(i)[a] += float(x * along / 2 * float64(c.K.Head(0, 0).Row(j)[a]))
						dk.Head(0, 0).Row(j)[a] += float(x * along / 2 * float64(c.Q.Head(0, 0).Row(i)[a]))
					}
				}
			}
			same := func(what string, got, want tensor.Heads, over int) {
				t.Helper()
				for i, y := range got.Data {
					if x := math.Ldexp(float64(y), -over); !(math.Abs(x-float64(want.Data[i])) < 1e-4) {
						t.Errorf("scores times 2^%d, causal %v: %s of token %d is %v·2^%d, want %v", e, causal, what, i/got.D, x, over, want.Data[i])
						return
					}
				}
			}
			for _, form := range []attention.Form{attention.Direct, attention.Step} {
				call.Form = form
				if form == attention.Step {
					if causal {
						if err := m.Forward(o, &call, nil); err != nil {
							t.Fatal(err)
						}
						same("step", o, want, 0)
					}
					continue
				}
				var keep attention.Saved
				if err := m.Forward(o, &call, &keep); err != nil {
					t.Fatal(err)
				}
				same("o", o, want, 0)
				g := attention.Grads{DQ: output(c), DK: output(c), DV: output(c)}
				g.DQ, g.DK = poisoned(1, 1, n, d), poisoned(1, 1, n, d)
				if err := m.Backward(&g, dout, o, &call, &keep); err != nil {
					t.Fatal(err)
				}
				same("dv", g.DV, dvs, 0)
				same("dk", g.DK, dk, e)
				if name != "transformer-xl" {
					same("dq", g.DQ, dq, 0)
				}
			}
		}
	}
}
