//go:build !float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
)

// Tokens that are all equal leave nothing when their mean is subtracted, to the
// last bit: every key then weighs f(0) = 1, and no gradient comes back.
func TestEqualTokensAreZero(t *testing.T) {
	for _, norm := range []string{"token-centred", "global-centred"} {
		m, err := New("polynomial", Options{Set: map[string]string{"norm": norm}})
		if err != nil {
			t.Fatal(err)
		}
		oc, do := shape{b: 1, h: 2, hkv: 2, n: 7, m: 5, d: 3, dv: 2}.call(52)
		for i := range oc.Q.Data {
			oc.Q.Data[i] = float64(float32(0.1))
			if norm == "token-centred" {
				oc.Q.Data[i] += float64(i % 3)
			}
		}
		for _, form := range []attention.Form{attention.Direct, attention.Linear} {
			c := callIn(oc)
			c.Form = form
			r := both(t, m, c, in(do))
			for i, den := range r.keep.Den {
				if den != 5 {
					t.Fatalf("%s, %v: denominator %d is %v, want 5", norm, form, i, den)
				}
			}
			if check.MaxAbs(r.g.DQ.Data) != 0 {
				t.Errorf("%s, %v: dq is %v", norm, form, r.g.DQ.Data)
			}
		}
	}
}
