//go:build float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/tensor"
)

// Masked tokens take no part in the causal form, in its sums nor in the number of
// keys that divides them: what the authors' causal class ignores.
func TestLunaCausalHeedsMasks(t *testing.T) {
	m, err := New("luna", Options{Width: 4, Set: map[string]string{"form": "causal", "length": "3"}})
	if err != nil {
		t.Fatal(err)
	}
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 1, m: 6, d: 4, dv: 3}.call(99)
	oc.KeyMask = []bool{false, true, true, false, true, false}
	short := *oc
	short.KeyMask = nil
	short.K, short.V = tensor.NewHeads(1, 1, 3, 4), tensor.NewHeads(1, 1, 3, 3)
	for to, j := range []int{1, 2, 4} {
		copy(short.K.Head(0, 0).Row(to), oc.K.Head(0, 0).Row(j))
		copy(short.V.Head(0, 0).Row(to), oc.V.Head(0, 0).Row(j))
	}
	want := forward(t, m, callIn(&short)).o.Data
	if e := check.ErrorRatio(forward(t, m, callIn(oc)).o.Data, want, 1e-14); e > 1 {
		t.Errorf("masked keys take part: off by %g limits", e)
	}
}
