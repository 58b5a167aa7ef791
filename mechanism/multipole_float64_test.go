//go:build float64

package mechanism

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/sequence"
	"github.com/farfield-ml/farfield/tensor"
)

// With a cell for each key, or with all keys near, multipole is softmax at every order.
func TestMultipoleIsSoftmaxWhereNothingIsApproximated(t *testing.T) {
	for order := range 3 {
		for _, causal := range []bool{false, true} {
			sh := shape{b: 1, h: 2, hkv: 1, n: 45, m: 60, d: 7, dv: 5, causal: causal, mask: true}
			oc, do := sh.call(uint64(140 + order))
			softmax, err := New("softmax", Options{})
			if err != nil {
				t.Fatal(err)
			}
			c := callIn(oc)
			want := both(t, softmax, c, do)
			for name, set := range map[string]map[string]string{
				"a cell for each key": {"cells": "60", "block": "8", "window": "3"},
				"all keys near":       {"cells": "60", "block": "8", "window": "60"},
				"one block":           {"cells": "60", "block": "64", "window": "0", "sinks": "0"},
			} {
				m := multipoleOf(t, Options{Order: order, KeyHeads: 1, Width: sh.d, Set: set}, oc.K.Data)
				got := both(t, m, c, do)
				for what, x := range map[string][2][]float64{"o": {got.o.Data, want.o.Data}, "dq": {got.g.DQ.Data, want.g.DQ.Data}, "dv": {got.g.DV.Data, want.g.DV.Data}, "dk": {got.g.DK.Data, want.g.DK.Data}} {
					// A polynomial at 0 has the value and the derivative of exp from order 1 on. At order
					// 0 the key has its gradient through the mean of its cell, which is the key.
					if e := check.ErrorRatio(x[0], x[1], 1e-12*(1+check.MaxAbs(x[1]))); e > 1 {
						t.Errorf("order %d, causal %t, %s: %s differs from softmax by %.3g limits", order, causal, name, what, e)
					}
				}
			}
		}
	}
}

// With tol 0, multipole of clusters of the input is softmax.
func TestMultipoleOfInputIsSoftmaxWithoutTolerance(t *testing.T) {
	for _, causal := range []bool{false, true} {
		sh := shape{b: 1, h: 2, hkv: 1, n: 300, m: 350, d: 7, dv: 5, causal: causal, mask: true}
		oc, do := sh.call(240)
		softmax, err := New("softmax", Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := callIn(oc)
		want := both(t, softmax, c, do)
		m, err := New("multipole", Options{Set: map[string]string{"centres": "input", "tol": "0", "span": "16", "size": "3", "least": "0"}})
		if err != nil {
			t.Fatal(err)
		}
		got := both(t, m, c, do)
		for what, x := range map[string][2][]float64{"o": {got.o.Data, want.o.Data}, "dq": {got.g.DQ.Data, want.g.DQ.Data}, "dv": {got.g.DV.Data, want.g.DV.Data}, "dk": {got.g.DK.Data, want.g.DK.Data}} {
			// Clusters of one key are their means, whose gradients are those of the key.
			if e := check.ErrorRatio(x[0], x[1], 1e-12*(1+check.MaxAbs(x[1]))); e > 1 {
				t.Errorf("causal %t: %s differs from softmax by %.3g limits", causal, what, e)
			}
		}
	}
}

// The error of rows grows with tol. Where values have nothing to do with keys, it is about tol,
// beside the size of the values.
func TestMultipoleOfInputKeepsItsTolerance(t *testing.T) {
	const n, d = 600, 8
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: n, m: n, d: d, dv: 4}.call(250)
	for i := range n { // around 30 points
		for e, x := range oc.K.Head(0, 0).Row(i) {
			oc.K.Head(0, 0).Row(i)[e] = 0.3*x + 2*oc.Q.Head(0, 0).Row(i % 30)[e]
		}
	}
	c := callIn(oc)
	run := func(name string, o Options) []float64 {
		m, err := New(name, o)
		if err != nil {
			t.Fatal(err)
		}
		return forward(t, m, c).o.Data
	}
	want, last := run("softmax", Options{}), 0.0
	for _, tol := range []float64{0, 1e-3, 1e-2, 0.1} {
		got := run("multipole", Options{Set: map[string]string{"centres": "input", "size": "8", "least": "0", "tol": strconv.FormatFloat(tol, 'g', -1, 64)}})
		var off, size float64
		for i := range got {
			off += (got[i] - want[i]) * (got[i] - want[i])
			size += c.V.Data[i] * c.V.Data[i]
		}
		e := math.Sqrt(off / size)
		if e < last || e > 1.2*tol+1e-12 {
			t.Errorf("tol %g: a relative error of %.3g, with less tol %.3g", tol, e, last)
		}
		last = e
	}
}

// With one cell the far field is one Taylor series about the mean of all keys outside the block.
func TestMultipoleOfOneCellIsOneTaylorSeries(t *testing.T) {
	const block, d = 8, 5
	sh := shape{b: 1, h: 1, hkv: 1, n: 40, m: 40, d: d, dv: 3}
	oc, _ := sh.call(150)
	for order := range 3 {
		m := multipoleOf(t, Options{Order: order, Width: d, Set: map[string]string{"cells": "1", "block": "8", "window": "0", "sinks": "0", "ends": "0"}}, make([]float64, d))
		got := forward(t, m, callIn(oc)).o
		for i := range sh.n {
			q, mean := oc.Q.Head(0, 0).Row(i), make([]float64, d)
			near := func(j int) bool { return j/block == i/block }
			for j := range sh.m {
				for e := range mean {
					if !near(j) {
						mean[e] += oc.K.Head(0, 0).Row(j)[e] / (40 - block)
					}
				}
			}
			var den float64
			num := make([]float64, sh.dv)
			for j := range sh.m {
				var s, centre float64
				for e, x := range oc.K.Head(0, 0).Row(j) {
					s += q[e] * x / math.Sqrt(d)
					centre += q[e] * mean[e] / math.Sqrt(d)
				}
				w := math.Exp(s)
				if !near(j) {
					x := s - centre
					w = math.Exp(centre) * []float64{1, 1 + x, 1 + x + x*x/2}[order]
				}
				den += w
				for e, v := range oc.V.Head(0, 0).Row(j) {
					num[e] += w * v
				}
			}
			for e := range num {
				num[e] /= den
			}
			if e := check.ErrorRatio(got.Head(0, 0).Row(i), num, 1e-13*(1+check.MaxAbs(num))); e > 1 {
				t.Errorf("order %d, query %d: off by %.3g limits", order, i, e)
			}
		}
	}
}

// A state over many blocks, fed in pieces and merged, is the causal call.
func TestMultipoleStatesAreTheCausalCall(t *testing.T) {
	sh := shape{b: 1, h: 2, hkv: 1, n: 700, m: 700, d: 6, dv: 5, causal: true}
	for i := range 6 {
		order, set := i%3, map[string]string{"cells": "30", "sinks": "40"}
		if i >= 3 {
			order, set = 0, map[string]string{"centres": "input", "span": []string{"64", "8", "200"}[i-3], "size": "8", "sinks": []string{"40", "0", "5"}[i-3], "tol": "0.02"}
		}
		oc, _ := sh.call(uint64(170 + order))
		m, err := New("multipole", Options{Order: order, KeyHeads: 1, Width: sh.d, Set: set})
		if err != nil {
			t.Fatal(err)
		}
		c := callIn(oc)
		want := forward(t, m, c).o
		holds := func(name string, got tensor.Heads, i0 int) {
			for h := range sh.h {
				for i := i0; i < sh.n; i++ {
					ref := want.Head(0, h).Row(i)
					if e := check.ErrorRatio(got.Head(0, h).Row(i), ref, 1e-11*(1+check.MaxAbs(ref))); e > 1 {
						t.Fatalf("order %d, %s: token %d of head %d is off by %.3g limits", order, name, i, h, e)
					}
				}
			}
		}
		state := func(i0, i1 int) attention.State {
			st, err := m.NewState(attention.Shape{B: 1, H: sh.h, Hkv: sh.hkv, D: sh.d, Dv: sh.dv})
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Absorb(piece(c, i0, i1)); err != nil {
				t.Fatal(err)
			}
			return st
		}
		got := output(c)
		step(t, state(0, 0), got, c, 0, sh.n, 1, 200, 7)
		holds("steps", got, 0)
		for _, cut := range []int{3, 35, 45, 300, 640} { // within the sinks of the first and of the second state, and beyond
			st := state(0, cut)
			merge(t, st, state(cut, 690))
			got := output(c)
			step(t, st, got, c, 690, sh.n, 4)
			holds(fmt.Sprintf("merged at %d", cut), got, 690)
		}
	}
}

// Calls between states have the gradients of the whole call.
func TestMultipoleSegmentsHaveTheGradientsOfTheWhole(t *testing.T) {
	for i := range 6 {
		name, m, c, do := longMultipole(t, i)
		whole := both(t, m, c, do)
		tilts := func() (list []float64) {
			for _, p := range m.Params().All() {
				list = append(list, p.Grad...)
			}
			return list
		}
		dtilt := tilts()
		m.Params().ZeroGrad()
		cuts := []int{0, 20, 25, 190, 400}
		got := attention.Grads{DQ: poisoned(2, 4, 400, 6), DK: poisoned(2, 2, 400, 6), DV: poisoned(2, 2, 400, c.V.D)}
		out := output(c)
		calls, keeps := make([]*attention.Call, 4), make([]attention.Saved, 4)
		for j := range calls {
			calls[j] = maskedPart(c, cuts[j], cuts[j+1])
			if j > 0 {
				calls[j].Init = calls[j-1].Final
			}
			var err error
			if j < 3 {
				calls[j].Final, err = m.NewState(c.Shape())
			}
			if err == nil {
				err = m.Forward(out.Tokens(cuts[j], cuts[j+1]), calls[j], &keeps[j])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var after *attention.StateGrad
		for j := 3; j >= 0; j-- {
			i0, i1 := cuts[j], cuts[j+1]
			g := attention.Grads{DQ: got.DQ.Tokens(i0, i1), DK: got.DK.Tokens(i0, i1), DV: got.DV.Tokens(i0, i1), DFinal: after}
			if after = nil; j > 0 {
				after = new(attention.StateGrad)
				g.DInit = after
			}
			if err := m.Backward(&g, do.Tokens(i0, i1), out.Tokens(i0, i1), calls[j], &keeps[j]); err != nil {
				t.Fatal(err)
			}
		}
		for _, x := range []struct {
			name      string
			got, want []float64
		}{{"o", out.Data, whole.o.Data}, {"dq", got.DQ.Data, whole.g.DQ.Data}, {"dk", got.DK.Data, whole.g.DK.Data}, {"dv", got.DV.Data, whole.g.DV.Data}, {"dtilt", tilts(), dtilt}} {
			if e := check.ErrorRatio(x.got, x.want, 1e-11*(1+check.MaxAbs(x.want))); e > 1 {
				t.Errorf("%s: %s is off by %.3g limits", name, x.name, e)
			}
		}
	}
}

// Ranks that divide some hundred tokens, with cuts anywhere in blocks and sinks, give the outputs and
// gradients of one process, but for rounding.
func TestMultipoleOverRanksIsOneProcess(t *testing.T) {
	for i := range 6 {
		for _, causal := range []bool{true, false} {
			name, m, c, do := longMultipole(t, i)
			if !causal && m.Params() != nil {
				continue // tilted cells go over ranks in causal calls alone
			}
			c.Causal = causal
			want := both(t, m, c, do)
			for _, cuts := range [][]int{{0, 400}, {0, 131, 256, 400}, {0, 5, 40, 40, 300, 301, 400}} {
				got := &results{o: output(c)}
				got.g = attention.Grads{DQ: poisoned(2, 4, 400, 6), DK: poisoned(2, 2, 400, 6), DV: poisoned(2, 2, 400, c.V.D)}
				ranks := make([]attention.Mechanism, len(cuts)-1) // with gradients of their own, as processes have
				for r := range ranks {
					_, ranks[r], _, _ = longMultipole(t, i)
				}
				err := comm.RunLocal(len(cuts)-1, func(r *comm.Comm) error {
					i0, i1 := cuts[r.Rank()], cuts[r.Rank()+1]
					m, p := ranks[r.Rank()], piece(c, i0, i1)
					p.Causal = causal
					o := got.o.Tokens(i0, i1)
					var keep sequence.Saved
					if err := sequence.Forward(r, m, o, p, &keep); err != nil {
						return err
					}
					g := attention.Grads{DQ: got.g.DQ.Tokens(i0, i1), DK: got.g.DK.Tokens(i0, i1), DV: got.g.DV.Tokens(i0, i1)}
					return sequence.Backward(r, m, &g, do.Tokens(i0, i1), o, p, &keep)
				})
				if err != nil {
					t.Fatalf("%s, causal %t, cuts %v: %v", name, causal, cuts, err)
				}
				for what, x := range map[string][2][]float64{"o": {got.o.Data, want.o.Data}, "dq": {got.g.DQ.Data, want.g.DQ.Data}, "dk": {got.g.DK.Data, want.g.DK.Data}, "dv": {got.g.DV.Data, want.g.DV.Data}} {
					if e := check.ErrorRatio(x[0], x[1], 1e-11*(1+check.MaxAbs(x[1]))); e > 1 {
						t.Errorf("%s, causal %t, cuts %v: %s is off by %.3g limits", name, causal, cuts, what, e)
					}
				}
			}
		}
	}
}
