package mechanism

import (
	"testing"
)

// Samples that are stored belong to tokens of one sequence, and suffice for keys that need
// no more of them.
func TestInformerSamplesServeEachSequence(t *testing.T) {
	stored, err := New("informer", Options{Length: 25, Set: map[string]string{"factor": "1", "sample": "stored"}})
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := New("informer", Options{Set: map[string]string{"factor": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 40, m: 80, d: 4, dv: 3}.call(99)
	c := callIn(oc)
	c.CuQ, c.CuK = []int64{0, 25, 40}, []int64{0, 50, 80}
	if !same(forward(t, stored, c).o.Data, forward(t, drawn, c).o.Data) {
		t.Error("packed sequences have other samples")
	}
	c.CuQ = []int64{0, 26, 40}
	err = stored.Forward(output(c), c, nil)
	if want := "q: a sequence has 26 tokens, informer has samples for 25"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
