package mechanism

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/suite"
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
		{1, 0, 3, 2, 0, 1, 1, 0, 0, true},
		{1, 1, 2, 3, 1, 0, 0, 0, 0.5, true},
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
func multipoleOf(t *testing.T, o Options, codebook []float64) attention.Mechanism {
	t.Helper()
	m, err := New("multipole", o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Constants().Get("codebook")
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Data {
		p.Data[i] = float(codebook[i])
	}
	return m
}

// Outputs and gradients of wide heads over many blocks are the textbook's, within the bound of
// docs/numerics.md for whole heads.
func TestMultipoleOfWideHeadsIsTheTextbook(t *testing.T) {
	for order, d := range []int{32, 12, 6} {
		for _, sh := range []shape{
			{name: "unmasked", b: 1, h: 2, hkv: 1, n: 100, m: 100, d: d, dv: 20},
			{name: "causal, key mask", b: 1, h: 2, hkv: 1, n: 85, m: 100, d: d, dv: 20, causal: true, mask: true},
			{name: "more queries than keys", b: 1, h: 2, hkv: 1, n: 100, m: 70, d: d, dv: 4},
		} {
			if sh.m < sh.n {
				if order > 0 && !suite.IsLong() {
					continue
				}
			} else if !suite.IsLong() {
				sh.n -= 30
			}
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
				t.Logf("the largest error is %.2f limits", agreeAs(t, s, sh, uint64(160+order), forms))
			})
		}
	}
}

// The nearest centre is exact where rounding of products could decide, for keys of all sizes, and the
// first of equals, in whatever tile of cells it is.
func TestNearestCellsAreExact(t *testing.T) {
	nearestCellsAreExact(t)
}

func nearestCellsAreExact(t *testing.T) {
	const d = 5
	for _, cells := range []int{1, 4, 16, 50, 300, 1000} {
		for _, rows := range []int{120, searchedKeys + 5} {
			nearestOf(t, cells, rows, d)
		}
	}
}

func nearestOf(t *testing.T, cells, rows, d int) {
	book := normalRows(cells, d, 9)
	if cells > 40 {
		copy(book.Row(40), book.Row(7))
		copy(book.Row(cells-1), book.Row(30))
		copy(book.Row(41), book.Row(20))
		book.Row(41)[2] += book.Row(41)[2] * float(4*unitRoundoff())
	}
	keys := normalRows(rows, d, 10)
	for j := range 40 {
		copy(keys.Row(j), book.Row(j%cells))
	}
	for e := range d {
		keys.Row(50)[e], keys.Row(51)[e], keys.Row(52)[e] = 1e30, float(math.Pow(-1, float64(e))*math.MaxFloat32), 0
	}
	h := headwise.Head{K: keys, Scratch: new(arena.Arena), Table: kernel.Active[float]()}
	got := make([]float, keys.Rows)
	s := newNearestCells(book, make([]float, kernel.Pad(cells))).withRoom(h.Scratch)
	new(multipoleAttention).assignKeys(&h, got, 0, keys.Rows, s)
	for j := range got {
		want, least := 0, math.Inf(1)
		for c := range cells {
			if x := sumOfProducts(book.Row(c), book.Row(c))/2 - sumOfProducts(keys.Row(j), book.Row(c)); x < least {
				want, least = c, x
			}
		}
		one := s.findOne(h.Table, h.Scratch, make([]float, kernel.Pad(cells)), keys.Row(j))
		if int(got[j]) != want || int(one) != want {
			t.Errorf("%T, %d cells, key %d of %d: cell %v, alone %d, want %d", got, cells, j, rows, got[j], one, want)
		}
	}
}

// Masked keys have no cells, and change those of no other key.
func TestNearestCellsLeaveOutMaskedKeys(t *testing.T) {
	const cells, rows, d = 50, 2*searchedKeys + 5, 5
	for name, masked := range map[string]func(j int) bool{
		"each third":  func(j int) bool { return j%3 == 1 },
		"tiles":       func(j int) bool { return j > 30 && j < 30+3*nearestRows },
		"the last":    func(j int) bool { return j >= rows-nearestRows-3 },
		"all but one": func(j int) bool { return j != 70 },
		"all":         func(int) bool { return true },
	} {
		keys, book := normalRows(rows, d, 10), normalRows(cells, d, 9)
		h := headwise.Head{K: keys, Scratch: new(arena.Arena), Table: kernel.Active[float]()}
		assign := func() []float {
			found := make([]float, rows)
			for j := range found {
				found[j] = -1
			}
			new(multipoleAttention).assignKeys(&h, found, 2, rows-2, newNearestCells(book, make([]float, kernel.Pad(cells))).withRoom(h.Scratch))
			return found
		}
		want := assign()
		h.Mask = make([]bool, rows)
		for j := range h.Mask {
			if h.Mask[j] = !masked(j); masked(j) {
				clear(keys.Row(j))
				want[j] = -1
			}
		}
		if !slices.Equal(assign(), want) {
			t.Errorf("%s of the keys masked: the cells of others change, or masked keys have some", name)
		}
	}
}

// A search in 8 bits that has to compare keys with all rows goes on with products of numbers.
func TestNearestCellsCountRowsOfKeysOfZeros(t *testing.T) {
	const cells, d = 300, 5
	h := headwise.Head{Scratch: new(arena.Arena), Table: kernel.Active[float]()}
	s := newNearestCells(normalRows(cells, d, 9), make([]float, kernel.Pad(cells))).withRoom(h.Scratch).forKeys(h.Table, h.Scratch, searchedKeys)
	if !s.inBytes {
		t.Skip("the instruction set has no search in 8 bits")
	}
	keys := tensor.Mat{Data: make([]float, nearestRows*d), Rows: nearestRows, Cols: d, Stride: d}
	for range judgedKeys / nearestRows {
		s.find(h.Table, h.Scratch, make([]int32, nearestRows), keys)
	}
	if s.inBytes {
		t.Errorf("after %d keys of zeros, %d candidates", s.keys, s.candidates)
	}
}

// normalRows returns a matrix of normal numbers.
func normalRows(rows, cols int, seed uint64) tensor.Mat {
	x := tensor.Mat{Data: make([]float, rows*cols), Rows: rows, Cols: cols, Stride: cols}
	for i := range x.Data {
		x.Data[i] = float(rng.New(seed).Normal(uint64(i)))
	}
	return x
}

func TestMultipoleDoesNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	for order := range 3 {
		doNotAllocateAt(t, "multipole", order, map[string]string{"cells": "9", "block": "16", "window": "4"})
	}
	doNotAllocateAt(t, "multipole", 0, map[string]string{"centres": "input", "size": "9", "span": "16", "least": "0"})
	m, err := New("multipole", Options{Width: 8, Set: map[string]string{"cells": "9", "block": "4", "window": "4"}})
	if err != nil {
		t.Fatal(err)
	}
	oc, _ := shape{b: 1, h: 2, hkv: 2, n: 1, m: 1, d: 8, dv: 8, causal: true}.call(180)
	c := callIn(oc)
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
	c := callIn(oc)
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
		m, err := New("multipole", x.o)
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
	c := &attention.Call{Q: tensor.NewHeads(1, 1, n, 1), K: tensor.NewHeads(1, 1, n, 1), V: tensor.NewHeads(1, 1, n, 2)}
	for j := range n {
		c.Q.Data[j] = 10
		c.K.Data[j] = -100 // in the cell of -100, with values of 0
		if j/block == 2 {
			c.K.Data[j], c.V.Data[2*j], c.V.Data[2*j+1] = -10, 1e6, -1.1e6 // near to its own block
		}
	}
	c.K.Data[60], c.V.Data[2*60], c.V.Data[2*60+1] = 10, 1e-3, 3e-3
	for order := range 3 {
		m := multipoleOf(t, Options{Order: order, Width: 1, Set: map[string]string{"cells": "2", "block": "8", "window": "0", "sinks": "0", "ends": "0"}}, []float64{0, -100})
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
	m, err := New("multipole", Options{Set: map[string]string{"centres": "input", "least": "0", "size": "256", "tol": "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if o := forward(t, m, callIn(oc)).o.Data[0]; math.Abs(float64(o)-0.990) > 0.01 {
		t.Errorf("the output is %g, softmax gives 0.990", o)
	}
}

// Keys near the largest numbers, whose products with values are beyond the range, give finite outputs and
// those of smaller keys with larger queries.
func TestMultipoleOfInputTakesHugeKeys(t *testing.T) {
	const n, d = 256, 4
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: n, m: n, d: d, dv: 3}.call(192)
	m, err := New("multipole", Options{Set: map[string]string{"centres": "input", "least": "0", "tol": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	var want []float64
	for _, exponent := range []int{0, 118} {
		c := callIn(oc)
		for i := range c.K.Data {
			c.Q.Data[i] = float(math.Ldexp(float64(c.Q.Data[i]), -exponent))
			c.K.Data[i] = float(math.Ldexp(float64(c.K.Data[i]), exponent))
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

// Gradients are finite if squares of small keys vanish beside that of a large one.
func TestMultipoleOfInputTakesALargeKeyAmongSmallOnes(t *testing.T) {
	const n, d, large = 256, 4, 100
	for _, causal := range []bool{false, true} {
		for _, exponent := range []int{62, 66, 70, 74} {
			for _, lengths := range [][2]int{{0, exponent}, {-exponent, 0}} {
				oc, up := shape{b: 1, h: 2, hkv: 1, n: n, m: n, d: d, dv: 3, causal: causal}.call(192)
				m, err := New("multipole", Options{Set: map[string]string{"centres": "input", "least": "0", "tol": "1", "span": "32", "size": "4"}})
				if err != nil {
					t.Fatal(err)
				}
				c := callIn(oc)
				for j := range n {
					length := lengths[0]
					if j == large {
						length = lengths[1]
					}
					for a := range d {
						c.K.Data[j*d+a] = float(math.Ldexp(float64(c.K.Data[j*d+a]), length))
					}
				}
				got := both(t, m, c, in(up))
				for name, x := range map[string]tensor.Heads{"out": got.o, "dQ": got.g.DQ, "dK": got.g.DK, "dV": got.g.DV} {
					if rows, first := attention.NonFinite(x); rows > 0 {
						t.Errorf("causal %v, keys of 2^%d beside one of 2^%d: %d rows of %s are not finite, the first is %v", causal, lengths[0], lengths[1], rows, name, first)
					}
				}
			}
		}
	}
}

// A query multiplies the dipole of each group, and a causal call has one group: the term n·D·Dv of the cost.
func TestMultipoleOfInputCountsDipoles(t *testing.T) {
	m, err := New("multipole", Options{Set: map[string]string{"centres": "input"}})
	if err != nil {
		t.Fatal(err)
	}
	for causal, want := range map[bool]float64{false: clusterGroups, true: 1} {
		query := func(d, dv int) float64 { // multiplications for one more query
			s := attention.Shape{B: 1, H: 1, Hkv: 1, N: 1, M: 1 << 16, D: d, Dv: dv, Causal: causal}
			one := m.Plan(s).FLOPs
			s.N = 2
			return (m.Plan(s).FLOPs - one) / 2
		}
		if got := query(65, 65) - query(65, 64) - query(64, 65) + query(64, 64); math.Abs(got-want) > 1e-3 {
			t.Errorf("causal %v: %.6g dipoles for a query, want %g", causal, got, want)
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

// A diagnosis tells how far keys lie from the centres of their cells, and what share of the weight lies on
// keys far below the mean of their cell, as sums over all pairs have it.
func TestMultipoleTellsDistancesAndWildWeights(t *testing.T) {
	const n, d, cells, block, window = 70, 5, 3, 8, 4
	for order := range 3 {
		for _, causal := range []bool{false, true} {
			oc, _ := shape{b: 1, h: 1, hkv: 1, n: n, m: n, d: d, dv: 3, causal: causal, mask: true}.call(270)
			for i := range oc.Q.Data {
				oc.Q.Data[i] *= 3
			}
			m, err := New("multipole", Options{Order: order, Width: d, Set: map[string]string{"cells": strconv.Itoa(cells), "block": strconv.Itoa(block), "window": strconv.Itoa(window)}})
			if err != nil {
				t.Fatal(err)
			}
			book, err := m.Constants().Get("codebook")
			if err != nil {
				t.Fatal(err)
			}
			c := callIn(oc)
			heads, err := m.Diagnose(c)
			if err != nil {
				t.Fatal(err)
			}
			w := tensor.NewMat(n, n)
			if err := m.Weights(w, c, 0, 0, 0, n); err != nil {
				t.Fatal(err)
			}
			row := func(of []float, i int) []float { return of[i*d:][:d] }
			last := n
			if !causal {
				last--
			}
			cell, squares, count := make([]int, n), 0.0, 0.0
			for j := 1; j < last; j++ {
				least := math.Inf(1)
				for k := range cells {
					off := 0.0
					for a, y := range row(book.Data, k) {
						off += math.Pow(float64(row(c.K.Data, j)[a])-float64(y), 2)
					}
					if off < least {
						least, cell[j] = off, k
					}
				}
				if c.KeyMask[j] {
					squares, count = squares+least, count+1
				}
			}
			if want, got := math.Sqrt(squares/count), heads[0].KeyDistance; math.Abs(got-want) > 1e-5*want {
				t.Errorf("order %d, causal %t: distance %.7g, want %.7g", order, causal, got, want)
			}
			share, most := 0.0, 0.0
			for i := range n {
				near := func(j int) bool {
					b := i / block * block
					return j < 1 || j >= last || j >= b-window && (causal || j < b+block+window)
				}
				sums, counts := make([]float64, cells*d), make([]float64, cells)
				for j := range n {
					if c.KeyMask[j] && !near(j) {
						counts[cell[j]]++
						for a, y := range row(c.K.Data, j) {
							sums[cell[j]*d+a] += float64(y)
						}
					}
				}
				wild, all := 0.0, 0.0
				for j, y := range w.Row(i) {
					all += math.Abs(float64(y))
					x := 0.0
					for a, q := range row(c.Q.Data, i) {
						x += float64(q) * (float64(row(c.K.Data, j)[a]) - sums[cell[j]*d+a]/counts[cell[j]]) / math.Sqrt(d)
					}
					if order > 0 && y != 0 && !near(j) && x < -float64(order) {
						wild += math.Abs(float64(y))
					}
				}
				if all > 0 {
					share += wild / all / float64(heads[0].Rows)
					most = max(most, wild/all)
				}
			}
			if order > 0 && share < 0.001 {
				t.Errorf("order %d, causal %t: no weight is wild", order, causal)
			}
			if d := heads[0]; math.Abs(d.WildShare-share) > 1e-5*share || math.Abs(d.MaxWildShare-most) > 1e-5*most {
				t.Errorf("order %d, causal %t: wild shares %.7g and %.7g, want %.7g and %.7g", order, causal, d.WildShare, d.MaxWildShare, share, most)
			}
		}
	}
}

// Wild weights of order 1 are the negative ones, with queries of cells, too.
func TestWildWeightsOfOrderOneAreNegative(t *testing.T) {
	const n, d = 90, 4
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: n, m: n, d: d, dv: 2, causal: true}.call(271)
	for _, tilt := range []string{"false", "true"} {
		m, err := New("multipole", Options{Order: 1, Width: d, Set: map[string]string{"cells": "3", "block": "8", "window": "0", "tilt": tilt}})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range m.Params().All() {
			for i, x := range randomTilts(p.Name, p.Shape) {
				p.Data[i] = float(x)
			}
		}
		c := callIn(oc)
		heads, err := m.Diagnose(c)
		if err != nil {
			t.Fatal(err)
		}
		w, share := tensor.NewMat(n, n), 0.0
		if err := m.Weights(w, c, 0, 0, 0, n); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			below, all := 0.0, 0.0
			for _, y := range w.Row(i) {
				all += math.Abs(float64(y))
				below -= min(float64(y), 0)
			}
			share += below / all / n
		}
		if share < 0.001 || math.Abs(heads[0].WildShare-share) > 1e-5*share {
			t.Errorf("tilt=%s: a share of %.7g is wild, want %.7g", tilt, heads[0].WildShare, share)
		}
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
	run := func(name string, o Options) []float {
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
		off += math.Pow(float64(got[i]-want[i]), 2)
		size += math.Pow(float64(want[i]), 2)
	}
	if e := math.Sqrt(off / size); e > 0.1 {
		t.Errorf("outputs differ from softmax by %.3g of their size", e)
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
		got, want := both(t, m, padded, in(do)), both(t, m, cut, in(do))
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
		if o := forward(t, m, callIn(oc)).o.Data[0]; math.Abs(float64(o)) > 0.05 {
			t.Errorf("tol %s: the output is %g, softmax gives 9e-16", tol, o)
		}
	}
}
