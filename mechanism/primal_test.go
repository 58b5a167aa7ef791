package mechanism

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// matricesOf divides x into heads matrices with rows of cols numbers.
func matricesOf(x []float64, heads, cols int) (list [][][]float64) {
	rows := rowsOf(x, cols)
	for h := range heads {
		n := len(rows) / heads
		list = append(list, rows[h*n:][:n])
	}
	return list
}

// primalBook is the textbook of primal.
func primalBook(p numbers, rank, tokens int) *oracle.Primal {
	heads := len(p["Lambda"]) / rank
	return &oracle.Primal{
		We: matricesOf(p["We"], heads, rank), Wr: matricesOf(p["Wr"], heads, rank),
		Wc: rowsOf(p["Wc"], 2*rank), Bias: p["Wc_bias"], Lambda: rowsOf(p["Lambda"], rank), Tokens: tokens,
	}
}

// primalSubjects returns subjects of primal, for rows of up to 8 channels.
func primalSubjects() (list []subject) {
	for _, x := range []struct {
		label        string
		rank, tokens int
		set          map[string]string
	}{
		{"primal rank=3", 3, 0, map[string]string{"rank": "3"}},
		{"primal rank=9 eta=0", 9, 0, map[string]string{"rank": "9", "eta": "0"}},
		{"primal rank=2 data=dependent tokens=4", 2, 4, map[string]string{"rank": "2", "data": "dependent", "tokens": "4"}},
	} {
		list = append(list, subject{
			label: x.label, name: "primal", o: Options{Width: 8, Set: x.set},
			whole:   func(numbers) oracle.HeadMatrix { return nil },
			outputs: func(p numbers) oracle.Outputs { return primalBook(p, x.rank, x.tokens).Outputs },
			places:  "the key at a query's place counts, or means over tokens do",
		})
	}
	return list
}

// In the authors' program rows of padding enter the loss. Here the loss equals the loss of
// the shorter input, to the bit.
func TestPaddingIsInNoLossOfPrimal(t *testing.T) {
	for _, set := range []map[string]string{{}, {"loss": "code"}, {"data": "dependent", "tokens": "3"}} {
		for _, causal := range []bool{false, true} {
			if causal && set["data"] != "" {
				continue
			}
			oc, _ := shape{b: 1, h: 1, hkv: 1, n: 9, m: 9, d: 8, dv: 8, causal: causal, lens: []int64{6}}.call(91)
			m, err := New("primal", Options{Width: 8, Set: set})
			if err != nil {
				t.Fatal(err)
			}
			long := callIn(oc)
			short := *long
			short.KeyLens, short.Q, short.K, short.V = nil, long.Q.Tokens(0, 6), long.K.Tokens(0, 6), long.V.Tokens(0, 6)
			var a, b attention.Saved
			if err := errors.Join(m.Forward(output(long), long, &a), m.Forward(output(&short), &short, &b)); err != nil {
				t.Fatal(err)
			}
			if a.Aux != b.Aux || a.Aux == 0 {
				t.Errorf("%v, causal %t: the loss is %v with padding, %v without", set, causal, a.Aux, b.Aux)
			}
		}
	}
}

// A state of means has the bits of any pieces, goes on behind keys alone, and is
// not changed by Read.
func TestPrimalStateDoesNotDependOnPieces(t *testing.T) {
	m, err := New("primal", Options{Width: 8, Heads: 4})
	if err != nil {
		t.Fatal(err)
	}
	sh := streamed
	sh.mask = true
	oc, _ := sh.call(92)
	c := callIn(oc)
	for b := range sh.b {
		c.KeyMask[b*sh.n] = b > 0 // a query before the first key
		for j := 7; j < 10; j++ {
			c.KeyMask[b*sh.n+j] = false // queries before the first key of a part
		}
	}
	if sh.h != 4 {
		m, err = New("primal", Options{Width: 8, Heads: sh.h})
		if err != nil {
			t.Fatal(err)
		}
	}
	one, other := output(c), output(c)
	step(t, newState(t, m), one, c, 0, sh.n, 1)
	for _, sizes := range [][]int{{sh.n}, {2, 3}, {5, 1, 7}} {
		if step(t, newState(t, m), other, c, 0, sh.n, sizes...); !sameHeads(one, other) {
			t.Errorf("steps of %v have other bits than steps of 1", sizes)
		}
	}
	half := newState(t, m)
	step(t, half, output(c), c, 0, 7, 3)
	before := bytesOf(t, half)
	ask := &attention.Call{Q: c.Q.Tokens(7, 8), K: c.K.Tokens(0, 0), V: c.V.Tokens(0, 0)}
	if err := half.Read(poisoned(sh.b, sh.h, 1, sh.dv), ask); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, bytesOf(t, half)) {
		t.Error("Read changes the state")
	}
	// One part behind the other: sums of both. Parts begin with masked tokens, whose queries
	// count behind a key.
	part := func(i0, i1 int) attention.State {
		st := newState(t, m)
		step(t, st, output(c), c, i0, i1, 2)
		back, err := m.RestoreState(bytesOf(t, st))
		if err != nil {
			t.Fatal(err)
		}
		return back
	}
	left, right, middle := part(0, 1), part(0, 1), part(1, 7)
	merge(t, left, middle)
	merge(t, left, part(7, sh.n-1))
	merge(t, middle, part(7, 9))
	merge(t, middle, part(9, sh.n-1))
	merge(t, right, middle)
	merge(t, half, part(7, sh.n-1))
	for name, st := range map[string]attention.State{"a‖b": half, "(a‖b)‖c": left, "a‖(b‖c)": right} {
		step(t, st, other, c, sh.n-1, sh.n, 1)
		for b := range sh.b {
			for h := range sh.h {
				for i, x := range other.Head(b, h).Row(sh.n - 1) {
					limit := check.HeadMatrixLimits[float32](2 * 20) // of as many products
					if want := one.Head(b, h).Row(sh.n - 1)[i]; math.Abs(float64(x-want)) > limit.Output(1, 1+math.Abs(float64(want))) {
						t.Errorf("%s answers %v, want %v", name, x, want)
					}
				}
			}
		}
	}
	st := half.Clone()
	merge(t, st, newState(t, m))
	empty := newState(t, m)
	merge(t, empty, half)
	for _, st := range []attention.State{st, empty} {
		if !bytes.Equal(bytesOf(t, st), bytesOf(t, half)) {
			t.Error("merging nothing changes the state")
		}
	}
}

func TestPrimalRefusesCallsThatDoNotFit(t *testing.T) {
	for _, set := range []map[string]string{
		{"rank": "0"}, {"data": "some"}, {"tokens": "0"}, {"eta": "-1"}, {"square": "no"}, {"loss": "mean"}, {"trace": "none"}, {"rank": "4096", "data": "dependent"},
	} {
		if _, err := New("primal", Options{Width: 8, Set: set}); err == nil {
			t.Errorf("%v is taken", set)
		}
	}
	_, err := New("primal", Options{Width: 1 << 13, Set: map[string]string{"rank": "2048"}})
	if err == nil || !strings.Contains(err.Error(), "Wc of shape [8192 4096] has 33554432 elements") {
		t.Errorf("error %v, want one of Wc", err)
	}
	m, err := New("primal", Options{Width: 4, Set: map[string]string{"data": "dependent"}})
	if err != nil {
		t.Fatal(err)
	}
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 3, m: 3, d: 4, dv: 4, causal: true}.call(93)
	c := callIn(oc)
	if err := m.Forward(output(c), c, nil); err == nil || !strings.Contains(err.Error(), "made of tokens of the whole sequence") {
		t.Errorf("a causal call with data=dependent: %v", err)
	}
	c.Causal = false
	if err := m.Weights(tensor.NewMat(3, 3), c, 0, 0, 0, 3); err == nil || !strings.Contains(err.Error(), "no attention matrix") {
		t.Errorf("rows of A: %v", err)
	}
	if _, err := m.Diagnose(c); err == nil || !strings.Contains(err.Error(), "no attention matrix") {
		t.Errorf("a diagnosis: %v", err)
	}
	for _, sh := range []shape{{b: 1, h: 1, hkv: 1, n: 3, m: 3, d: 5, dv: 4}, {b: 1, h: 1, hkv: 1, n: 3, m: 3, d: 4, dv: 5}, {b: 1, h: 2, hkv: 1, n: 3, m: 3, d: 4, dv: 4}} {
		wide, err := New("primal", Options{Width: 4, Heads: 3})
		if err != nil {
			t.Fatal(err)
		}
		oc, _ := sh.call(94)
		c := callIn(oc)
		if err := wide.Forward(output(c), c, nil); err == nil {
			t.Errorf("D = %d, Dv = %d, %d heads are taken", sh.d, sh.dv, sh.h)
		}
	}
}
