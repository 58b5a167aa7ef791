//go:build float64

package mechanism

import (
	"testing"
)

// Where query and key are the same in a channel, the score has its top there: no
// gradient comes from it.
func TestFourierIsFlatAtEqualChannels(t *testing.T) {
	oc, do := shape{b: 1, h: 1, hkv: 1, n: 2, m: 3, d: 2, dv: 2}.call(94)
	for j := range 3 {
		oc.K.Head(0, 0).Row(j)[0] = oc.Q.Head(0, 0).Row(0)[0]
	}
	m, err := New("fourier", Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := both(t, m, callIn(oc), do).g
	if x := g.DQ.Head(0, 0).Row(0)[0]; x != 0 {
		t.Errorf("dq is %v where all keys have the query's channel", x)
	}
}
