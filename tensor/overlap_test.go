package tensor_test

import (
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/tensor"
)

// places returns the elements of x by their place, and whether one has two of them.
func places(x tensor.Heads, base int) (map[int]bool, bool) {
	seen, twice := map[int]bool{}, false
	for b := range x.B {
		for h := range x.H {
			for n := range x.N {
				for d := range x.D {
					at := base + b*x.SB + h*x.SH + n*x.SN + d
					twice = twice || seen[at]
					seen[at] = true
				}
			}
		}
	}
	return seen, twice
}

// The obvious reference marks every element of both views.
func TestOverlapsAgreesWithMarkedElements(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]tensor.Float, 4000)
	view := func() (tensor.Heads, int) {
		for {
			x := tensor.Heads{B: r.IntN(4), H: r.IntN(4), N: r.IntN(6), D: r.IntN(5)}
			x.SB, x.SH, x.SN = r.IntN(40), r.IntN(40), r.IntN(40)
			if r.IntN(2) == 0 { // as programs lay them out
				x.D = 1 + r.IntN(4)
				width := x.D * (1 + r.IntN(8))
				x.SH, x.SN, x.SB = x.D*(1+r.IntN(2)), width, width*x.N
			}
			base := r.IntN(60)
			x.Data = data[base:]
			if x.Check("x") == nil {
				return x, base
			}
		}
	}
	overlap, apart, twice := 0, 0, 0
	for range 60000 {
		x, at := view()
		y, other := view()
		a, same := places(x, at)
		b, _ := places(y, other)
		want := false
		for i := range b {
			want = want || a[i]
		}
		if want {
			overlap++
		} else if len(a) > 0 && len(b) > 0 {
			apart++
		}
		if same {
			twice++
		}
		if got := x.Overlaps(y); got != want || y.Overlaps(x) != want {
			x.Data, y.Data = nil, nil
			t.Fatalf("%+v at %d and %+v at %d: overlap is %v, needs to be %v", x, at, y, other, got, want)
		}
		if got := x.OverlapsItself(); got != same {
			x.Data = nil
			t.Fatalf("%+v: overlaps itself is %v, needs to be %v", x, got, same)
		}
	}
	t.Logf("%d views overlap, %d do not, %d overlap themselves", overlap, apart, twice)
	if min(overlap, apart, twice) < 1000 {
		t.Errorf("too few cases of a kind")
	}
}

// A check of every call must not cost memory, nor time by the number of tokens.
func TestOverlapsOfAProjectionDoesNotAllocate(t *testing.T) {
	const n, heads, d = 1 << 10, 8, 16
	data := make([]tensor.Float, n*3*heads*d)
	q := tensor.Split(data, 1, n, 3*heads*d, 0, heads, d)
	k := tensor.Split(data, 1, n, 3*heads*d, heads*d, heads, d)
	if q.Overlaps(k) || !q.Overlaps(q) || q.OverlapsItself() {
		t.Error("q and k of one projection interleave, and do not overlap")
	}
	if a := testing.AllocsPerRun(10, func() {
		if q.Overlaps(k) {
			t.Error("q overlaps k")
		}
	}); a != 0 {
		t.Errorf("%v allocations, needs none", a)
	}
}
