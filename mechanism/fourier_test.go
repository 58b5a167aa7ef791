package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// Rows of A sum to one at any width, where the programs' eps outweighs them from
// D = 32 on.
func TestFourierDoesNotVanish(t *testing.T) {
	for _, d := range []int{8, 32, 64, 128} {
		oc, _ := shape{b: 1, h: 1, hkv: 1, n: 20, m: 200, d: d, dv: 1}.call(93)
		c := callIn(oc)
		for i := range c.V.Data {
			c.V.Data[i] = 1
		}
		for eps, vanishes := range map[string]bool{"0": false, "1e-6": d >= 64} {
			m, err := New("fourier", Options{Set: map[string]string{"eps": eps}})
			if err != nil {
				t.Fatal(err)
			}
			o := tensor.NewHeads(1, 1, 20, 1)
			if err := m.Forward(o, c, nil); err != nil {
				t.Fatal(err)
			}
			for i, x := range o.Data {
				if off := math.Abs(float64(x) - 1); eps == "0" && off > 1e-6 || vanishes && x > 1e-3 {
					t.Errorf("D=%d, eps=%s: row %d sums to %v", d, eps, i, x)
				}
			}
		}
	}
}

func TestFourierPlansTheVisiblePairs(t *testing.T) {
	m, err := New("fourier", Options{})
	if err != nil {
		t.Fatal(err)
	}
	flops := func(n, keys int, causal bool) float64 {
		return m.Plan(attention.Shape{B: 1, H: 1, Hkv: 1, N: n, M: keys, D: 4, Dv: 4, Causal: causal}).FLOPs
	}
	for _, x := range [][2]int{{1, 1000}, {7, 7}, {3, 8}, {8, 3}, {0, 5}} {
		pairs := 0
		for i := range x[0] {
			pairs += max(i+x[1]-x[0]+1, 0)
		}
		if got, want := flops(x[0], x[1], true), float64(pairs)*flops(1, 1, false); got != want {
			t.Errorf("N = %d, M = %d: %g operations, want %g", x[0], x[1], got, want)
		}
	}
}

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
	g := both(t, m, callIn(oc), in(do)).g
	if x := g.DQ.Head(0, 0).Row(0)[0]; x != 0 {
		t.Errorf("dq is %v where all keys have the query's channel", x)
	}
}
