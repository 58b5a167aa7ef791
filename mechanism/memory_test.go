package mechanism

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// The laws of this file state which memory a mechanism reads and writes.

// crowded are shapes in which some elements are easily forgotten: queries
// without keys, masked and padded keys, empty sequences.
var crowded = []shape{
	{b: 2, h: 4, hkv: 2, n: 7, m: 5, d: 5, dv: 3, causal: true, mask: true, lens: []int64{5, 0}},
	{b: 2, h: 2, hkv: 1, n: 6, m: 9, d: 3, dv: 4, mask: true, lens: []int64{0, 7}},
	{b: 1, h: 2, hkv: 1, n: 9, m: 10, d: 3, dv: 4, cuQ: []int64{0, 2, 4, 9}, cuK: []int64{0, 5, 5, 10}, mask: true},
	{b: 1, h: 2, hkv: 2, n: 9, m: 9, d: 4, dv: 2, causal: true},
}

// untouched is a number that no arithmetic gives: a NaN with a payload.
func untouched() float {
	var x float
	switch p := any(&x).(type) {
	case *float32:
		*p = math.Float32frombits(0x7fc0dead)
	case *float64:
		*p = math.Float64frombits(0x7ff8_0000_dead_beef)
	}
	return x
}

func isUntouched(x float) bool {
	return same([]float{x}, []float{untouched()})
}

// spread returns a copy of x that lies in a larger piece of memory: with room
// before and after it, and between its rows, heads and batch rows. Everything
// that is not an element of x is untouched.
func spread(x tensor.Heads) (view tensor.Heads, memory []float) {
	const before, between, after = 7, 5, 11
	view = tensor.Heads{B: x.B, H: x.H, N: x.N, D: x.D}
	view.SN = x.D + between
	view.SH = x.N*view.SN + between
	view.SB = x.H*view.SH + between
	memory = make([]float, before+x.B*view.SB+after)
	for i := range memory {
		memory[i] = untouched()
	}
	view.Data = memory[before:]
	for b := range x.B {
		for h := range x.H {
			for n := range x.N {
				copy(view.Head(b, h).Row(n), x.Head(b, h).Row(n))
			}
		}
	}
	return view, memory
}

// blank is spread with untouched elements too.
func blank(b, h, n, d int) (view tensor.Heads, memory []float) {
	x := tensor.NewHeads(b, h, n, d)
	for i := range x.Data {
		x.Data[i] = untouched()
	}
	return spread(x)
}

// written starts from results that are untouched everywhere.
func written(t *testing.T, s subject, f form) {
	for i, sh := range crowded {
		sh = s.fit(sh)
		oc, do := sh.call(40 + uint64(i))
		if !f.computes(s, oc) {
			continue
		}
		m, _ := build(t, s, sh.h)
		c := callIn(oc)
		c.Form, c.Chunk = f.form, f.chunk
		o, _ := blank(sh.b, sh.h, sh.n, sh.dv)
		dq, _ := blank(sh.b, sh.h, sh.n, sh.d)
		dk, _ := blank(sh.b, sh.hkv, sh.m, sh.d)
		dv, _ := blank(sh.b, sh.hkv, sh.m, sh.dv)
		a, _ := blank(1, 1, sh.n, sh.m)
		g := &attention.Grads{DQ: dq, DK: dk, DV: dv}
		keep := &attention.Saved{Den: make([]float, 0, sh.b*sh.h*sh.n)}
		for i := range keep.Den[:cap(keep.Den)] {
			keep.Den[:cap(keep.Den)][i] = untouched()
		}
		run(t, m, c, o, in(do), g, keep)
		if err := weightsIn(s, m, a.Head(0, 0), c, sh.b-1, sh.h-1, 0, sh.n); err != nil {
			t.Fatal(err)
		}
		results := []struct {
			name string
			x    tensor.Heads
		}{{"o", o}, {"weights", a}}
		if f.form != attention.Step {
			results = append(results, []struct {
				name string
				x    tensor.Heads
			}{{"dq", dq}, {"dk", dk}, {"dv", dv}}...)
			if s.whole == nil {
				results = append(results, results[:1]...)
				results[len(results)-1].name, results[len(results)-1].x = "the denominators", tensor.HeadsOf(keep.Den, sh.b, sh.h, sh.n, 1)
			}
		}
		for _, r := range results {
			for b := range r.x.B {
				for h := range r.x.H {
					for n := range r.x.N {
						if slices.ContainsFunc(r.x.Head(b, h).Row(n), isUntouched) {
							t.Fatalf("shape %d: %s of batch row %d, head %d, token %d is not written", i, r.name, b, h, n)
						}
					}
				}
			}
		}
	}
}

// run is Forward and, in the forms that have it, Backward.
func run(t *testing.T, m attention.Mechanism, c *attention.Call, o, do tensor.Heads, g *attention.Grads, keep *attention.Saved) {
	t.Helper()
	if c.Form == attention.Step {
		keep = nil
	}
	if err := m.Forward(o, c, keep); err != nil {
		t.Fatal(err)
	}
	if keep == nil {
		return
	}
	if err := m.Backward(g, do, o, c, keep); err != nil {
		t.Fatal(err)
	}
}

// views computes in memory with room around every row, which holds NaN.
func views(t *testing.T, s subject, f form) {
	for i, sh := range crowded {
		sh = s.fit(sh)
		oc, do := sh.call(50 + uint64(i))
		if !f.computes(s, oc) {
			continue
		}
		m, _ := build(t, s, sh.h)
		c := callIn(oc)
		c.Form, c.Chunk = f.form, f.chunk
		doT := in(do)
		want := compute(t, m, c, doT)
		wide := *c
		wide.Q, _ = spread(c.Q)
		wide.K, _ = spread(c.K)
		wide.V, _ = spread(c.V)
		doWide, _ := spread(doT)
		var g attention.Grads
		o, oAll := blank(sh.b, sh.h, sh.n, sh.dv)
		dq, dqAll := blank(sh.b, sh.h, sh.n, sh.d)
		dk, dkAll := blank(sh.b, sh.hkv, sh.m, sh.d)
		dv, dvAll := blank(sh.b, sh.hkv, sh.m, sh.dv)
		g.DQ, g.DK, g.DV = dq, dk, dv
		run(t, m, &wide, o, doWide, &g, &attention.Saved{})
		a, aAll := blank(1, 1, sh.n, sh.m)
		aWant := tensor.NewHeads(1, 1, sh.n, sh.m)
		for _, x := range []struct {
			c   *attention.Call
			dst tensor.Heads
		}{{c, aWant}, {&wide, a}} {
			if err := weightsIn(s, m, x.dst.Head(0, 0), x.c, 0, sh.h-1, 0, sh.n); err != nil {
				t.Fatal(err)
			}
		}
		for _, x := range []struct {
			name      string
			got, want tensor.Heads
			memory    []float
		}{{"o", o, want.o, oAll}, {"dq", dq, want.g.DQ, dqAll}, {"dk", dk, want.g.DK, dkAll}, {"dv", dv, want.g.DV, dvAll}, {"weights", a, aWant, aAll}} {
			if f.form == attention.Step && x.name[0] == 'd' {
				continue
			}
			if !sameHeads(x.got, x.want) {
				t.Errorf("shape %d: %s in a view differs", i, x.name)
			}
			// What is an element is as wanted; the rest must be untouched.
			_, expected := spread(x.want)
			if !same(x.memory, expected) {
				t.Errorf("shape %d: memory around %s is written", i, x.name)
			}
		}
	}
}

// unchanged compares what a call is given before and after.
func unchanged(t *testing.T, s subject, f form) {
	for i, sh := range crowded {
		sh = s.fit(sh)
		oc, do := sh.call(60 + uint64(i))
		if !f.computes(s, oc) {
			continue
		}
		m, _ := build(t, s, sh.h)
		c, doT := callIn(oc), in(do)
		c.Form, c.Chunk = f.form, f.chunk
		if w, ok := m.(*widths); ok {
			w.last.Store(int64(sh.d))
		}
		var params [][]float
		for _, p := range m.Params().All() {
			params = append(params, slices.Clone(p.Data))
		}
		lens, cuQ, cuK := slices.Clone(c.KeyLens), slices.Clone(c.CuQ), slices.Clone(c.CuK) // calls of a shape share them
		r := compute(t, m, c, doT)
		if f.form != attention.Step {
			o := slices.Clone(r.o.Data)
			den := slices.Clone(r.keep.Den)
			if err := m.Backward(&r.g, doT, r.o, c, &r.keep); err != nil {
				t.Fatal(err)
			}
			if !same(o, r.o.Data) || !same(den, r.keep.Den) {
				t.Errorf("shape %d: Backward changes what Forward returned", i)
			}
		}
		if err := weightsIn(s, m, tensor.NewMat(sh.n, sh.m), c, 0, 0, 0, sh.n); err != nil {
			t.Fatal(err)
		}
		before := callIn(oc)
		if !same(c.Q.Data, before.Q.Data) || !same(c.K.Data, before.K.Data) || !same(c.V.Data, before.V.Data) || !same(doT.Data, in(do).Data) {
			t.Errorf("shape %d: q, k, v or do is changed", i)
		}
		again, _ := sh.call(60 + uint64(i))
		if !slices.Equal(c.KeyMask, again.KeyMask) || !slices.Equal(c.KeyLens, lens) || !slices.Equal(c.CuQ, cuQ) || !slices.Equal(c.CuK, cuK) {
			t.Errorf("shape %d: a mask, a length or an offset is changed", i)
		}
		for j, p := range m.Params().All() {
			if !same(p.Data, params[j]) {
				t.Errorf("shape %d: %s is changed", i, p.Name)
			}
		}
	}
}

// again runs a call of another shape first, and then twice into what that left.
func again(t *testing.T, s subject, f form) {
	sh := s.fit(crowded[0])
	oc, do := sh.call(70)
	if !f.computes(s, oc) {
		return
	}
	m, _ := build(t, s, sh.h)
	c, doT := callIn(oc), in(do)
	c.Form, c.Chunk = f.form, f.chunk
	want := compute(t, m, c, doT)
	larger := sh
	larger.n, larger.m, larger.lens = 17, 19, nil
	lc, ldo := s.fit(larger).call(71)
	big := callIn(lc)
	big.Form, big.Chunk = f.form, f.chunk
	used := compute(t, m, big, in(ldo))
	r := &results{o: output(c), g: want.g, keep: used.keep}
	r.g.DQ, r.g.DK, r.g.DV = poisoned(sh.b, sh.h, sh.n, sh.d), poisoned(sh.b, sh.hkv, sh.m, sh.d), poisoned(sh.b, sh.hkv, sh.m, sh.dv)
	m.Params().ZeroGrad()
	for range 2 {
		run(t, m, c, r.o, doT, &r.g, &r.keep)
		if !sameHeads(r.o, want.o) {
			t.Error("o differs where Saved was used before")
		}
		if f.form == attention.Step {
			continue
		}
		if !same(r.keep.Den, want.keep.Den) || r.keep.UnseenCount != want.keep.UnseenCount || r.keep.WeakCount != want.keep.WeakCount {
			t.Error("what Forward saves differs where Saved was used before")
		}
		if !sameHeads(r.g.DQ, want.g.DQ) || !sameHeads(r.g.DK, want.g.DK) || !sameHeads(r.g.DV, want.g.DV) {
			t.Error("gradients differ where Grads was used before")
		}
	}
	if f.form == attention.Step {
		return
	}
	at := 0
	for _, p := range m.Params().All() {
		for i, g := range p.Grad {
			if g != 2*want.tau[at] {
				t.Errorf("the gradient of %s[%d] is %v after two runs of %v", p.Name, i, g, want.tau[at])
			}
			at++
		}
	}
}

// weightsIn is Weights, or zeros where there is no attention matrix.
func weightsIn(s subject, m attention.Mechanism, dst tensor.Mat, c *attention.Call, b, h, i0, i1 int) error {
	if s.outputs == nil {
		return m.Weights(dst, c, b, h, i0, i1)
	}
	for i := range dst.Rows {
		clear(dst.Row(i))
	}
	return nil
}
