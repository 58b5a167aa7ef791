package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Mixtures take no memory of their own.
func TestLinformerDoesNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	for _, columns := range []string{"reached", "all"} {
		doNotAllocate(t, "linformer", map[string]string{"rank": "8", "columns": columns})
	}
}

// What does not fit the projections is refused, with both numbers.
func TestLinformerRefusesCallsThatDoNotFit(t *testing.T) {
	oc, _ := shape{b: 1, h: 2, hkv: 2, n: 3, m: 9, d: 3, dv: 2}.call(92)
	c := callIn(oc)
	for _, x := range []struct {
		o      Options
		causal bool
		want   string
	}{
		{Options{Length: 8}, false, "k: a sequence has 9 tokens, E has rows for 8"},
		{Options{Length: 9, Heads: 3, Set: map[string]string{"share": "none"}}, false, "E: has 3 heads, q has 2"},
		{Options{Length: 9}, true, "causal: linformer has no causal form: its projections mix all tokens of a sequence, later ones too"},
	} {
		m, err := New("linformer", x.o)
		if err != nil {
			t.Fatal(err)
		}
		c.Causal = x.causal
		if err := m.Forward(tensor.NewHeads(1, 2, 3, 2), c, nil); err == nil || err.Error() != x.want {
			t.Errorf("error %v, want %s", err, x.want)
		}
	}
}

// With projections that pool stretches of keys, one whose keys are all masked is
// no key: the values of the others are averaged over what is left.
func TestLinformerLeavesOutWhatNoKeyReaches(t *testing.T) {
	sh := shape{b: 1, h: 1, hkv: 1, n: 3, m: 8, d: 3, dv: 2}
	oc, _ := sh.call(91)
	oc.KeyMask = []bool{true, true, true, true, false, false, true, true}
	for i := range oc.V.Data {
		oc.V.Data[i] = 1
	}
	// Sums of two halves, and of weights of three keys that exist.
	limit := wholeLimits(nil, callIn(oc)).Output(1, 2)
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
			if off := math.Abs(float64(x) - 1); want == 1 && off > limit || want == 0 && x > 0.999 {
				t.Errorf("columns=%s: values of 1 give %v", columns, x)
			}
		}
	}
}
