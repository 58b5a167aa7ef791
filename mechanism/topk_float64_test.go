//go:build float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

// With as many keys as there are it is softmax.
func TestTopKOfAllIsSoftmax(t *testing.T) {
	oc, do := shape{b: 1, h: 2, hkv: 1, n: 40, m: 40, d: 4, dv: 3, causal: true}.call(141)
	exact, err := New("softmax", Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New("exact-topk", Options{Set: map[string]string{"topk": "40"}})
	if err != nil {
		t.Fatal(err)
	}
	c := callIn(oc)
	got, want := both(t, m, c, do), both(t, exact, c, do)
	for _, x := range []struct{ got, want []float64 }{{got.o.Data, want.o.Data}, {got.g.DQ.Data, want.g.DQ.Data}, {got.g.DK.Data, want.g.DK.Data}, {got.g.DV.Data, want.g.DV.Data}} {
		if e := check.ErrorRatio(x.got, x.want, 1e-13); e > 1 {
			t.Errorf("it is not softmax, by %.3g", 1e-13*e)
		}
	}
}
