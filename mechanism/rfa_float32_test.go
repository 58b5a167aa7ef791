//go:build !float64

package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/mechanism/internal/zoo"
	"github.com/farfield-ml/farfield/rng"
)

// TestSincosIsAccurate allows the rounding of the result, half of a unit, and a tenth of that
// for what comes before it, beside which the smallest sines are measured from 0.
func TestSincosIsAccurate(t *testing.T) {
	x := []float32{0, 1e-30, -1e-5, 0.785, -0.786, 1.5707964, 3.1415927, -3, 7.5, 100.25, -4096.5, 3e5, 1e7, -1e20}
	key := rng.New(8)
	for i := range uint64(1 << 14) {
		x = append(x, float32(math.Exp2(8*key.Normal(i))*(1-2*float64(key.Uint64(i)&1))))
	}
	sin, cos := make([]float32, len(x)), make([]float32, len(x))
	zoo.SinCos(sin, cos, x)
	for i, v := range x {
		s, c := math.Sincos(float64(v))
		for _, y := range [][2]float64{{float64(sin[i]), s}, {float64(cos[i]), c}} {
			if err := math.Abs(y[0] - y[1]); err > 0.55*0x1p-23*math.Max(math.Abs(y[1]), 0x1p-20) {
				t.Errorf("of %v: %v, want %v", v, y[0], y[1])
			}
		}
	}
	in := []float32{float32(math.Inf(1)), float32(math.NaN())}
	if zoo.SinCos(in, in, in); in[0] == in[0] || in[1] == in[1] {
		t.Errorf("of Inf and NaN: %v", in)
	}
}
