//go:build float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/tensor"
)

// Normalised rows do not depend on their scale, so gradients are divided by it, to the rounding
// of sums of N·D products. The squares of rows of 2⁵³² leave the range of float64.
func TestGradientsOfWideNormsScaleWithTheRows(t *testing.T) {
	const scale = 0x1p532
	for _, norm := range wideNorms[:4] {
		m, err := New("polynomial", Options{Set: map[string]string{"norm": norm, "scale": "1"}})
		if err != nil {
			t.Fatal(err)
		}
		oc, do := shape{b: 1, h: 2, hkv: 1, n: 5, m: 6, d: 3, dv: 2}.call(54)
		want := both(t, m, callIn(oc), do).g
		for _, x := range []tensor.Heads{oc.Q, oc.K} {
			for i := range x.Data {
				x.Data[i] *= scale
			}
		}
		got := both(t, m, callIn(oc), do).g
		for name, x := range map[string][2][]float64{"dq": {got.DQ.Data, want.DQ.Data}, "dk": {got.DK.Data, want.DK.Data}} {
			for i := range x[0] {
				x[0][i] *= scale
			}
			if e := check.ErrorRatio(x[0], x[1], 16*0x1p-53*6*3*check.MaxAbs(x[1])); !(e <= 1) {
				t.Errorf("%s: %s is off by %.3g limits", norm, name, e)
			}
		}
	}
}
