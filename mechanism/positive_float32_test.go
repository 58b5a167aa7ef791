//go:build !float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
)

// A query of zeros weighs every key with f(0) = 0: it is answered 0, passes no
// gradient, and is counted.
func TestAQueryThatWeighsNothingIsZero(t *testing.T) {
	m, err := New("polynomial", Options{Set: map[string]string{"coef": "0,0,1"}})
	if err != nil {
		t.Fatal(err)
	}
	oc, do := shape{b: 1, h: 2, hkv: 1, n: 6, m: 6, d: 4, dv: 3, causal: true}.call(40)
	c := callIn(oc)
	for h := range 2 {
		clear(c.Q.Head(0, h).Row(3))
	}
	for _, f := range []attention.Form{attention.Direct, attention.Linear, attention.Step} {
		c.Form = f
		r := compute(t, m, c, in(do))
		for i, x := range append(r.o.Data, append(r.g.DQ.Data, append(r.g.DK.Data, r.g.DV.Data...)...)...) {
			if x != x {
				t.Fatalf("%v: element %d is NaN", f, i)
			}
		}
		if !same(r.o.Head(0, 1).Row(3), make([]float32, 3)) {
			t.Errorf("%v: a query that weighs nothing gives %v", f, r.o.Head(0, 1).Row(3))
		}
		if f != attention.Step && (r.keep.WeakCount != 2 || r.keep.WeakAt != [3]int{0, 0, 3}) {
			t.Errorf("%v: %d such rows counted, the first %v", f, r.keep.WeakCount, r.keep.WeakAt)
		}
	}
}

// Weights that are never negative may all be 0: the weights of a polynomial that touches 0
// at possible scores. Such a row is counted as ill-conditioned, and no row is counted if
// its scores cannot reach a root.
func TestRowsWithoutWeightsAreCounted(t *testing.T) {
	opposed, _ := shape{b: 1, h: 1, hkv: 1, n: 1, m: 3, d: 2, dv: 1}.call(42)
	c := callIn(opposed)
	copy(c.Q.Data, []float32{1, -1})
	for j := range 3 {
		copy(c.K.Data[2*j:], []float32{-2, 2})
	}
	for _, x := range []struct {
		name string
		o    Options
		want int64
	}{
		{"polynomial", Options{Set: map[string]string{"norm": "unit", "scale": "1", "coef": "1,2,1"}}, 1},
		{"polynomial", Options{Set: map[string]string{"norm": "unit", "scale": "0.5", "coef": "1,2,1"}}, 0},
		{"fastmax", Options{Order: 1, Set: map[string]string{"bounded": "true", "scale": "1"}}, 1},
		{"fastmax", Options{Order: 1, Set: map[string]string{"bounded": "true", "scale": "0.5"}}, 0},
		{"fastmax", Options{Order: 2}, 0},
	} {
		m, err := New(x.name, x.o)
		if err != nil {
			t.Fatal(err)
		}
		for _, c.Form = range []attention.Form{attention.Direct, attention.Linear} {
			if r := forwardAny(t, m, c); r.WeakCount != x.want {
				t.Errorf("%s %v, %v: %d weak rows, want %d; the denominator is %v", x.name, x.o, c.Form, r.WeakCount, x.want, r.Den)
			}
		}
	}
}

func TestRowsThatCancelWithoutNormalisationAreCounted(t *testing.T) {
	m, err := New("polynomial", Options{Set: map[string]string{"coef": "1,1", "scale": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 3, m: 2, d: 2, dv: 1}.call(41)
	c := callIn(oc)
	copy(c.Q.Data, []float32{1, 0, 4, 0, -100, 0})
	copy(c.K.Data, []float32{-1.5, 0, 1, 0}) // sums of weights: 2 - q/2 = 1.5, 0, 52
	if r := forwardAny(t, m, c); r.WeakCount != 1 || r.WeakAt != [3]int{0, 0, 1} {
		t.Errorf("%d weak rows, the first %v; want one, query 1", r.WeakCount, r.WeakAt)
	}
}
