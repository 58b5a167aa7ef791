package mechanism

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
)

// absorbed returns a state of tokens i0 ≤ i < i1 of c.
func absorbed(t *testing.T, m attention.Mechanism, c *attention.Call, i0, i1 int) attention.State {
	t.Helper()
	st := newState(t, m)
	if err := st.Absorb(piece(c, i0, i1)); err != nil {
		t.Fatal(err)
	}
	return st
}

func bytesOf(t *testing.T, st attention.State) []byte {
	t.Helper()
	b, err := st.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func merge(t *testing.T, st, next attention.State) {
	t.Helper()
	if err := st.Merge(next); err != nil {
		t.Fatal(err)
	}
}

func merged(t *testing.T, s subject) {
	if s.book.Forget != nil {
		return // mergedFading, since queries do not all stand behind the last key
	}
	if s.places != "" {
		mergedPlaces(t, s) // queries have places, and do not all stand behind the last key
		return
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, masked := range []bool{false, true} {
		sh := streamed
		sh.mask, sh.causal = masked, false
		oc, _ := sh.call(30)
		m, book := build(t, s, sh.h)
		book.read()
		c := callIn(oc)
		want, v := book.Forward(oc), check.MaxAbs(oc.V.Data)
		l := limits(s, m, &attention.Call{Q: c.Q, K: c.K, V: c.V, Chunk: 4, Form: attention.Step})
		whole := output(c)
		if err := absorbed(t, m, c, 0, sh.m).Read(whole, c); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			x, y := r.IntN(sh.m+1), r.IntN(sh.m+1)
			x, y = min(x, y), max(x, y)
			// (a‖b)‖c and a‖(b‖c).
			left, tail := absorbed(t, m, c, 0, x), absorbed(t, m, c, y, sh.m)
			right, middle := left.Clone(), absorbed(t, m, c, x, y)
			merge(t, left, middle)
			merge(t, left, tail)
			merge(t, middle, tail)
			merge(t, right, middle)
			for name, st := range map[string]attention.State{"(a‖b)‖c": left, "a‖(b‖c)": right} {
				if st.Tokens() != int64(sh.m) {
					t.Errorf("%s has %d tokens, want %d", name, st.Tokens(), sh.m)
				}
				o := output(c)
				if err := st.Read(o, c); err != nil {
					t.Fatal(err)
				}
				if s.book.Exp && !sameHeads(o, whole) {
					t.Errorf("masked %t: %s cut at %d and %d has other bits than one stream", masked, name, x, y)
				}
				for i, cond := range want.Cond {
					ref := want.O.Data[i*sh.dv:][:sh.dv]
					if e := check.ErrorRatio(o.Data[i*sh.dv:][:sh.dv], ref, l.Output(cond, want.Factor[i]*v+check.MaxAbs(ref))); e > 1 {
						t.Fatalf("masked %t: %s cut at %d and %d: row %d is off by %.3g limits", masked, name, x, y, i, e)
					}
				}
				// It is a state like any other: saved, restored and fed, it goes on.
				back, err := m.RestoreState(bytesOf(t, st))
				if err != nil {
					t.Fatal(err)
				}
				more, again := output(c), output(c)
				step(t, st, more, c, 0, sh.n, 5)
				step(t, back, again, c, 0, sh.n, 1)
				if !sameHeads(more, again) || !bytes.Equal(bytesOf(t, st), bytesOf(t, back)) {
					t.Errorf("masked %t: %s cut at %d and %d goes on differently once restored", masked, name, x, y)
				}
			}
		}
	}
}

// mergedFading is merged where keys lose weight, which queries after the states
// see.
func mergedFading(t *testing.T, s subject) {
	const last = 5
	for i, sh := range streams(s) {
		if sh.decay == 0 {
			continue
		}
		oc, _ := sh.call(uint64(32 + i))
		m, book := build(t, s, sh.h)
		c := callIn(oc)
		want, v := book.Forward(oc), check.MaxAbs(oc.V.Data)
		l := limits(s, m, &attention.Call{Q: c.Q, K: c.K, V: c.V, Chunk: 4, Form: attention.Step})
		for _, carry := range []attention.Carry{attention.Rounded, attention.Compensated} {
			for _, cuts := range [][2]int{{0, 3}, {4, 4}, {1, 8}, {6, 10}, {7, 13}, {9, sh.n - last}} {
				state := func(i0, i1 int) attention.State {
					st := carrying(t, m, carry)
					if err := st.Absorb(piece(c, i0, i1)); err != nil {
						t.Fatal(err)
					}
					return st
				}
				x, y := cuts[0], cuts[1]
				left, right, middle, tail := state(0, x), state(0, x), state(x, y), state(y, sh.n-last)
				merge(t, left, middle)
				merge(t, left, tail)
				merge(t, middle, tail)
				merge(t, right, middle)
				for name, st := range map[string]attention.State{"(a‖b)‖c": left, "a‖(b‖c)": right} {
					o := output(c)
					step(t, st, o, c, sh.n-last, sh.n, 2)
					for i, cond := range want.Cond {
						if i%sh.n < sh.n-last {
							continue
						}
						ref := want.O.Data[i*sh.dv:][:sh.dv]
						if e := check.ErrorRatio(o.Data[i*sh.dv:][:sh.dv], ref, l.Output(cond, want.Factor[i]*v+check.MaxAbs(ref))); e > 1 {
							t.Fatalf("%s: %s cut at %d and %d, %v: row %d is off by %.3g limits", sh.name, name, x, y, carry, i, e)
						}
					}
				}
			}
		}
	}
}

func mergedNothing(t *testing.T, s subject) {
	oc, _ := streamed.call(31)
	m, _ := build(t, s, streamed.h)
	c := callIn(oc)
	for _, n := range []int{0, 3, 4, 9, 23} {
		st := absorbed(t, m, c, 0, n)
		before := bytesOf(t, st)
		merge(t, st, newState(t, m))
		if !bytes.Equal(bytesOf(t, st), before) {
			t.Errorf("an empty state merged behind %d tokens changes them", n)
		}
		empty := newState(t, m)
		merge(t, empty, st)
		if !bytes.Equal(bytesOf(t, empty), before) {
			t.Errorf("%d tokens merged into an empty state are not the same", n)
		}
		if !bytes.Equal(bytesOf(t, st), before) {
			t.Errorf("merging changes the state that follows")
		}
		merge(t, st, st)
		if st.Tokens() != int64(2*n) {
			t.Errorf("a state of %d tokens merged with itself has %d", n, st.Tokens())
		}
	}
}

func TestOnlyLikeStatesMerge(t *testing.T) {
	m, err := New("fastmax", Options{})
	if err != nil {
		t.Fatal(err)
	}
	shape := attention.Shape{B: 2, H: 4, Hkv: 2, D: 3, Dv: 4, Chunk: 4}
	state := func(m attention.Mechanism, change func(s *attention.Shape)) attention.State {
		s := shape
		change(&s)
		st, err := m.NewState(s)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	other := func(name string, o Options) attention.Mechanism {
		m, err := New(name, o)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	same := func(*attention.Shape) {}
	for _, x := range []struct {
		want string
		next attention.State
	}{
		{"mechanism is \"linear\", needs \"fastmax\"", state(other("linear", Options{}), same)},
		{"setting is \"fastmax order=3", state(other("fastmax", Options{Order: 3}), same)},
		{"B is 1, needs 2", state(m, func(s *attention.Shape) { s.B = 1 })},
		{"H is 2, needs 4", state(m, func(s *attention.Shape) { s.H = 2 })},
		{"Hkv is 4, needs 2", state(m, func(s *attention.Shape) { s.Hkv = 4 })},
		{"D is 5, needs 3", state(m, func(s *attention.Shape) { s.D = 5 })},
		{"Dv is 5, needs 4", state(m, func(s *attention.Shape) { s.Dv = 5 })},
		{"chunk is 8, needs 4", state(m, func(s *attention.Shape) { s.Chunk = 8 })},
		{"carry is compensated, needs rounded", state(m, func(s *attention.Shape) { s.Carry = attention.Compensated })},
		{"not mergeable", state(other("softmax", Options{}), same)},
		{"not mergeable", nil},
	} {
		st := state(m, same)
		err := st.Merge(x.next)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error %v, want one that says %q", err, x.want)
		}
		if errors.Is(err, attention.ErrNotMergeable) != (x.want == "not mergeable") {
			t.Errorf("error %v is ErrNotMergeable or is not", err)
		}
	}
}

// mergedPlaces is merged for mechanisms in which visibility depends on positions: queries
// after the merged states see the same keys as in one stream. They have its bits, or are the
// textbook where sums of states are rounded.
func mergedPlaces(t *testing.T, s subject) {
	const last = 5
	for _, masked := range []bool{false, true} {
		sh := streamed
		sh.mask = masked
		oc, _ := sh.call(34)
		m, book := build(t, s, sh.h)
		c := callIn(oc)
		textbook, v, l := book.Forward(oc), check.MaxAbs(oc.V.Data), limits(s, m, c)
		want := output(c)
		step(t, newState(t, m), want, c, 0, sh.n, 3)
		for _, cuts := range [][2]int{{0, 3}, {4, 4}, {1, 8}, {6, 10}, {7, 13}, {9, sh.n - last}} {
			state := func(i0, i1 int) attention.State {
				st := newState(t, m)
				if err := st.Absorb(piece(c, i0, i1)); err != nil {
					t.Fatal(err)
				}
				return st
			}
			x, y := cuts[0], cuts[1]
			left, right, middle, tail := state(0, x), state(0, x), state(x, y), state(y, sh.n-last)
			merge(t, left, middle)
			merge(t, left, tail)
			merge(t, middle, tail)
			merge(t, right, middle)
			back, err := m.RestoreState(bytesOf(t, right))
			if err != nil {
				t.Fatal(err)
			}
			for name, st := range map[string]attention.State{"(a‖b)‖c": left, "a‖(b‖c)": right, "restored": back} {
				o := output(c)
				step(t, st, o, c, sh.n-last, sh.n, 2)
				if s.rounds {
					for i, cond := range textbook.Cond {
						ref := textbook.O.Data[i*sh.dv:][:sh.dv]
						if e := check.ErrorRatio(o.Data[i*sh.dv:][:sh.dv], ref, l.Output(cond, v+check.MaxAbs(ref))); i%sh.n >= sh.n-last && e > 1 {
							t.Fatalf("masked %t: %s cut at %d and %d: row %d is off by %.3g limits", masked, name, x, y, i, e)
						}
					}
				} else if !sameHeads(o.Tokens(sh.n-last, sh.n), want.Tokens(sh.n-last, sh.n)) {
					t.Errorf("masked %t: %s cut at %d and %d has other bits than one stream", masked, name, x, y)
				}
			}
		}
	}
}
