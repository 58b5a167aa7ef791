package mechanism

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// multipoleSubjects are orders, codebooks of one head and of all heads, and near fields of
// several shapes. Blocks are small, so that short calls have far keys.
func multipoleSubjects() (list []subject) {
	for _, x := range []struct {
		order, keyHeads, cells, block, window, sinks, ends, adapt int
		scale                                                     float64
		tilt                                                      bool
	}{
		{0, 1, 5, 3, 1, 1, 1, 0, 0, false},
		{0, 0, 3, 2, 0, 0, 0, 0, 2, false},
		{1, 1, 4, 4, 1, 1, 1, 0, 0, false},
		{1, 0, 3, 2, 3, 0, 2, 0, 0, false},
		{2, 1, 3, 3, 0, 2, 1, 0, 0, false},
		{2, 0, 2, 4, 1, 0, 0, 0, 0.25, false},
		{0, 1, 4, 2, 0, 1, 1, 2, 0, false},
		{0, 0, 3, 2, 0, 1, 1, 0, 0, true},
		{0, 1, 2, 3, 1, 0, 0, 0, 0.5, true},
	} {
		s := subject{
			name:    "multipole",
			label:   fmt.Sprintf("multipole p=%d cells=%d block=%d window=%d sinks=%d ends=%d", x.order, x.cells, x.block, x.window, x.sinks, x.ends),
			o:       Options{Order: x.order, KeyHeads: x.keyHeads, Width: streamed.d, Set: map[string]string{}},
			places:  "which keys are near goes by their places",
			aligned: true,
			average: true,
			rounds:  x.order > 0,
		}
		for name, n := range map[string]int{"cells": x.cells, "block": x.block, "window": x.window, "sinks": x.sinks, "ends": x.ends} {
			s.o.Set[name] = strconv.Itoa(n)
		}
		if x.adapt > 0 {
			s.o.Set["adapt"] = strconv.Itoa(x.adapt)
			s.label += " adapt=" + s.o.Set["adapt"]
		}
		if x.tilt {
			s.o.Set["tilt"], s.given = "true", randomTilts
			s.label += " tilt"
			s.rounds = true
		}
		if x.scale != 0 {
			s.o.Set["scale"] = strconv.FormatFloat(x.scale, 'g', -1, 64)
			s.label += " scale=" + s.o.Set["scale"]
		}
		s.whole = func(p numbers) oracle.HeadMatrix {
			return (&oracle.Multipole{Codebook: p["codebook"], Tilt: p["tilt"], Cells: x.cells, Order: x.order,
				Block: x.block, Window: x.window, Sinks: x.sinks, Ends: x.ends, Adapt: x.adapt, Scale: x.scale}).Weights
		}
		list = append(list, s)
	}
	return append(list, inputSubjects()...)
}

// randomTilts gives tilts about as large as queries.
func randomTilts(name string, shape []int) []float64 {
	if name != "tilt" {
		return nil
	}
	list := make([]float64, shape[0]*shape[1]*shape[2])
	for i := range list {
		list[i] = rng.New(19).Normal(uint64(i))
	}
	return list
}

// inputSubjects are multipole with centres=input.
func inputSubjects() (list []subject) {
	for _, x := range []struct {
		size, span, sinks, ends, least int
		tol, scale                     float64
	}{
		{2, 4, 1, 1, 0, 0.1, 0},
		{3, 3, 0, 0, 0, 0.02, 2},
		{2, 1, 1, 0, 0, 0.05, 0},
		{4, 5, 0, 1, 0, 0.2, 0},
		{0, 40, 1, 1, 8, 0.1, 0},
		{2, 2, 1, 1, 0, 1, 0},
	} {
		s := subject{
			name:    "multipole",
			label:   fmt.Sprintf("multipole centres=input tol=%g size=%d span=%d sinks=%d ends=%d", x.tol, x.size, x.span, x.sinks, x.ends),
			o:       Options{Set: map[string]string{"centres": "input", "tol": strconv.FormatFloat(x.tol, 'g', -1, 64)}},
			places:  "which keys are near goes by their places",
			aligned: true,
			average: true,
		}
		for name, n := range map[string]int{"size": x.size, "span": x.span, "sinks": x.sinks, "ends": x.ends, "least": x.least} {
			s.o.Set[name] = strconv.Itoa(n)
		}
		if x.least > 0 {
			s.label += " least=" + s.o.Set["least"]
		}
		if x.scale != 0 {
			s.o.Set["scale"] = strconv.FormatFloat(x.scale, 'g', -1, 64)
			s.label += " scale=" + s.o.Set["scale"]
		}
		s.whole = func(numbers) oracle.HeadMatrix {
			return (&oracle.InputMultipole{Tol: x.tol, Size: x.size, Span: x.span, Least: x.least, Sinks: x.sinks, Ends: x.ends, Scale: x.scale}).Weights
		}
		list = append(list, s)
	}
	return list
}

// multipoleOf returns a multipole mechanism with the codebook given.
func multipoleOf[T tensor.Float](t *testing.T, o Options, codebook []float64) attention.Mechanism[T] {
	t.Helper()
	m, err := New[T]("multipole", o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Constants().Get("codebook")
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Data {
		p.Data[i] = T(codebook[i])
	}
	return m
}

// With a cell for each key, or with all keys near, multipole is softmax at every order.
func TestMultipoleIsSoftmaxWhereNothingIsApproximated(t *testing.T) {
	for order := range 3 {
		for _, causal := range []bool{false, true} {
			sh := shape{b: 1, h: 2, hkv: 1, n: 45, m: 60, d: 7, dv: 5, causal: causal, mask: true}
			oc, do := sh.call(uint64(140 + order))
			softmax, err := New[float64]("softmax", Options{})
			if err != nil {
				t.Fatal(err)
			}
			c := callIn[float64](oc)
			want := both(t, softmax, c, do)
			for name, set := range map[string]map[string]string{
				"a cell for each key": {"cells": "60", "block": "8", "window": "3"},
				"all keys near":       {"cells": "60", "block": "8", "window": "60"},
				"one block":           {"cells": "60", "block": "64", "window": "0", "sinks": "0"},
			} {
				m := multipoleOf[float64](t, Options{Order: order, KeyHeads: 1, Width: sh.d, Set: set}, oc.K.Data)
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
		softmax, err := New[float64]("softmax", Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := callIn[float64](oc)
		want := both(t, softmax, c, do)
		m, err := New[float64]("multipole", Options{Set: map[string]string{"centres": "input", "tol": "0", "span": "16", "size": "3", "least": "0"}})
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
		m, err := New[float64]("multipole", Options{Width: 6, Set: x.set})
		if err != nil {
			t.Fatal(err)
		}
		c := callIn[float64](oc)
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
	c := callIn[float64](oc)
	run := func(name string, o Options) []float64 {
		m, err := New[float64](name, o)
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
	c := callIn[float64](oc)
	run := func(name string, o Options) []float64 {
		m, err := New[float64](name, o)
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
		m := multipoleOf[float64](t, Options{Order: order, Width: d, Set: map[string]string{"cells": "1", "block": "8", "window": "0", "sinks": "0", "ends": "0"}}, make([]float64, d))
		got := forward(t, m, callIn[float64](oc)).o
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

// Outputs and gradients of wide heads over many blocks are the textbook's, within the bound of
// docs/numerics.md for whole heads.
func TestMultipoleOfWideHeadsIsTheTextbook(t *testing.T) {
	for order, d := range []int{32, 12, 6} {
		for _, sh := range []shape{
			{name: "unmasked", b: 1, h: 2, hkv: 1, n: 150, m: 150, d: d, dv: 20},
			{name: "causal, key mask", b: 1, h: 2, hkv: 1, n: 130, m: 150, d: d, dv: 20, causal: true, mask: true},
			{name: "more queries than keys", b: 1, h: 2, hkv: 1, n: 150, m: 70, d: d, dv: 4},
		} {
			s := multipoleSubjects()[0]
			s.o = Options{Order: order, KeyHeads: 1, Width: d, Set: map[string]string{"cells": "20"}}
			s.label = fmt.Sprintf("multipole p=%d wide", order)
			s.whole = func(p numbers) oracle.HeadMatrix {
				return (&oracle.Multipole{Codebook: p["codebook"], Cells: 20, Order: order, Block: 32, Window: 16, Sinks: 1, Ends: 1}).Weights
			}
			forms := []form{{attention.Direct, 0}}
			if sh.causal {
				forms = append(forms, form{attention.Step, 0})
			}
			t.Run(s.label, func(t *testing.T) {
				t.Logf("the largest error is %.2f limits", agreeInBoth(t, s, sh, uint64(160+order), forms))
			})
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
		m, err := New[float64]("multipole", Options{Order: order, KeyHeads: 1, Width: sh.d, Set: set})
		if err != nil {
			t.Fatal(err)
		}
		c := callIn[float64](oc)
		want := forward(t, m, c).o
		holds := func(name string, got tensor.Heads[float64], i0 int) {
			for h := range sh.h {
				for i := i0; i < sh.n; i++ {
					ref := want.Head(0, h).Row(i)
					if e := check.ErrorRatio(got.Head(0, h).Row(i), ref, 1e-11*(1+check.MaxAbs(ref))); e > 1 {
						t.Fatalf("order %d, %s: token %d of head %d is off by %.3g limits", order, name, i, h, e)
					}
				}
			}
		}
		state := func(i0, i1 int) attention.State[float64] {
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

// The nearest centre is exact where rounding of products could decide, for keys of all sizes, and the
// first of equals, in whatever tile of cells it is.
func TestNearestCellsAreExact(t *testing.T) {
	nearestCellsAreExact[float32](t)
	nearestCellsAreExact[float64](t)
}

func nearestCellsAreExact[T tensor.Float](t *testing.T) {
	const d = 5
	for _, cells := range []int{1, 4, 16, 50, 300, 1000} {
		book := tensor.Mat[T]{Data: make([]T, cells*d), Rows: cells, Cols: d, Stride: d}
		for i := range book.Data {
			book.Data[i] = T(rng.New(9).Normal(uint64(i)))
		}
		if cells > 40 {
			copy(book.Row(40), book.Row(7))
			copy(book.Row(cells-1), book.Row(30))
			copy(book.Row(41), book.Row(20))
			book.Row(41)[2] += book.Row(41)[2] * T(4*unitRoundoff[T]())
		}
		keys := tensor.Mat[T]{Data: make([]T, 120*d), Rows: 120, Cols: d, Stride: d}
		for i := range keys.Data {
			keys.Data[i] = T(rng.New(10).Normal(uint64(i)))
		}
		for j := range 40 {
			copy(keys.Row(j), book.Row(j%cells))
		}
		for e := range d {
			keys.Row(50)[e], keys.Row(51)[e], keys.Row(52)[e] = 1e30, T(math.Pow(-1, float64(e))*math.MaxFloat32), 0
		}
		h := headwise.Head[T]{K: keys, Scratch: new(arena.Arena), Table: kernel.Active[T]()}
		got := make([]T, keys.Rows)
		s := newNearestCells(book, make([]T, kernel.Pad(cells))).withRoom(h.Scratch)
		new(multipoleAttention[T]).assignKeys(&h, got, 0, keys.Rows, s)
		for j := range got {
			want, least := 0, math.Inf(1)
			for c := range cells {
				if x := sumOfProducts(book.Row(c), book.Row(c))/2 - sumOfProducts(keys.Row(j), book.Row(c)); x < least {
					want, least = c, x
				}
			}
			one := s.findOne(h.Table, h.Scratch, make([]T, kernel.Pad(cells)), keys.Row(j))
			if int(got[j]) != want || int(one) != want {
				t.Errorf("%T, %d cells, key %d: cell %v, alone %d, want %d", got, cells, j, got[j], one, want)
			}
		}
	}
}

// States with cells of another codebook are refused, and so is their merge.
func TestMultipoleStatesOfAnotherCodebookAreRefused(t *testing.T) {
	oc, _ := shape{b: 1, h: 2, hkv: 1, n: 9, m: 9, d: 4, dv: 3, causal: true}.call(191)
	c := callIn[float64](oc)
	state := func(x float64) (attention.Mechanism[float64], attention.State[float64]) {
		book := make([]float64, 12)
		book[0] = x
		m := multipoleOf[float64](t, Options{Width: 4, Set: map[string]string{"cells": "3"}}, book)
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

// Keys near the largest numbers, whose products with values are beyond the range, give finite outputs and
// those of smaller keys with larger queries.
func TestMultipoleOfInputTakesHugeKeys(t *testing.T) {
	const n, d = 256, 4
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: n, m: n, d: d, dv: 3}.call(192)
	m, err := New[float32]("multipole", Options{Set: map[string]string{"centres": "input", "least": "0", "tol": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	var want []float64
	for _, exponent := range []int{0, 118} {
		c := callIn[float32](oc)
		for i := range c.K.Data {
			c.Q.Data[i] = float32(math.Ldexp(float64(c.Q.Data[i]), -exponent))
			c.K.Data[i] = float32(math.Ldexp(float64(c.K.Data[i]), exponent))
		}
		for i := range c.V.Data {
			c.V.Data[i] *= 100
		}
		got := forward(t, m, c)
		if want == nil {
			for _, y := range got.o.Data {
				want = append(want, float64(y))
			}
		} else if e := check.ErrorRatio(got.o.Data, want, 1e-4); e > 1 {
			t.Errorf("outputs of huge keys differ by %.3g limits", e)
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
		m, err := New[float64]("multipole", o)
		if err != nil {
			t.Fatal(err)
		}
		padded, cut := callIn[float64](oc), callIn[float64](oc)
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

func TestMultipoleDoesNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	for order := range 3 {
		doNotAllocateAt(t, "multipole", order, map[string]string{"cells": "9", "block": "16", "window": "4"})
	}
	doNotAllocateAt(t, "multipole", 0, map[string]string{"centres": "input", "size": "9", "span": "16", "least": "0"})
	m, err := New[float32]("multipole", Options{Width: 8, Set: map[string]string{"cells": "9", "block": "4", "window": "4"}})
	if err != nil {
		t.Fatal(err)
	}
	oc, _ := shape{b: 1, h: 2, hkv: 2, n: 1, m: 1, d: 8, dv: 8, causal: true}.call(180)
	c := callIn[float32](oc)
	st, err := m.NewState(c.Shape())
	if err != nil {
		t.Fatal(err)
	}
	out := output(c)
	if n := testing.AllocsPerRun(50, func() {
		if err := st.Step(out, c); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("%.0f allocations a step", n)
	}
}

func TestMultipoleRefusesCodebooksThatDoNotFit(t *testing.T) {
	oc, _ := shape{b: 1, h: 4, hkv: 2, n: 3, m: 3, d: 5, dv: 2}.call(190)
	c := callIn[float32](oc)
	for _, x := range []struct {
		o    Options
		want string
	}{
		{Options{KeyHeads: 3, Width: 5}, "k: has 2 heads, codebook of multipole is of 3"},
		{Options{KeyHeads: 2, Width: 4}, "q: D is 5, codebook of multipole is of 4"},
		{Options{KeyHeads: 2, Width: 5}, ""},
		{Options{KeyHeads: 1, Width: 5}, ""},
		{Options{Heads: 4, Width: 5}, ""},
	} {
		m, err := New[float32]("multipole", x.o)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Forward(output(c), c, nil); err == nil && x.want != "" || err != nil && (x.want == "" || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%+v: error %v, want %q", x.o, err, x.want)
		}
	}
}

// Sums of a cell lose nothing when all but one of its keys become near: values a billion times
// larger were in them before. A moment of degree l is rounded about (s |q| |r|)^l/l! times.
func TestMultipoleSumsForgetNearKeys(t *testing.T) {
	const n, block = 64, 8
	c := &attention.Call[float32]{Q: tensor.NewHeads[float32](1, 1, n, 1), K: tensor.NewHeads[float32](1, 1, n, 1), V: tensor.NewHeads[float32](1, 1, n, 2)}
	for j := range n {
		c.Q.Data[j] = 10
		c.K.Data[j] = -100 // in the cell of -100, with values of 0
		if j/block == 2 {
			c.K.Data[j], c.V.Data[2*j], c.V.Data[2*j+1] = -10, 1e6, -1.1e6 // near to its own block
		}
	}
	c.K.Data[60], c.V.Data[2*60], c.V.Data[2*60+1] = 10, 1e-3, 3e-3
	for order := range 3 {
		m := multipoleOf[float32](t, Options{Order: order, Width: 1, Set: map[string]string{"cells": "2", "block": "8", "window": "0", "sinks": "0", "ends": "0"}}, []float64{0, -100})
		got := forward(t, m, c).o.Head(0, 0)
		for i := 2 * block; i < 3*block; i++ {
			x := 10.0 * 20
			limit := 4 * 0x1p-24 * 3e-3 * []float64{1, 1 + x, 1 + x + x*x/2}[order]
			if e := check.ErrorRatio(got.Row(i), []float64{1e-3, 3e-3}, limit); e > 1 {
				t.Errorf("order %d, query %d: %v, off by %.3g limits", order, i, got.Row(i), e)
			}
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
		m, err := New[float64]("multipole", Options{Set: map[string]string{"centres": "input", "sinks": "0", "ends": "0", "least": "0", "size": "16", "tol": tol}})
		if err != nil {
			t.Fatal(err)
		}
		if o := forward(t, m, callIn[float64](oc)).o.Data[0]; math.Abs(o) > 0.05 {
			t.Errorf("tol %s: the output is %g, softmax gives 9e-16", tol, o)
		}
	}
}

// Without tolerance the largest key is found in a cluster whose mean has no weight.
func TestMultipoleOfInputWithoutToleranceFindsTheLargestKey(t *testing.T) {
	const n = 256
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 1, m: n, d: 1, dv: 1}.call(253)
	oc.Q.Head(0, 0).Row(0)[0] = 1
	for j := range n {
		oc.K.Head(0, 0).Row(j)[0], oc.V.Head(0, 0).Row(j)[0] = float64(j%7)/100, 0
	}
	oc.K.Head(0, 0).Row(0)[0], oc.V.Head(0, 0).Row(0)[0] = 119, -3
	oc.K.Head(0, 0).Row(100)[0], oc.V.Head(0, 0).Row(100)[0] = 125, 1
	m, err := New[float32]("multipole", Options{Set: map[string]string{"centres": "input", "least": "0", "size": "256", "tol": "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if o := forward(t, m, callIn[float32](oc)).o.Data[0]; math.Abs(float64(o)-0.990) > 0.01 {
		t.Errorf("the output is %g, softmax gives 0.990", o)
	}
}
