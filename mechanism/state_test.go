package mechanism

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/tensor"
)

// streamed is the sequence that states are fed with.
var streamed = shape{b: 2, h: 4, hkv: 2, n: 23, m: 23, d: 3, dv: 4, causal: true, theta: 50}

// streams are variants of it, with a mask or not, and where the subject takes it
// with decay or not.
func streams(s subject) []shape {
	var list []shape
	for _, decay := range []float64{0, 1} {
		for _, masked := range []bool{false, true} {
			sh := streamed
			sh.name, sh.mask, sh.decay = fmt.Sprintf("masked %t, decay %v", masked, decay), masked, decay
			if s.fit(sh).decay == decay {
				list = append(list, sh)
			}
		}
	}
	return list
}

func newState(t *testing.T, m attention.Mechanism) attention.State {
	t.Helper()
	return carrying(t, m, attention.Rounded)
}

func carrying(t *testing.T, m attention.Mechanism, carry attention.Carry) attention.State {
	t.Helper()
	st, err := m.NewState(attention.Shape{B: streamed.b, H: streamed.h, Hkv: streamed.hkv, D: streamed.d, Dv: streamed.dv, Chunk: 4, Carry: carry})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// piece is tokens i0 ≤ i < i1 of a call.
func piece(c *attention.Call, i0, i1 int) *attention.Call {
	p := &attention.Call{Q: c.Q.Tokens(i0, i1), K: c.K.Tokens(i0, i1), V: c.V.Tokens(i0, i1)}
	if c.Rope != nil {
		p.Rope = c.Rope.Slice(i0)
	}
	if c.KeyMask != nil {
		for b := range c.K.B {
			p.KeyMask = append(p.KeyMask, c.KeyMask[b*c.K.N+i0:b*c.K.N+i1]...)
		}
	}
	if c.LogG.D > 0 {
		p.LogG = c.LogG.Tokens(i0, i1)
	}
	return p
}

// step feeds tokens i0 ≤ i < i1 in pieces of the given sizes, round and round.
func step(t *testing.T, st attention.State, o tensor.Heads, c *attention.Call, i0, i1 int, sizes ...int) {
	t.Helper()
	for at := 0; i0 < i1; at++ {
		n := min(sizes[at%len(sizes)], i1-i0)
		if err := st.Step(o.Tokens(i0, i0+n), piece(c, i0, i0+n)); err != nil {
			t.Fatal(err)
		}
		i0 += n
	}
}

func output(c *attention.Call) tensor.Heads {
	return poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D)
}

func pieces(t *testing.T, s subject) {
	for _, sh := range streams(s) {
		oc, _ := sh.call(20)
		m, book := build(t, s, sh.h)
		c := callIn(oc)
		one := output(c)
		step(t, newState(t, m), one, c, 0, sh.n, 1)
		for _, sizes := range [][]int{{sh.n}, {2, 3}, {4}, {5, 1, 7}} {
			o := output(c)
			st := newState(t, m)
			step(t, st, o, c, 0, sh.n, sizes...)
			if !sameHeads(one, o) {
				t.Errorf("%s: steps of %v differ from steps of 1", sh.name, sizes)
			}
			if st.Tokens() != int64(sh.n) {
				t.Errorf("%s: steps of %v: %d tokens, want %d", sh.name, sizes, st.Tokens(), sh.n)
			}
		}
		// Absorbing and reading is stepping without the outputs between.
		for _, sizes := range [][]int{{1}, {3, 8}, {sh.n}} {
			st := newState(t, m)
			for at, i := 0, 0; i < sh.n; at++ {
				n := min(sizes[at%len(sizes)], sh.n-i)
				if err := st.Absorb(piece(c, i, i+n)); err != nil {
					t.Fatal(err)
				}
				i += n
			}
			last := c.Q.Tokens(sh.n-1, sh.n)
			o := poisoned(sh.b, sh.h, 1, sh.dv)
			ask := &attention.Call{Q: last, K: c.K.Tokens(0, 0), V: c.V.Tokens(0, 0), Rope: c.Rope.Slice(sh.n - 1)}
			if err := st.Read(o, ask); err != nil {
				t.Fatal(err)
			}
			if !sameHeads(o, one.Tokens(sh.n-1, sh.n)) {
				t.Errorf("%s: absorbing in %v and reading differs from stepping", sh.name, sizes)
			}
		}
		// And it is the causal form.
		want, v := book.Forward(oc), check.MaxAbs(oc.V.Data)
		l := limits(s, m, &attention.Call{Q: c.Q, K: c.K, V: c.V, Chunk: 4, Form: attention.Step})
		for i, cond := range want.Cond {
			ref := want.O.Data[i*sh.dv:][:sh.dv]
			if e := check.ErrorRatio(one.Data[i*sh.dv:][:sh.dv], ref, l.Output(cond, want.Factor[i]*v+check.MaxAbs(ref))); e > 1 {
				t.Errorf("%s: row %d is off by %.3g limits", sh.name, i, e)
			}
		}
	}
}

// nanMasked puts NaN and Inf at masked keys of unmasked, causal and decaying calls.
func nanMasked(t *testing.T, s subject, f form) {
	for _, x := range []shape{{}, {causal: true}, {causal: true, decay: 1}} {
		x.b, x.h, x.hkv, x.n, x.m, x.d, x.dv, x.mask = 2, 2, 1, 13, 13, 3, 4, true
		if !x.causal {
			x.n = 9
		}
		sh := s.fit(x)
		if sh.causal != x.causal || sh.decay != x.decay || !sh.causal && f.form == attention.Step && !s.stepsUnmasked() {
			continue
		}
		oc, do := sh.call(27)
		m, _ := build(t, s, sh.h)
		c := callIn(oc)
		c.Form, c.Chunk = f.form, f.chunk
		before := compute(t, m, c, in(do))
		for b := range sh.b {
			for j := range sh.m {
				if c.KeyMask[b*sh.m+j] {
					continue
				}
				for i := range sh.d {
					c.K.Head(b, 0).Row(j)[i] = float(math.NaN())
				}
				for i := range sh.dv {
					c.V.Head(b, 0).Row(j)[i] = float(math.Inf(1 - 2*(j%2)))
				}
			}
		}
		after := compute(t, m, c, in(do))
		if !sameHeads(before.o, after.o) {
			t.Errorf("causal %t, decay %v: NaN or Inf at a masked key changes the output", sh.causal, sh.decay)
		}
		if !sameHeads(before.g.DQ, after.g.DQ) || !sameHeads(before.g.DK, after.g.DK) || !sameHeads(before.g.DV, after.g.DV) ||
			!sameHeads(before.g.DLogG, after.g.DLogG) || !same(before.tau, after.tau) {
			t.Errorf("causal %t, decay %v: NaN or Inf at a masked key changes gradients", sh.causal, sh.decay)
		}
	}
}

func nanState(t *testing.T, s subject) {
	if !s.causal() {
		return
	}
	sh := streamed
	sh.mask = true
	oc, _ := sh.call(21)
	m, _ := build(t, s, sh.h)
	c := callIn(oc)
	clean, dirty := output(c), output(c)
	step(t, newState(t, m), clean, c, 0, sh.n, 3)
	for b := range sh.b {
		for j := range sh.n {
			if c.KeyMask[b*sh.n+j] {
				continue
			}
			for h := range sh.hkv {
				c.K.Head(b, h).Row(j)[1] = float(math.NaN())
				c.V.Head(b, h).Row(j)[0] = float(math.Inf(-1))
			}
		}
	}
	step(t, newState(t, m), dirty, c, 0, sh.n, 3)
	if !sameHeads(clean, dirty) {
		t.Error("NaN or Inf at a masked token changes outputs")
	}
}

func restored(t *testing.T, s subject) {
	for _, sh := range streams(s) {
		restoredStream(t, s, sh)
	}
}

func restoredStream(t *testing.T, s subject, sh shape) {
	oc, _ := sh.call(22)
	m, _ := build(t, s, sh.h)
	c := callIn(oc)
	whole := output(c)
	step(t, newState(t, m), whole, c, 0, sh.n, 1)
	for _, at := range []int{0, 1, 4, 10, 22} {
		o, cloned := output(c), output(c)
		st := newState(t, m)
		step(t, st, o, c, 0, at, 3)
		clone := st.Clone()
		data, err := st.AppendBinary([]byte("kept"))
		if err != nil {
			t.Fatal(err)
		}
		if string(data[:4]) != "kept" {
			t.Fatal("AppendBinary overwrote what was there")
		}
		back, err := m.RestoreState(data[4:])
		if err != nil {
			t.Fatal(err)
		}
		if back.Tokens() != int64(at) || clone.Tokens() != int64(at) {
			t.Errorf("%s: after %d tokens: restored has %d, cloned %d", sh.name, at, back.Tokens(), clone.Tokens())
		}
		step(t, back, o, c, at, sh.n, 2)
		if !sameHeads(o, whole) {
			t.Errorf("%s: restored after %d tokens, it goes on differently", sh.name, at)
		}
		// The first state moves on; the clone must not notice.
		step(t, st, output(c), c, at, sh.n, 1)
		step(t, clone, cloned, c, at, sh.n, 5)
		if !sameHeads(cloned.Tokens(at, sh.n), whole.Tokens(at, sh.n)) {
			t.Errorf("%s: cloned after %d tokens, it goes on differently", sh.name, at)
		}
		st.Reset()
		again := output(c)
		step(t, st, again, c, 0, sh.n, 4)
		if !sameHeads(again, whole) {
			t.Errorf("%s: a state that was reset differs from a fresh one", sh.name)
		}
	}
}

func stateSize(t *testing.T, s subject) {
	oc, _ := streamed.call(23)
	m, _ := build(t, s, streamed.h)
	c := callIn(oc)
	st := newState(t, m)
	step(t, st, output(c), c, 0, 8, 1)
	before := st.Bytes()
	for range 5 {
		step(t, st, output(c), c, 0, streamed.n, 5)
	}
	if grown := st.Bytes() > before; grown == m.Traits().Streaming {
		t.Errorf("%d bytes, then %d; streaming is %t", before, st.Bytes(), m.Traits().Streaming)
	}
}

func emptyState(t *testing.T, s subject) {
	oc, _ := streamed.call(24)
	m, _ := build(t, s, streamed.h)
	c := callIn(oc)
	o := output(c)
	if err := newState(t, m).Read(o, &attention.Call{Q: c.Q, K: c.K.Tokens(0, 0), V: c.V.Tokens(0, 0)}); err != nil {
		t.Fatal(err)
	}
	if !sameHeads(o, tensor.NewHeads(o.B, o.H, o.N, o.D)) {
		t.Error("a query of an empty state is not zero")
	}
}

// causalReaders are all causal subjects, by their labels, once one test has made them.
var causalReaders struct {
	sync.Mutex
	of map[string]attention.Mechanism
}

// readers returns causalReaders.of.
func readers(t *testing.T) map[string]attention.Mechanism {
	t.Helper()
	causalReaders.Lock()
	defer causalReaders.Unlock()
	if causalReaders.of == nil {
		of := map[string]attention.Mechanism{}
		for _, s := range subjects() {
			if s.causal() {
				of[s.label], _ = build(t, s, streamed.h)
			}
		}
		causalReaders.of = of
	}
	return causalReaders.of
}

func foreign(t *testing.T, s subject) {
	oc, _ := streamed.call(25)
	m, _ := build(t, s, streamed.h)
	st := newState(t, m)
	c := callIn(oc)
	step(t, st, output(c), c, 0, 9, 1)
	data, err := st.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	for label, o := range readers(t) {
		if _, err := o.RestoreState(data); (err == nil) != (label == s.label) {
			t.Errorf("%s reads it: %v", label, err)
		}
	}
	other := slices.Clone(data)
	other[8] ^= 4 ^ 8 // bytes of an element
	if _, err := m.RestoreState(check.SealSnapshot(other)); err == nil || !strings.Contains(err.Error(), "elements have") {
		t.Errorf("a state of another precision is read: %v", err)
	}
	for n := range len(data) {
		if n > 200 && n < len(data)-8 && n%97 != 0 {
			continue
		}
		if _, err := m.RestoreState(data[:n]); err == nil {
			t.Errorf("a state cut to %d of %d bytes is read", n, len(data))
			break
		}
	}
	if _, err := m.RestoreState(append(data[:len(data):len(data)], 0)); err == nil {
		t.Error("a state with a byte more is read")
	}
}

// Values around 1 make sums that grow with the tokens. Rounding errors of random tokens
// cancel each other. Rounding errors of one repeated token have one sign, and only the
// rigorous bound holds: one rounding for every feature, token of a chunk and chunk.
func longExempt(s subject, t attention.Traits) string {
	switch {
	case !t.Linear:
		return noLinear(s, t)
	case !t.Causal:
		return notCausal(s, t)
	case s.book.Forget != nil:
		return "what its sums hold does not grow with the stream"
	case len(s.book.Coef) > 4:
		return "features of degrees above 3 are too many to be quick"
	}
	return ""
}

func longStream(t *testing.T, s subject) {
	n := 4096
	if suite.IsLong() {
		n = 65536
	}
	sh := s.fit(shape{b: 1, h: 1, hkv: 1, n: 3, m: n, d: 8, dv: 4})
	oc, _ := sh.call(26)
	for i, v := range oc.V.Data {
		oc.V.Data[i] = float64(float32(1 + v/4))
	}
	t.Run(fmt.Sprintf("random %d", n), func(t *testing.T) {
		stream(t, s, oc, func(p attention.Plan) float64 {
			return 8 + math.Sqrt(float64(p.F)) + math.Sqrt(float64(p.Chunk))
		})
	})
	for j := 1; j < n; j++ {
		copy(oc.K.Head(0, 0).Row(j), oc.K.Head(0, 0).Row(0))
		copy(oc.V.Head(0, 0).Row(j), oc.V.Head(0, 0).Row(0))
	}
	t.Run(fmt.Sprintf("repeated %d", n), func(t *testing.T) {
		stream(t, s, oc, func(p attention.Plan) float64 { return float64(p.F + p.Chunk + n/p.Chunk) })
	})
}

// stream holds the forms that sum features against the textbook, within
// roundings(plan) · condf · max|v|.
func stream(t *testing.T, s subject, oc *oracle.Call, roundings func(attention.Plan) float64) {
	m, book := build(t, s, 1)
	c := callIn(oc)
	want, v := book.Forward(oc), check.MaxAbs(oc.V.Data)
	for _, f := range []attention.Form{attention.Linear, attention.Step} {
		c.Form = attention.Linear
		plan := m.Plan(c.Shape())
		c.Form = f
		got, dv := output(c), oc.V.D
		if f == attention.Step {
			book.read()
			want = book.Forward(oc)
			st, err := m.NewState(c.Shape())
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Absorb(c); err != nil {
				t.Fatal(err)
			}
			if err := st.Read(got, c); err != nil {
				t.Fatal(err)
			}
		} else {
			got = forward(t, m, c).o
		}
		var worst float64
		for i, cond := range want.Cond {
			limit := roundings(plan) * check.UnitRoundoff[float32]() * cond * v * want.Factor[i]
			worst = max(worst, check.ErrorRatio(got.Data[i*dv:][:dv], want.O.Data[i*dv:][:dv], limit))
		}
		t.Logf("%v: the largest error is %.3f limits", f, worst)
		if worst > 1 {
			t.Errorf("%v: off by %.3g limits", f, worst)
		}
	}
}
