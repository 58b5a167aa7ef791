//go:build !float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
)

// With D = 2 rows normalise to ±(1,-1), so scores are ±2 and for p = 1 weights
// are 3 and -1: three keys of the one sign cancel one of the other.
func TestRowsThatCancelAreCounted(t *testing.T) {
	oc, _ := shape{b: 2, h: 2, hkv: 1, n: 4, m: 4, d: 2, dv: 3}.call(30)
	c := callIn(oc)
	for b := range 2 {
		for j, x := range [][]float32{{2, 0}, {0, 5}, {0, 1}, {-1, 9}} {
			copy(c.K.Head(b, 0).Row(j), x)
		}
		for h := range 2 {
			for i := range 4 {
				copy(c.Q.Head(b, h).Row(i), []float32{0, 3}) // three weights of 3, one of -1
			}
		}
	}
	copy(c.Q.Head(1, 0).Row(2), []float32{3, 0})
	copy(c.Q.Head(1, 1).Row(3), []float32{7, 0})
	for _, form := range []attention.Form{attention.Direct, attention.Linear} {
		for p, want := range map[int]int64{1: 2, 2: 0} {
			m, err := New("fastmax", Options{Order: p})
			if err != nil {
				t.Fatal(err)
			}
			c.Form = form
			r := forwardAny(t, m, c)
			if r.WeakCount != want {
				t.Errorf("p=%d, %v: %d weak rows, want %d", p, form, r.WeakCount, want)
			}
			if at := [3]int{1, 0, 2}; want > 0 && r.WeakAt != at {
				t.Errorf("p=%d, %v: the first weak row is %v, want %v", p, form, r.WeakAt, at)
			}
		}
	}
}
