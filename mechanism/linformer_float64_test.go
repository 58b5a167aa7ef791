//go:build float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/tensor"
)

// With projections that pool stretches of keys, one whose keys are all masked is
// no key: the values of the others are averaged over what is left.
func TestLinformerLeavesOutWhatNoKeyReaches(t *testing.T) {
	sh := shape{b: 1, h: 1, hkv: 1, n: 3, m: 8, d: 3, dv: 2}
	oc, _ := sh.call(91)
	oc.KeyMask = []bool{true, true, true, true, false, false, true, true}
	for i := range oc.V.Data {
		oc.V.Data[i] = 1
	}
	for columns, want := range map[string]float64{"reached": 1, "all": 0} {
		m, err := New("linformer", Options{Length: 8, Set: map[string]string{"rank": "4", "columns": columns}})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range m.Params().All() {
			clear(p.Data)
			for j := range 8 {
				p.Data[j*4+j/2] = 0.5
			}
		}
		o := tensor.NewHeads(1, 1, 3, 2)
		if err := m.Forward(o, callIn(oc), nil); err != nil {
			t.Fatal(err)
		}
		for _, x := range o.Data {
			if off := x - 1; want == 1 && check.MaxAbs([]float64{off}) > 1e-12 || want == 0 && x > 0.999 {
				t.Errorf("columns=%s: values of 1 give %v", columns, x)
			}
		}
	}
}
