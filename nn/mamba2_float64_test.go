//go:build float64

package nn

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/tensor"
)

// A channel remembers what its step and decay say: with B = C = 1 and a decay of
// 1 - 2^-k its response to one token falls by that factor.
func TestMamba2Forgets(t *testing.T) {
	m, weights := built(t, subject{"mamba-2", map[string]string{"state": "1", "expand": "1", "conv": "1"}, 1, 1}, 8)
	layer := m.(*mamba2Layer)
	for _, p := range weights {
		clear(p.Data)
	}
	layer.Conv.B.Data[1], layer.Conv.B.Data[2] = 10, 10 // B and C
	layer.In.W.Data[1] = 5                              // x of the token
	layer.Conv.W.Data[0] = 1
	layer.Dt.Data[0] = 0.3
	tr := m.NewTrace().(*mamba2Trace)
	in, y := tensor.NewMat(8, 1), tensor.NewMat(8, 1)
	in.Data[0] = 1
	if err := m.Forward(y, y, in, Scope{B: 1, Causal: true}, tr, false); err != nil {
		t.Fatal(err)
	}
	factor := math.Exp(-math.Log1p(math.Exp(0.3)))
	for i := 1; i < 8; i++ {
		if got := tr.o[i] / tr.o[i-1]; math.Abs(got-factor) > 1e-12 {
			t.Errorf("token %d: %v of the one before, want %v", i, got, factor)
		}
	}
}
