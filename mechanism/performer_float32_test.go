//go:build !float64

package mechanism

import (
	"math"
	"testing"
)

// Rows of any width, and of some times the usual length, give numbers: features
// never overflow, and wide rows do not vanish.
func TestPerformerStaysWithinRange(t *testing.T) {
	t.Parallel()
	for _, d := range []int{64, 128, 256} {
		for _, size := range []float32{1e-3, 1, 2} {
			sh := shape{b: 1, h: 1, hkv: 1, n: 5, m: 5, d: d, dv: 2, causal: true}
			oc, do := sh.call(uint64(62 + d))
			c := callIn(oc)
			for i := range c.K.Data {
				c.K.Data[i] *= size
				c.Q.Data[i] *= size
			}
			m, err := New("performer", Options{Width: d})
			if err != nil {
				t.Fatal(err)
			}
			r := both(t, m, c, in(do))
			for _, x := range [][]float32{r.o.Data, r.keep.Den, r.g.DQ.Data, r.g.DK.Data, r.g.DV.Data} {
				for _, y := range x {
					if math.IsNaN(float64(y)) || math.IsInf(float64(y), 0) {
						t.Fatalf("D = %d, rows times %v: a number is %v", d, size, y)
					}
				}
			}
			if r.keep.WeakCount > 0 {
				t.Errorf("D = %d, rows times %v: %d queries weigh nothing", d, size, r.keep.WeakCount)
			}
		}
	}
}

// The factor exp(|k|²/2) of trigonometric features is bounded: keys and queries of many times the usual
// length give numbers.
func TestTrigonometricFeaturesStayWithinRange(t *testing.T) {
	for _, set := range []map[string]string{{"kernel": "trigonometric"}, {"kernel": "trigonometric", "eps": "1e-3"}} {
		for _, size := range []float32{1e-3, 1, 100} {
			sh := shape{b: 1, h: 1, hkv: 1, n: 40, m: 40, d: 64, dv: 2, causal: true}
			oc, do := sh.call(67)
			c := callIn(oc)
			for i := range c.K.Data {
				c.K.Data[i] *= size
				c.Q.Data[i] *= size
			}
			m, err := New("performer", Options{Width: sh.d, Set: set})
			if err != nil {
				t.Fatal(err)
			}
			r := both(t, m, c, in(do))
			for _, x := range [][]float32{r.o.Data, r.keep.Den, r.g.DQ.Data, r.g.DK.Data, r.g.DV.Data} {
				for _, y := range x {
					if y-y != 0 {
						t.Fatalf("%v, rows times %v: a number is %v", set, size, y)
					}
				}
			}
		}
	}
}
