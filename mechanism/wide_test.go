package mechanism

import (
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// wideNorms are the normalisations over all tokens.
var wideNorms = []string{"max", "token-centred", "channel-centred", "global-centred", "max-squared"}

func TestNormsOverAllTokensAreNotCausal(t *testing.T) {
	for _, norm := range wideNorms {
		m, err := New("polynomial", Options{Set: map[string]string{"norm": norm}})
		if err != nil {
			t.Fatal(err)
		}
		if tr := m.Traits(); tr.Causal || tr.Streaming || !tr.Linear {
			t.Errorf("%s: traits %+v", norm, tr)
		}
		why := ": polynomial with norm " + norm + " is not causal: its statistics are taken over all tokens, later ones too"
		oc, _ := shape{b: 1, h: 1, hkv: 1, n: 3, m: 3, d: 2, dv: 1}.call(50)
		c := callIn(oc)
		o := output(c)
		c.Causal = true
		if err := m.Forward(o, c, nil); err == nil || err.Error() != "causal"+why {
			t.Errorf("%s, causal: %v", norm, err)
		}
		c.Causal, c.Form = false, attention.Step
		if err := m.Forward(o, c, nil); err == nil || !strings.HasSuffix(err.Error(), why) {
			t.Errorf("%s, step by step: %v", norm, err)
		}
		if _, err := m.NewState(c.Shape()); err == nil || err.Error() != "state"+why {
			t.Errorf("%s, state: %v", norm, err)
		}
		if _, err := m.RestoreState(nil); err == nil || err.Error() != "snapshot"+why {
			t.Errorf("%s, snapshot: %v", norm, err)
		}
	}
}

// Small tokens are divided by the least that max-squared divides by, which has
// no gradient.
func TestMaxSquaredHasAFloor(t *testing.T) {
	s := subject{name: "polynomial", o: Options{Set: map[string]string{"norm": "max-squared", "scale": "1"}},
		book: oracle.Mechanism{Norm: oracle.MaxSquared, Scale: 1, Coef: oracle.TaylorCoef(2)}}
	oc, do := shape{b: 1, h: 2, hkv: 1, n: 5, m: 6, d: 3, dv: 2}.call(51)
	for i := range oc.K.Data {
		oc.K.Data[i] /= 32
	}
	m, book := build(t, s, 2)
	want, l := book.Backward(oc, do), check.DirectLimits[float](2)
	cond := check.MaxAbs(book.Forward(oc).Cond)
	r := both(t, m, callIn(oc), in(do))
	for _, x := range []struct {
		got  tensor.Heads
		want oracle.Heads
	}{{r.g.DQ, want.DQ}, {r.g.DK, want.DK}} {
		if e := check.ErrorRatio(x.got.Data, x.want.Data, l.Gradient(cond, check.MaxAbs(x.want.Data))); e > 1 {
			t.Errorf("a gradient is off by %.3g limits", e)
		}
	}
}

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
