package mechanism

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Flags of a fuzzed call.
const (
	fuzzCausal = 1 << iota
	fuzzMask
	fuzzKeep
	fuzzLens
	fuzzPacked
	fuzzRotated
	fuzzDecay
)

// drawn is the shape that a fuzzer's numbers stand for.
func drawn(s subject, seed uint64, b, group, hkv, n, m, d, dv, flags uint8) shape {
	sh := shape{
		b: 1 + int(b)%3, hkv: 1 + int(hkv)%2, n: int(n) % 70, m: int(m) % 70, d: 1 + int(d)%12, dv: 1 + int(dv)%9,
		causal: flags&fuzzCausal != 0, mask: flags&fuzzMask != 0,
	}
	sh.h = sh.hkv * (1 + int(group)%3)
	if sh.d == 2 { // rows are ±(1,-1) then, and for p = 1 denominators are exactly 0
		sh.d = 13
	}
	if len(s.book.Coef) > 4 {
		sh.d = min(sh.d, 6)
	}
	k := rng.New(seed).Fold(11)
	switch {
	case flags&fuzzPacked != 0:
		// Sequences have 0 to 7 queries and keys, no fewer keys than queries where
		// those are rotated and causal.
		sh.b = 1
		sh.cuQ, sh.cuK = []int64{0}, []int64{0}
		for i := range uint64(1 + int(b)%5) {
			nq := int64(k.Intn(2*i, 8))
			nk := int64(k.Intn(2*i+1, 8))
			if flags&fuzzRotated != 0 {
				nk = max(nk, nq)
			}
			sh.cuQ, sh.cuK = append(sh.cuQ, sh.cuQ[i]+nq), append(sh.cuK, sh.cuK[i]+nk)
		}
		sh.n, sh.m = int(sh.cuQ[len(sh.cuQ)-1]), int(sh.cuK[len(sh.cuK)-1])
	case flags&fuzzLens != 0:
		for i := range sh.b {
			sh.lens = append(sh.lens, int64(k.Intn(100+uint64(i), sh.m+1)))
		}
	}
	sh.keep = flags&fuzzKeep != 0 && sh.cuQ == nil
	if flags&fuzzRotated != 0 && (!sh.causal || sh.m >= sh.n) {
		sh.theta = 50
	}
	if flags&fuzzDecay != 0 {
		// No faster: eps, which does not decay with masked keys, would overflow.
		sh.decay = []float64{0.02, 0.3, 1}[k.Intn(200, 3)]
	}
	return s.fit(sh)
}

// allowance is how many limits an error may have. They are statistical: roundings
// that go both ways keep within them in thousands of draws, but one of the
// millions that a fuzzer makes does not. Its errors are √(ln 10⁷/ln 10³) = 1.5 times
// as far out.
var allowance = 1.0

// FuzzTextbook draws a mechanism, a call and a way to compute it, and holds
// outputs, denominators and gradients against the textbook; states are fed in
// pieces that are drawn too.
func FuzzTextbook(f *testing.F) {
	all := subjects()
	for i, s := range all {
		if !suite.IsLong() && !firstSubjects()[s.label] {
			continue
		}
		f.Add(uint8(i), uint64(i), uint8(2), uint8(1), uint8(1), uint8(17+i%16), uint8(19), uint8(4), uint8(3), uint8(i*7), uint8(i%9), uint64(i))
	}
	f.Fuzz(func(t *testing.T, which uint8, seed uint64, b, group, hkv, n, m, d, dv, flags, chunk uint8, split uint64) {
		s := all[int(which)%len(all)]
		sh := drawn(s, seed, b, group, hkv, n, m, d, dv, flags)
		list := []form{{attention.Direct, 0}, {attention.Auto, 0}, {attention.Linear, int(chunk) % 80}, {attention.Step, int(chunk) % 20}}
		allowance = 2
		defer func() { allowance = 1 }()
		textbook.Clear() // calls do not come twice
		agree(t, s, sh, seed, list)
		if s.causal() && sh.cuQ == nil && !sh.keep && sh.lens == nil {
			sh.m, sh.causal = sh.n, true
			fed(t, s, sh, seed, int(chunk)%20, split)
		}
	})
}

// fed steps through a call in pieces, with the state saved and restored between
// two of them, and holds that against single steps and the textbook.
func fed(t *testing.T, s subject, sh shape, seed uint64, chunk int, split uint64) {
	oc, _ := sh.call(seed)
	m, book := build(t, s, sh.h)
	c := callIn(oc)
	fresh := func() attention.State {
		st, err := m.NewState(attention.Shape{B: sh.b, H: sh.h, Hkv: sh.hkv, D: sh.d, Dv: sh.dv, Chunk: chunk})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	one, many := output(c), output(c)
	step(t, fresh(), one, c, 0, sh.n, 1)
	st := fresh()
	k := rng.New(split).Fold(12)
	for i, at := uint64(0), 0; at < sh.n; i++ {
		n := min(1+k.Intn(2*i, 11), sh.n-at)
		step(t, st, many, c, at, at+n, n)
		at += n
		if k.Intn(2*i+1, 4) == 0 {
			data, err := st.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			if st, err = m.RestoreState(data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !sameHeads(one, many) {
		t.Error("the pieces in which a state is fed change bits")
	}
	want, v := book.Forward(oc), check.MaxAbs(oc.V.Data)
	l := limits(s, m, &attention.Call{Q: c.Q, K: c.K, V: c.V, Chunk: chunk, Form: attention.Step})
	for i, cond := range want.Cond {
		ref := want.O.Data[i*sh.dv:][:sh.dv]
		if e := check.ErrorRatio(one.Data[i*sh.dv:][:sh.dv], ref, l.Output(cond, v+check.MaxAbs(ref))); e > allowance {
			t.Errorf("row %d of a state is off by %.3g limits", i, e)
		}
	}
}

// FuzzState restores fuzzed snapshots with a valid checksum, in bounded memory. A state that
// is restored can be used, saved and restored. The seeds are saved as they were.
func FuzzState(f *testing.F) {
	all := slices.DeleteFunc(subjects(), func(s subject) bool { return !s.causal() })
	sh := shape{b: 1, h: 2, hkv: 1, n: 9, m: 9, d: 3, dv: 2, causal: true}
	oc, _ := sh.call(90)
	snapshot := func(t testing.TB, m attention.Mechanism) []byte {
		st, err := m.NewState(attention.Shape{B: sh.b, H: sh.h, Hkv: sh.hkv, D: sh.d, Dv: sh.dv, Chunk: 4})
		if err != nil {
			t.Fatal(err)
		}
		c := callIn(oc)
		if err := st.Step(output(c), c); err != nil {
			t.Fatal(err)
		}
		data, err := st.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for i, s := range all {
		s.o.Heads = sh.h
		m, err := New(s.name, s.o)
		if err != nil {
			f.Fatal(err)
		}
		data := snapshot(f, m)
		st, err := m.RestoreState(data)
		if err != nil {
			f.Fatal(err)
		}
		if again, err := st.AppendBinary(nil); err != nil || !slices.Equal(again, data) {
			f.Errorf("%s: a state is saved differently from how it came, error %v", s.label, err)
		}
		f.Add(uint8(i), data)
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		s := all[int(which)%len(all)]
		s.o.Heads = sh.h
		m, err := New(s.name, s.o)
		if err != nil {
			t.Fatal(err)
		}
		data = check.SealSnapshot(data)
		var st attention.State
		if n := check.AllocatedBytes(func() { st, err = m.RestoreState(data) }); n > 16<<20+64*int64(len(data)) {
			t.Errorf("%s: a snapshot of %d bytes takes %d bytes of memory", s.label, len(data), n)
		}
		if err != nil {
			return
		}
		again, err := st.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		copied, err := m.RestoreState(again)
		if err != nil {
			t.Fatalf("%s: a saved state is refused: %v", s.label, err)
		}
		// Bytes of data that a state does not need are zeros in again.
		if third, err := copied.AppendBinary(nil); err != nil || !slices.Equal(third, again) {
			t.Errorf("%s: a state is saved differently from how it came, error %v", s.label, err)
		}
		c := callIn(oc)
		if err := st.Step(tensor.NewHeads(sh.b, sh.h, sh.n, sh.dv), c); err == nil && st.Tokens() < int64(sh.n) {
			t.Errorf("%s: %d tokens after %d more", s.label, st.Tokens(), sh.n)
		}
	})
}
