//go:build float64

package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
)

// What is iterated tells how near its end it came, and rows of A sum to one as
// far as it did.
func TestNystromReportsItsResidual(t *testing.T) {
	oc, _ := shape{b: 2, h: 2, hkv: 2, n: 40, m: 40, d: 4, dv: 3}.call(93)
	before := math.Inf(1)
	for _, iterations := range []string{"0", "3", "6", "12", "40"} {
		m := nystromOf(t, "5", iterations)
		r := forward(t, m, callIn(oc))
		if r.keep.Residual >= before {
			t.Errorf("after %s iterations the residual is %g, before it was %g", iterations, r.keep.Residual, before)
		}
		before = r.keep.Residual
		found, err := m.Diagnose(callIn(oc))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range found {
			if off := math.Abs(d.MinDen - 1); off > 30*before+1e-12 {
				t.Errorf("after %s iterations a row sums to %v, the residual is %g", iterations, d.MinDen, before)
			}
		}
	}
	if before > 1e-9 {
		t.Errorf("40 iterations leave a residual of %g", before)
	}
}

// With a landmark for each token it is softmax, whatever the number of tokens.
func TestNystromOfAllTokensIsSoftmax(t *testing.T) {
	for _, n := range []int{1, 7} {
		oc, _ := shape{b: 1, h: 1, hkv: 1, n: n, m: n, d: 4, dv: 3}.call(95)
		want := (&oracle.Mechanism{Exp: true}).Forward(oc)
		got := forward(t, nystromOf(t, "64", "64"), callIn(oc))
		if e := check.ErrorRatio(got.o.Data, want.O.Data, 1e-9); e > 1 {
			t.Errorf("%d tokens: off by %g limits", n, e)
		}
	}
}
