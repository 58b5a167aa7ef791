//go:build float64

package mechanism

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
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

// Diagnose and Saved tell the share of exact pairs: all of them without tolerance or for few
// keys, fewer with a tolerance, and 0 for a codebook.
func TestMultipoleTellsTheShareOfExactPairs(t *testing.T) {
	oc, _ := shape{b: 1, h: 2, hkv: 1, n: 200, m: 240, d: 6, dv: 4, causal: true, mask: true}.call(260)
	for _, x := range []struct {
		set         map[string]string
		causal      bool
		least, most float64
	}{
		{map[string]string{"centres": "input"}, false, 1, 1},
		{map[string]string{"centres": "input", "tol": "0", "least": "0", "size": "4"}, false, 0.8, 1},
		{map[string]string{"centres": "input", "tol": "1", "least": "0", "span": "16"}, true, 0.05, 0.3},
		{map[string]string{"cells": "8"}, true, 0, 0},
	} {
		m, err := New("multipole", Options{Width: 6, Set: x.set})
		if err != nil {
			t.Fatal(err)
		}
		c := callIn(oc)
		c.Causal = x.causal
		shares := []float64{forward(t, m, c).keep.ExactShare}
		heads, err := m.Diagnose(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range heads {
			shares = append(shares, d.ExactShare)
		}
		for _, share := range shares {
			if share < x.least || share > x.most {
				t.Errorf("%v, causal %t: a share of %.3g, want %g to %g", x.set, x.causal, share, x.least, x.most)
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

// A query that looks up one key among many that it resembles less than nothing finds it, although
// the mean of the key's cluster has next to no weight.
func TestMultipoleOfInputFindsASingleKey(t *testing.T) {
	const n, d, up, down = 1024, 32, 14, 9
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: n, m: n, d: d, dv: 4}.call(251)
	for i := range n {
		// The first half of the keys are unlike each other, and a query's product with them is -down but
		// for its own, where it is up. With the others it is 0.
		k, q := oc.K.Head(0, 0).Row(i), oc.Q.Head(0, 0).Row(i)
		clear(q)
		copy(q, oc.K.Head(0, 0).Row(i % (n / 2))[:d-1])
		length := 0.0
		for _, x := range q {
			length += x * x
		}
		for e := range q {
			q[e] *= (up + down) / length * math.Sqrt(d)
		}
		q[d-1] = -down * math.Sqrt(d)
		if k[d-1] = 1; i >= n/2 {
			clear(k)
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
	want := run("softmax", Options{})
	got := run("multipole", Options{Set: map[string]string{"centres": "input", "least": "0"}})
	var off, size float64
	for i := range got {
		off += (got[i] - want[i]) * (got[i] - want[i])
		size += want[i] * want[i]
	}
	if e := math.Sqrt(off / size); e > 0.1 {
		t.Errorf("outputs differ from softmax by %.3g of their size", e)
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

// States with cells of another codebook are refused, and so is their merge.
func TestMultipoleStatesOfAnotherCodebookAreRefused(t *testing.T) {
	oc, _ := shape{b: 1, h: 2, hkv: 1, n: 9, m: 9, d: 4, dv: 3, causal: true}.call(191)
	c := callIn(oc)
	state := func(x float64) (attention.Mechanism, attention.State) {
		book := make([]float64, 12)
		book[0] = x
		m := multipoleOf(t, Options{Width: 4, Set: map[string]string{"cells": "3"}}, book)
		st, err := m.NewState(c.Shape())
		if err != nil {
			t.Fatal(err)
		}
		return m, st
	}
	m, own := state(1)
	_, other := state(2)
	_, same := state(1)
	for want, run := range map[string]func() error{
		"init: codebook has checksum":  func() error { c.Init, c.Final = other, own; return m.Forward(output(c), c, nil) },
		"final: codebook has checksum": func() error { c.Init, c.Final = own, other; return m.Forward(output(c), c, nil) },
		"merge: codebook has checksum": func() error { return own.Merge(other) },
		"":                             func() error { c.Init, c.Final = same, own; return m.Forward(output(c), c, nil) },
	} {
		if err := run(); err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// Masked keys at the end of a sequence are padding: they are neither ends nor counted for least.
func TestMultipoleLeavesOutPadding(t *testing.T) {
	const n, padding = 40, 30
	oc, do := shape{b: 1, h: 2, hkv: 1, n: n + padding, m: n + padding, d: 5, dv: 3}.call(193)
	for name, o := range map[string]Options{
		"codebook": {Width: 5, Set: map[string]string{"cells": "6", "block": "8", "window": "2", "ends": "3"}},
		"input":    {Set: map[string]string{"centres": "input", "least": "20", "size": "4", "ends": "3"}},
		"softmax":  {Set: map[string]string{"centres": "input", "least": strconv.Itoa(n), "size": "4", "ends": "3"}},
	} {
		m, err := New("multipole", o)
		if err != nil {
			t.Fatal(err)
		}
		padded, cut := callIn(oc), callIn(oc)
		padded.KeyMask = make([]bool, n+padding)
		for j := range n {
			padded.KeyMask[j] = true
		}
		cut.KeyLens = []int64{n}
		got, want := both(t, m, padded, do), both(t, m, cut, do)
		if !slices.Equal(got.o.Data, want.o.Data) || !slices.Equal(got.g.DQ.Data, want.g.DQ.Data) || !slices.Equal(got.g.DK.Data, want.g.DK.Data) || !slices.Equal(got.g.DV.Data, want.g.DV.Data) {
			t.Errorf("%s: a mask of padding is not a length", name)
		}
	}
}

// The term of order 1 of a group is left out where clusters of the group differ too much in weight: a
// cluster far below the others would bring its distances with the weight of theirs.
func TestMultipoleOfInputKeepsClustersOfAGroupApart(t *testing.T) {
	const n, d = 32, 2
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 1, m: n, d: d, dv: 1}.call(252)
	q := oc.Q.Head(0, 0).Row(0)
	q[0], q[1] = 2*math.Sqrt2, 0
	for j := range n {
		k, v, sign := oc.K.Head(0, 0).Row(j), oc.V.Head(0, 0).Row(j), float64(j%2*2-1)
		if k[0], k[1], v[0] = 10, 100+3*sign, 0; j >= n/2 {
			k[0], k[1], v[0] = -10+3*sign, -100, sign
		}
	}
	for _, tol := range []string{"0", "0.001", "0.05"} {
		m, err := New("multipole", Options{Set: map[string]string{"centres": "input", "sinks": "0", "ends": "0", "least": "0", "size": "16", "tol": tol}})
		if err != nil {
			t.Fatal(err)
		}
		if o := forward(t, m, callIn(oc)).o.Data[0]; math.Abs(o) > 0.05 {
			t.Errorf("tol %s: the output is %g, softmax gives 9e-16", tol, o)
		}
	}
}
