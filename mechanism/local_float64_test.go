//go:build float64

package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
)

// LongNet's program fills the last segment with keys of zeros that attend, and
// has no gradient through what mixes its branches. Here rows sum to one and
// gradients are exact, but for form=code.
func TestLongNetHasNoKeysOfZeros(t *testing.T) {
	for _, form := range []string{"paper", "code"} {
		m := mechanismOf(t, "longnet", 4, "segments", "4,16", "ratios", "1,2", "form", form)
		sh := shape{b: 1, h: 4, hkv: 4, n: 10, m: 10, d: 4, dv: 2, causal: true}
		oc, do := sh.call(91)
		for i := range oc.V.Data {
			oc.V.Data[i] = 1
		}
		c := callIn(oc)
		r := both(t, m, c, do)
		for i, x := range r.o.Data {
			if math.Abs(x-1) > 1e-14 {
				t.Fatalf("form=%s: output %d of values 1 is %v", form, i, x)
			}
		}
		// All outputs are 1 whatever the scores, so their gradients are 0.
		if most := max(check.MaxAbs(r.g.DQ.Data), check.MaxAbs(r.g.DK.Data)); most > 1e-13 {
			t.Errorf("form=%s: the gradient of outputs that do not change is %v", form, most)
		}
	}
	// Values that differ between branches show the weights of the mixture.
	sh := shape{b: 1, h: 2, hkv: 2, n: 10, m: 10, d: 4, dv: 2}
	oc, do := sh.call(92)
	loss := func(m attention.Mechanism) float64 {
		sum := 0.0
		for i, x := range forward(t, m, callIn(oc)).o.Data {
			sum += x * do.Data[i]
		}
		return sum
	}
	apart := map[string]float64{}
	for _, form := range []string{"paper", "code"} {
		m := mechanismOf(t, "longnet", 2, "segments", "4,16", "ratios", "1,2", "form", form)
		r := both(t, m, callIn(oc), do)
		want := check.NumericGradient(func() float64 { return loss(m) }, oc.Q.Data)
		apart[form] = check.ErrorRatio(r.g.DQ.Data, want, 1e-6)
	}
	if apart["paper"] > 1 || apart["code"] < 1000 {
		t.Errorf("off finite differences by %v limits", apart)
	}
}
