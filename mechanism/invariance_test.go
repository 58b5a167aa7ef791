package mechanism

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// same reports whether two slices have the same bits, NaN included.
func same(a, b []float) bool {
	return slices.EqualFunc(a, b, func(x, y float) bool {
		return math.Float64bits(float64(x)) == math.Float64bits(float64(y))
	})
}

// sameHeads is same over views of equal shape.
func sameHeads(a, b tensor.Heads) bool {
	if a.B != b.B || a.H != b.H || a.N != b.N || a.D != b.D {
		return false
	}
	for i := range a.B * a.H {
		for n := range a.N {
			if !same(a.Head(i/a.H, i%a.H).Row(n), b.Head(i/a.H, i%a.H).Row(n)) {
				return false
			}
		}
	}
	return true
}

// compute is both, or forward in the form that has no gradients.
func compute(t *testing.T, m attention.Mechanism, c *attention.Call, do tensor.Heads) *results {
	t.Helper()
	if c.Form == attention.Step {
		return forward(t, m, c)
	}
	return both(t, m, c, do)
}

func causality(t *testing.T, s subject, f form) {
	sh := shape{b: 2, h: 2, hkv: 1, n: 11, m: 11, d: 3, dv: 4, causal: true}
	oc, do := sh.call(1)
	m, _ := build(t, s, sh.h)
	c := callIn(oc)
	c.Form, c.Chunk = f.form, f.chunk
	before := compute(t, m, c, in(do))
	change := func(at int, to func(i int, x float) float) *attention.Call {
		changed := callIn(oc)
		changed.Form, changed.Chunk = f.form, f.chunk
		for b := range sh.b {
			for _, x := range []tensor.Mat{changed.Q.Head(b, 0), changed.Q.Head(b, 1), changed.K.Head(b, 0), changed.V.Head(b, 0)} {
				for i, y := range x.Row(at) {
					x.Row(at)[i] = to(i, y)
				}
			}
		}
		return changed
	}
	for at := range sh.n {
		changed := change(at, func(i int, x float) float { return x*7 - float(i) + 3 })
		after := forward(t, m, changed)
		// Where later outputs read earlier queries, their gradients depend on later tokens, too.
		mixes := f.form != attention.Step && !sameHeads(before.g.DQ.Tokens(0, at), both(t, m, changed, in(do)).g.DQ.Tokens(0, at))
		if !sameHeads(before.o.Tokens(0, at), after.o.Tokens(0, at)) {
			t.Fatalf("token %d changed an output before it", at)
		}
		if sameHeads(before.o.Tokens(at, at+1), after.o.Tokens(at, at+1)) {
			t.Fatalf("token %d changed nothing, not even its own output", at)
		}
		for _, to := range []float64{math.NaN(), math.Inf(1)} {
			c := change(at, func(i int, x float) float { return float(to) })
			out := output(c)
			var broken *attention.NonFiniteError
			if err := m.Forward(out, c, nil); err != nil && !errors.As(err, &broken) {
				t.Fatal(err)
			}
			if !sameHeads(before.o.Tokens(0, at), out.Tokens(0, at)) {
				t.Fatalf("token %d of %v changed an output before it", at, to)
			}
			if f.form == attention.Step || mixes {
				continue
			}
			if after := both(t, m, c, in(do)); !sameHeads(before.g.DQ.Tokens(0, at), after.g.DQ.Tokens(0, at)) {
				t.Fatalf("token %d of %v changed a gradient of a query before it", at, to)
			}
		}
	}
}

// batchAlone computes each row of a batch alone, and the batch in another order.
func batchAlone(t *testing.T, s subject, f form) {
	sh := s.fit(shape{b: 3, h: 4, hkv: 2, n: 9, m: 9, d: 5, dv: 3, causal: true, lens: []int64{9, 6, 8}})
	oc, do := sh.call(2)
	m, _ := build(t, s, sh.h)
	c, doT := callIn(oc), in(do)
	c.Form, c.Chunk = f.form, f.chunk
	whole := compute(t, m, c, doT)
	for b := range sh.b {
		part := &attention.Call{
			Q: slice(c.Q, b, 0, sh.h), K: slice(c.K, b, 0, sh.hkv), V: slice(c.V, b, 0, sh.hkv),
			Causal: sh.causal, KeyLens: sh.lens[b : b+1], Form: f.form, Chunk: f.chunk,
		}
		alone := compute(t, m, part, slice(doT, b, 0, sh.h))
		if !sameHeads(alone.o, slice(whole.o, b, 0, sh.h)) {
			t.Fatalf("o of batch row %d differs when computed alone", b)
		}
		if f.form == attention.Step {
			continue
		}
		if !sameHeads(alone.g.DQ, slice(whole.g.DQ, b, 0, sh.h)) || !sameHeads(alone.g.DK, slice(whole.g.DK, b, 0, sh.hkv)) ||
			!sameHeads(alone.g.DV, slice(whole.g.DV, b, 0, sh.hkv)) {
			t.Fatalf("gradients of batch row %d differ when computed alone", b)
		}
	}
}

// headAlone computes each key head with its query heads alone, and each query
// head with its key head.
func headAlone(t *testing.T, s subject, f form) {
	sh := s.fit(shape{b: 2, h: 4, hkv: 2, n: 9, m: 9, d: 5, dv: 3, causal: true, lens: []int64{9, 6}})
	oc, do := sh.call(2)
	m, _ := build(t, s, sh.h)
	c, doT := callIn(oc), in(do)
	c.Form, c.Chunk = f.form, f.chunk
	whole := compute(t, m, c, doT)
	group := sh.h / sh.hkv
	for b := range sh.b {
		for h := range sh.h {
			for n := 1; n <= group && h%group+n <= group; n++ {
				kh := h / group
				one, _ := build(t, s, n)
				headsOf(one.Params(), m.Params(), h, n, sh.h)
				headsOf(one.Constants(), m.Constants(), h, n, sh.h)
				part := &attention.Call{
					Q: slice(c.Q, b, h, n), K: slice(c.K, b, kh, 1), V: slice(c.V, b, kh, 1),
					Causal: sh.causal, KeyLens: sh.lens[b : b+1], Form: f.form, Chunk: f.chunk,
				}
				alone := compute(t, one, part, slice(doT, b, h, n))
				if !sameHeads(alone.o, slice(whole.o, b, h, n)) {
					t.Fatalf("o of heads %d to %d of batch row %d differs when computed alone", h, h+n, b)
				}
				if f.form == attention.Step {
					continue
				}
				if !sameHeads(alone.g.DQ, slice(whole.g.DQ, b, h, n)) {
					t.Fatalf("dq of heads %d to %d of batch row %d differs when computed alone", h, h+n, b)
				}
				// dk and dv are sums over the group.
				if n == group && (!sameHeads(alone.g.DK, slice(whole.g.DK, b, kh, 1)) || !sameHeads(alone.g.DV, slice(whole.g.DV, b, kh, 1))) {
					t.Fatalf("dk or dv of key head %d of batch row %d differs when computed alone", kh, b)
				}
			}
		}
	}
}

// headsOf sets to to the numbers that from has for n of all heads, h and those
// after it. What has the same size for any number of heads is shared.
func headsOf(to, from *param.Set, h, n, all int) {
	for i, p := range from.All() {
		x := p.Data
		if one := to.All()[i].Data; len(one)*all == len(x)*n {
			x = x[h*len(x)/all:][:len(one)]
		}
		copy(to.All()[i].Data, x)
	}
}

// slice views n heads of one batch row.
func slice(x tensor.Heads, b, h, n int) tensor.Heads {
	if x.Data == nil {
		return x
	}
	x.Data = x.Data[b*x.SB+h*x.SH:]
	x.B, x.H = 1, n
	return x
}

func threads(t *testing.T, s subject) {
	defer par.SetThreads(0)
	// Enough arithmetic for the workers to be woken.
	sh := shape{b: 3, h: 4, hkv: 2, n: 160, m: 160, d: 8, dv: 8, causal: true}
	oc, do := s.fit(sh).call(3)
	m, _ := build(t, s, sh.h)
	for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 32}} {
		if !f.computes(s, oc) {
			continue
		}
		c := callIn(oc)
		c.Form, c.Chunk = f.form, f.chunk
		par.SetThreads(1)
		one := both(t, m, c, in(do))
		for _, n := range []int{2, 5} {
			par.SetThreads(n)
			many := both(t, m, c, in(do))
			if !same(one.o.Data, many.o.Data) || !same(one.keep.Den, many.keep.Den) || !same(one.tau, many.tau) ||
				!same(one.g.DQ.Data, many.g.DQ.Data) || !same(one.g.DK.Data, many.g.DK.Data) || !same(one.g.DV.Data, many.g.DV.Data) {
				t.Errorf("%v: %d threads change bits", f, n)
			}
		}
	}
}

func sameTime(t *testing.T, s subject) {
	inEveryForm(besideOthers)(t, s)
}

// besideOthers runs a call forward and backward beside others. They share the
// mechanism, but gradients of parameters are added to each caller's own.
func besideOthers(t *testing.T, s subject, f form) {
	sh := s.fit(shape{b: 1, h: 2, hkv: 1, n: 20, m: 20, d: 4, dv: 4, causal: true})
	oc, do := sh.call(4)
	if !f.computes(s, oc) {
		return
	}
	m, _ := build(t, s, sh.h)
	c, doT := callIn(oc), in(do)
	c.Form, c.Chunk = f.form, f.chunk
	want := compute(t, m, c, doT)
	var wg sync.WaitGroup
	for range 4 {
		own := m
		if len(m.Params().All()) > 0 {
			own, _ = build(t, s, sh.h)
			forward(t, own, c) // Params has the parameters for the width of the last call
			own.Params().ZeroGrad()
		}
		wg.Go(func() {
			r := results{o: output(c), g: attention.Grads{
				DQ: poisoned(sh.b, sh.h, sh.n, sh.d), DK: poisoned(sh.b, sh.hkv, sh.m, sh.d), DV: poisoned(sh.b, sh.hkv, sh.m, sh.dv),
			}}
			keep := &r.keep
			if f.form == attention.Step {
				keep = nil
			}
			if err := m.Forward(r.o, c, keep); err != nil || !sameHeads(r.o, want.o) || !same(r.keep.Den, want.keep.Den) {
				t.Errorf("a call beside others differs (%v)", err)
				return
			}
			if keep == nil {
				return
			}
			err := own.Backward(&r.g, doT, r.o, c, keep)
			for _, p := range own.Params().All() {
				r.tau = append(r.tau, p.Grad...)
			}
			if err != nil || !sameHeads(r.g.DQ, want.g.DQ) || !sameHeads(r.g.DK, want.g.DK) || !sameHeads(r.g.DV, want.g.DV) || !same(r.tau, want.tau) {
				t.Errorf("gradients of a call beside others differ (%v)", err)
			}
		})
	}
	wg.Wait()
}

func padding(t *testing.T, s subject, f form) {
	for _, causal := range []bool{s.book.Forget != nil, s.causal()} {
		if !s.stepsUnmasked() && f.form == attention.Step && !causal {
			continue // its queries need a place among the keys
		}
		sh := shape{b: 1, h: 2, hkv: 1, n: 9, m: 9, d: 3, dv: 4, causal: causal, lens: []int64{6}}
		oc, do := sh.call(5)
		m, _ := build(t, s, sh.h)
		long, doT := callIn(oc), in(do)
		long.Form, long.Chunk = f.form, f.chunk
		short := *long
		short.KeyLens = nil
		short.K, short.V = long.K.Tokens(0, 6), long.V.Tokens(0, 6)
		n := sh.n
		if causal || s.aligned { // queries are aligned with the last key
			n = 6
			short.Q, doT = long.Q.Tokens(0, 6), doT.Tokens(0, 6)
			for h := range sh.h { // the rest sends no gradient
				for i := n; i < sh.n; i++ {
					clear(do.Head(0, h).Row(i))
				}
			}
		}
		a, b := compute(t, m, long, in(do)), compute(t, m, &short, doT)
		if !sameHeads(a.o.Tokens(0, n), b.o) {
			t.Errorf("causal %t: padding changes the output", causal)
		}
		if f.form == attention.Step {
			continue
		}
		if !sameHeads(a.g.DQ.Tokens(0, n), b.g.DQ) {
			t.Errorf("causal %t: padding changes dq", causal)
		}
		// Unmasked queries that are left out were added to the sums as zeros.
		fewer := s.aligned && !causal
		if !fewer && (!sameHeads(a.g.DK.Tokens(0, 6), b.g.DK) || !sameHeads(a.g.DV.Tokens(0, 6), b.g.DV)) {
			t.Errorf("causal %t: padding changes dk or dv", causal)
		}
		for _, x := range []tensor.Heads{a.g.DK.Tokens(6, 9), a.g.DV.Tokens(6, 9)} {
			if !sameHeads(x, tensor.NewHeads(1, 1, 3, x.D)) {
				t.Errorf("causal %t: padding has a gradient", causal)
			}
		}
	}
}

func removal(t *testing.T, s subject, f form) {
	if !s.stepsUnmasked() && f.form == attention.Step {
		return // it needs a causal call
	}
	sh := s.fit(shape{b: 1, h: 2, hkv: 1, n: 5, m: 8, d: 3, dv: 4})
	oc, _ := sh.call(6)
	m, book := build(t, s, sh.h)
	oc.KeyMask = []bool{true, false, true, true, false, false, true, true}
	c := callIn(oc)
	c.Form, c.Chunk = f.form, f.chunk
	masked := forward(t, m, c)

	// A window counts positions, and positions of masked keys stay empty.
	short := *oc
	if s.book.Window == nil {
		short = without(oc)
	}
	want, v := book.Forward(&short), check.MaxAbs(oc.V.Data)
	l := limits(s, m, c)
	for i, cond := range want.Cond {
		ref := want.O.Data[i*sh.dv:][:sh.dv]
		if e := check.ErrorRatio(masked.o.Data[i*sh.dv:][:sh.dv], ref, l.Output(cond, want.Factor[i]*v+check.MaxAbs(ref))); e > 1 {
			t.Errorf("row %d is off by %.3g limits", i, e)
		}
	}
}

// without returns a call of one head without its masked keys.
func without(oc *oracle.Call) oracle.Call {
	short := *oc
	short.KeyMask = nil
	short.K, short.V = oracle.NewHeads(1, 1, 5, 3), oracle.NewHeads(1, 1, 5, 4)
	to := 0
	for j, kept := range oc.KeyMask {
		if kept {
			copy(short.K.Head(0, 0).Row(to), oc.K.Head(0, 0).Row(j))
			copy(short.V.Head(0, 0).Row(to), oc.V.Head(0, 0).Row(j))
			to++
		}
	}
	return short
}

func nanPadding(t *testing.T, s subject, f form) {
	sh := s.fit(shape{b: 2, h: 2, hkv: 1, n: 7, m: 7, d: 3, dv: 4, causal: true, lens: []int64{4, 6}})
	oc, do := sh.call(7)
	m, _ := build(t, s, sh.h)
	c := callIn(oc)
	c.Form, c.Chunk = f.form, f.chunk
	before := compute(t, m, c, in(do))
	for b, n := range sh.lens {
		for j := int(n); j < sh.m; j++ {
			c.K.Head(b, 0).Row(j)[0] = float(math.NaN())
			c.V.Head(b, 0).Row(j)[1] = float(math.Inf(1))
		}
	}
	after := compute(t, m, c, in(do))
	if !sameHeads(before.o, after.o) || !sameHeads(before.g.DQ, after.g.DQ) || !sameHeads(before.g.DK, after.g.DK) || !sameHeads(before.g.DV, after.g.DV) {
		t.Error("NaN or Inf beyond a key length changes results")
	}
}

func packing(t *testing.T, s subject, f form) {
	sh := s.fit(shape{b: 1, h: 2, hkv: 1, n: 14, m: 16, d: 3, dv: 4, causal: true, theta: 50,
		cuQ: []int64{0, 3, 3, 9, 14}, cuK: []int64{0, 3, 5, 11, 16}})
	oc, do := sh.call(8)
	m, _ := build(t, s, sh.h)
	c, doT := callIn(oc), in(do)
	c.Form, c.Chunk = f.form, f.chunk
	packed := compute(t, m, c, doT)
	for i := 1; i < len(sh.cuQ); i++ {
		q0, q1, k0, k1 := int(sh.cuQ[i-1]), int(sh.cuQ[i]), int(sh.cuK[i-1]), int(sh.cuK[i])
		one := *c
		one.CuQ, one.CuK = nil, nil
		one.Q, one.K, one.V = c.Q.Tokens(q0, q1), c.K.Tokens(k0, k1), c.V.Tokens(k0, k1)
		alone := compute(t, m, &one, doT.Tokens(q0, q1))
		if !sameHeads(packed.o.Tokens(q0, q1), alone.o) {
			t.Errorf("sequence %d: o differs from the same sequence alone", i)
		}
		if f.form != attention.Step && (!sameHeads(packed.g.DQ.Tokens(q0, q1), alone.g.DQ) ||
			!sameHeads(packed.g.DK.Tokens(k0, k1), alone.g.DK) || !sameHeads(packed.g.DV.Tokens(k0, k1), alone.g.DV)) {
			t.Errorf("sequence %d: gradients differ from those of the same sequence alone", i)
		}
	}
}

func grouping(t *testing.T, s subject, f form) {
	sh := s.fit(shape{b: 2, h: 6, hkv: 2, n: 9, m: 9, d: 3, dv: 4, causal: true})
	oc, do := sh.call(9)
	m, _ := build(t, s, sh.h)
	c, doT := callIn(oc), in(do)
	c.Form, c.Chunk = f.form, f.chunk
	grouped := compute(t, m, c, doT)
	repeated := *c
	repeat := func(x tensor.Heads) tensor.Heads {
		y := tensor.NewHeads(x.B, sh.h, x.N, x.D)
		for b := range x.B {
			for h := range sh.h {
				copy(y.Head(b, h).Data[:x.N*x.D], x.Head(b, h/3).Data[:x.N*x.D])
			}
		}
		return y
	}
	repeated.K, repeated.V = repeat(c.K), repeat(c.V)
	apart := compute(t, m, &repeated, doT)
	if !sameHeads(grouped.o, apart.o) {
		t.Error("o differs from that of repeated key heads")
	}
	// dk and dv are sums over the group: the textbook judges them.
	if !sameHeads(grouped.g.DQ, apart.g.DQ) {
		t.Error("dq differs from that of repeated key heads")
	}
}

// Heads of the same numbers have the same outputs, which do not change with another head,
// unless Traits or parameters say so.
func TestPlacedHeadsAreDeclared(t *testing.T) {
	sets := map[string]map[string]string{"longnet": {"segments": "8,16", "ratios": "2,4"}, "sparse-fixed": {"stride": "8", "c": "2"}, "local": {"span": "8"}, "polynomial over heads": {"norm": "global-centred"}, "polynomial over tokens": {"norm": "max"}, "multipole": {"block": "4", "cells": "2"}}
	for _, label := range append(Names(), "polynomial over heads", "polynomial over tokens") {
		name, _, _ := strings.Cut(label, " ")
		m, err := New(name, Options{Heads: 3, Width: 4, Length: 40, Set: sets[label]})
		if err != nil {
			t.Fatal(err)
		}
		if m.Params().Size() > 0 {
			continue
		}
		c := &attention.Call{Causal: m.Traits().CausalOnly}
		for i, x := range []*tensor.Heads{&c.Q, &c.K, &c.V} {
			*x = tensor.NewHeads(1, 3, 40, 4)
			for j := range x.Data {
				x.Data[j] = float(rng.New(uint64(i)).Normal(uint64(j % (40 * 4))))
			}
		}
		out := tensor.NewHeads(1, 3, 40, 4)
		if err := m.Forward(out, c, nil); err != nil {
			t.Fatal(err)
		}
		is := false
		for h := 1; h < 3; h++ {
			is = is || !slices.Equal(out.Data[:40*4], out.Data[h*40*4:][:40*4])
		}
		first := slices.Clone(out.Data[:40*4])
		for i, x := range c.Q.Head(0, 2).Data {
			c.Q.Head(0, 2).Data[i] = 2*x + 1
		}
		if err := m.Forward(out, c, nil); err != nil {
			t.Fatal(err)
		}
		is = is || !slices.Equal(first, out.Data[:40*4])
		if is != m.Traits().PlacedHeads {
			t.Errorf("%s: outputs of heads differ, or change with another head: %t", label, is)
		}
	}
}

// A query of an unmasked call has the same output alone and beside other queries, unless
// Traits say that it does not.
func TestPlacedQueriesAreDeclared(t *testing.T) {
	sets := map[string]map[string]string{
		"luna": {"form": "causal"}, "eva": {"chunk": "8"}, "sparse-strided": {"stride": "8"}, "sparse-fixed": {"stride": "8"},
		"local": {"span": "8"}, "longformer": {"window": "8"}, "scatterbrain": {"window": "8"},
		"clustered": {"clusters": "4"}, "improved-clustered": {"clusters": "4"},
		"scatterbrain by hashes": {"support": "lsh", "cluster": "8"}, "performer by the longest": {"form": "code", "kernel": "hyperbolic"},
		"polynomial over tokens": {"norm": "max"}, "multipole of the input": {"centres": "input", "least": "0"},
	}
	for _, label := range append(Names(), "multipole of the input", "scatterbrain by hashes", "performer by the longest", "polynomial over tokens") {
		name, _, _ := strings.Cut(label, " ")
		m, err := New(name, Options{Heads: 1, Width: 4, Length: 64, Set: sets[label]})
		if err != nil {
			t.Fatal(err)
		}
		if m.Traits().CausalOnly {
			continue
		}
		keys := 50
		if name == "reformer" {
			keys = 40 // its queries are its keys
		}
		c := &attention.Call{Q: tensor.NewHeads(1, 1, 40, 4), K: tensor.NewHeads(1, 1, keys, 4), V: tensor.NewHeads(1, 1, keys, 3)}
		for i, x := range [][]float{c.Q.Data, c.K.Data, c.V.Data} {
			for j := range x {
				x[j] = float(rng.New(uint64(i)).Normal(uint64(j)))
			}
		}
		all, one := tensor.NewHeads(1, 1, 40, 3), tensor.NewHeads(1, 1, 1, 3)
		if err := m.Forward(all, c, nil); err != nil {
			t.Fatal(err)
		}
		most := 0.0
		for i := 0; i < all.N && m.Traits().Causal && name != "reformer"; i++ {
			alone := *c
			alone.Q = c.Q.Tokens(i, i+1)
			if err := m.Forward(one, &alone, nil); err != nil {
				t.Fatal(err)
			}
			for j, x := range one.Data {
				most = math.Max(most, math.Abs(float64(x-all.Data[3*i+j])))
			}
		}
		if precision == "float64" && !m.Traits().PlacedQueries && most > 1e-12 {
			t.Errorf("%s: a query alone differs by %g", label, most)
		}
		for j := range c.Q.Data[20*4:] {
			c.Q.Data[20*4+j] = float(rng.New(3).Normal(uint64(j)))
		}
		others := tensor.NewHeads(1, 1, 40, 3)
		if err := m.Forward(others, c, nil); err != nil {
			t.Fatal(err)
		}
		if is := !slices.Equal(all.Data[:20*3], others.Data[:20*3]); is != m.Traits().MixedQueries {
			t.Errorf("%s: outputs change with other queries: %t", label, is)
		}
	}
}

// The form of a causal sequence does not go by its padding.
func TestPaddingChoosesNoForm(t *testing.T) {
	m, err := New("fastmax", Options{Heads: 1, Width: 32})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{60, 150, 300, 700} {
		long := &attention.Call{Causal: true, KeyLens: []int64{int64(n)}}
		for i, x := range []*tensor.Heads{&long.Q, &long.K, &long.V} {
			*x = tensor.NewHeads(1, 1, 1200, 32)
			for j := range x.Data {
				x.Data[j] = float(rng.New(uint64(i)).Normal(uint64(j)))
			}
		}
		short := &attention.Call{Causal: true, Q: long.Q.Tokens(0, n), K: long.K.Tokens(0, n), V: long.V.Tokens(0, n)}
		if a, b := forward(t, m, long), forward(t, m, short); !sameHeads(a.o.Tokens(0, n), b.o) {
			t.Errorf("%d of 1200 tokens: padding changes the output", n)
		}
	}
}
