package mechanism

import (
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
