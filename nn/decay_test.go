//go:build float64

package nn

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// A gate begins with the fixed factors, and stays finite and 0 or less however
// large its row is.
func TestGatesBeginAsRetention(t *testing.T) {
	const heads = 12
	d := Decay{Gate: Linear{
		W: &param.Param{Shape: []int{heads, 1}, Data: make([]float64, heads)},
		B: &param.Param{Shape: []int{heads}, Data: make([]float64, heads)},
	}}
	fixed := Decay{LogDecays: make([]float64, heads)}
	for h := range heads {
		d.Gate.B.Data[h], fixed.LogDecays[h] = RetentionGate(h), Retention(h)
	}
	x, g, want := tensor.NewMat(3, 1), tensor.NewMat(3, heads), tensor.NewMat(3, heads)
	d.setLogDecay(g, x, nil)
	fixed.setLogDecay(want, x, nil)
	for h, got := range g.Row(2) {
		if w := want.Row(2)[h]; math.Abs(got-w) > 1e-12*math.Abs(w) || math.Abs(math.Exp(w)-(1-math.Exp2(-5-float64(h)))) > 1e-15 {
			t.Errorf("head %d begins with %v, the fixed one is %v", h, got, w)
		}
	}
	for h := range heads {
		d.Gate.W.Data[h] = 1
	}
	copy(x.Data, []float64{-1e30, 0, 1e30})
	d.setLogDecay(g, x, nil)
	if g.Row(0)[0] != -1e30 || g.Row(2)[0] != 0 {
		t.Errorf("far from 0 a gate gives %v and %v", g.Row(0)[0], g.Row(2)[0])
	}
}
