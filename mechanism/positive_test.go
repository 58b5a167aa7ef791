package mechanism

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/rng"
)

func rationals(c ...float64) []*big.Rat {
	var list []*big.Rat
	for _, x := range c {
		list = append(list, new(big.Rat).SetFloat64(x))
	}
	return list
}

func TestNonNegativeDecidesKnownPolynomials(t *testing.T) {
	t.Parallel()
	inf := math.Inf(1)
	for _, c := range []struct {
		coef  []float64
		limit float64
		want  bool
	}{
		{[]float64{1, 1, 0.5}, inf, true},
		{[]float64{1, 1}, inf, false},
		{[]float64{1, 1}, 1, true}, // 0 at the end
		{[]float64{1, 1}, math.Nextafter(1, 2), false},
		{[]float64{0, 0, 1}, inf, true}, // a double root
		{[]float64{0, 0, 0, 1}, inf, false},
		{[]float64{0, 0, 0, 0, 1}, inf, true},
		{[]float64{1, 2, 1}, inf, true}, // (1+s)²
		{[]float64{1, 3, 3, 1}, inf, false},
		{[]float64{1, 3, 3, 1}, 1, true}, // (1+s)³, its root at the end
		{[]float64{0, 1}, 0, true},
		{[]float64{-1, 0, 1}, inf, false},
		{[]float64{-1, 0, 1}, 0.5, false}, // negative throughout
		{[]float64{1, 0, -1}, 1, true},
		{[]float64{1, 0, -1}, inf, false},
		{[]float64{0.25, 0, -1, 0, 1}, inf, true}, // (s²-½)²
		{[]float64{0.2499, 0, -1, 0, 1}, inf, false},
		{[]float64{-0.25, 0.25, 1, -1, 0, 0}, 0.4, false}, // trailing zeros
		{taylorCoefs(3), 1.5960716, true},                 // its root is -1.59607164
		{taylorCoefs(3), 1.5960717, false},
		{taylorCoefs(4), inf, true},
		{taylorCoefs(7), inf, false},
		{taylorCoefs(32), inf, true},
		{taylorCoefs(33), inf, false},
		{[]float64{2, -1, 0, 0.25}, 1, true},
	} {
		if got := newSignTest(rationals(c.coef...)).isNonNegative(c.limit); got != c.want {
			t.Errorf("%v within %v: %t", c.coef, c.limit, got)
		}
	}
}

// Products of random factors, whose roots are known: no sign changes where none
// has an odd number of equals within.
func TestNonNegativeCountsRootsOfOddMultiplicity(t *testing.T) {
	k := rng.New(5)
	for n := range uint64(200) {
		k := k.Fold(n)
		f := poly{big.NewRat(1, 3)}
		odd := map[int]bool{}
		for i := range uint64(1 + k.Intn(0, 6)) {
			root := k.Intn(1+i, 9) - 4
			odd[root] = !odd[root]
			f = multiplyPoly(f, poly{big.NewRat(int64(-root), 1), big.NewRat(1, 1)})
		}
		f = multiplyPoly(f, poly{big.NewRat(2, 1), big.NewRat(1, 1), big.NewRat(1, 1)}) // no root
		limit := 0.5 + float64(k.Intn(20, 5))
		want := evalExact(f, new(big.Rat).SetFloat64(limit)).Sign() > 0
		for root, is := range odd {
			if is && math.Abs(float64(root)) < limit {
				want = false
			}
		}
		if got := newSignTest(f).isNonNegative(limit); got != want {
			t.Errorf("%v within %v: %t", f, limit, got)
		}
	}
}

func TestPolynomialTraitsFollowTheirSign(t *testing.T) {
	for _, c := range []struct {
		set   map[string]string
		width int
		want  bool
	}{
		{nil, 0, true},
		{map[string]string{"coef": "1,1"}, 0, false},
		{map[string]string{"coef": "1,1", "norm": "unit"}, 0, true},
		{map[string]string{"coef": "1,1", "norm": "bounded", "scale": "1"}, 0, true},
		{map[string]string{"coef": "1,1", "norm": "bounded", "scale": "1.5"}, 0, false},
		{map[string]string{"coef": "1,1", "norm": "unit", "tau": "1"}, 0, false},
		{map[string]string{"coef": "1,0.25", "norm": "standard"}, 0, false},
		{map[string]string{"coef": "1,0.25", "norm": "standard"}, 16, true},
		{map[string]string{"coef": "1,0.25", "norm": "standard"}, 17, false},
		{map[string]string{"coef": "0.01,0.2,1"}, 0, true}, // as written: (0.1+s)²
		{map[string]string{"coef": "1/9,2/3,1"}, 0, true},
		{map[string]string{"coef": "0,0,1"}, 0, true},
	} {
		m, err := New("polynomial", Options{Set: c.set, Width: c.width})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Traits().Positive; got != c.want {
			t.Errorf("%v of width %d: positive is %t", c.set, c.width, got)
		}
	}
}

// Of a kernel that is never negative, whatever the scores, dropout leaves rows without weights
// at most.
func TestDropoutOfNonNegativePolynomialsCancelsNothing(t *testing.T) {
	m, err := New("polynomial", Options{Width: 16, Set: map[string]string{"norm": "standard", "scale": "3", "coef": "0,0,1,1,1"}})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(10) {
		oc, _ := shape{b: 1, h: 1, hkv: 1, n: 40, m: 40, d: 16, dv: 1, causal: true}.call(430 + seed)
		c := callIn(oc)
		c.Drop = &attention.Drop{Kind: attention.TokenDrop, Rate: 0.3, Key: rng.New(seed)}
		for _, c.Form = range []attention.Form{attention.Direct, attention.Linear} {
			var want int64
			r := forwardAny(t, m, c)
			for _, den := range r.Den {
				if den == 0 {
					want++
				}
			}
			if r.WeakCount != want {
				t.Errorf("seed %d, %v: %d weak rows, %d without weights", seed, c.Form, r.WeakCount, want)
			}
		}
	}
}

// The coefficients of exp as short fractions and as decimals of 17 digits have a small common
// denominator, long fractions have none.
func TestLongFractionsAreRefused(t *testing.T) {
	for name, x := range map[string]struct {
		count int
		text  func(l int) string
		want  bool
	}{
		"short fractions": {29, func(l int) string { return "1/" + new(big.Int).MulRange(1, int64(l)).String() }, true},
		"decimals":        {29, func(l int) string { return fmt.Sprintf("%.16e", taylorCoefs(33)[l]) }, true},
		"long fractions":  {34, func(l int) string { return fmt.Sprintf("%d/%d", int64(1e15)+int64(l), int64(1e15)+int64(2*l+1)) }, false},
		"a few of them":   {5, func(l int) string { return fmt.Sprintf("%d/%d", int64(1e15)+int64(l), int64(1e15)+int64(2*l+1)) }, true},
	} {
		list := make([]string, x.count)
		for l := range list {
			list[l] = x.text(l)
		}
		o := Options{Set: map[string]string{"coef": strings.Join(list, ",")}}
		row := polynomial
		if _, err := newReader(&row, &o).coefficients(); (err == nil) != x.want || err != nil && !strings.Contains(err.Error(), "at most 271 bits") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// All layers of a model have the same polynomial: its sign is found once.
func TestSignOfAPolynomialIsFoundOnce(t *testing.T) {
	list := make([]string, 30)
	for l := range list {
		list[l] = fmt.Sprintf("%d/1099511627776", 1000003+7919*l*l)
	}
	build := func(coef string) {
		if _, err := New("polynomial", Options{Set: map[string]string{"coef": coef}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(1, func() { build(strings.Join(list, ",")) }); n > 5000 {
		t.Errorf("%v allocations for a polynomial whose sign is known", n)
	}
	for i := range 2 * maxCachedSigns {
		build(fmt.Sprintf("%d,1", i+2))
	}
	knownSigns.mu.Lock()
	defer knownSigns.mu.Unlock()
	if n := len(knownSigns.signs); n > maxCachedSigns {
		t.Errorf("the signs of %d polynomials are kept", n)
	}
}

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
		if !same(r.o.Head(0, 1).Row(3), make([]float, 3)) {
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
	copy(c.Q.Data, []float{1, -1})
	for j := range 3 {
		copy(c.K.Data[2*j:], []float{-2, 2})
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
	copy(c.Q.Data, []float{1, 0, 4, 0, -100, 0})
	copy(c.K.Data, []float{-1.5, 0, 1, 0}) // sums of weights: 2 - q/2 = 1.5, 0, 52
	if r := forwardAny(t, m, c); r.WeakCount != 1 || r.WeakAt != [3]int{0, 0, 1} {
		t.Errorf("%d weak rows, the first %v; want one, query 1", r.WeakCount, r.WeakAt)
	}
}
