//go:build float64

package engine

import (
	"math"
	"math/big"
	"testing"

	"github.com/farfield-ml/farfield/attention"
)

// Rotations are exact at positions whose angles float64 does not hold.
func TestRopeFarOn(t *testing.T) {
	const d, theta = 8, 10000.0
	r := attention.NewRope(d, theta, far, 3)
	turn := new(big.Float).SetPrec(300)
	if _, _, err := turn.Parse("6.283185307179586476925286766559005768394338798750211641949889184615632812572417997256069650684234136", 10); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		for j := range r.Half {
			freq := new(big.Float).SetPrec(300).SetFloat64(math.Pow(theta, -2*float64(j)/d))
			angle := freq.Mul(freq, new(big.Float).SetInt64(far+int64(i)))
			whole, _ := new(big.Float).SetPrec(300).Quo(angle, turn).Int(nil)
			angle.Sub(angle, new(big.Float).SetPrec(300).Mul(turn, new(big.Float).SetPrec(300).SetInt(whole)))
			x, _ := angle.Float64()
			s, c := math.Sincos(x)
			if got := r.Sin[i*r.Half+j]; !(math.Abs(got-s) <= 1e-14) {
				t.Errorf("position %d, pair %d: sine %v, want %v", far+int64(i), j, got, s)
			}
			if got := r.Cos[i*r.Half+j]; !(math.Abs(got-c) <= 1e-14) {
				t.Errorf("position %d, pair %d: cosine %v, want %v", far+int64(i), j, got, c)
			}
		}
	}
}
