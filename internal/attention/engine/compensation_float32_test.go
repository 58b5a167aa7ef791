//go:build !float64

package engine

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// A token that repeats itself for ever rounds its sums the same way every time.
// Compensated sums stay at what the chunks themselves lose, half the size of
// features and tokens of a chunk.
func TestRepeatedTokenForEver(t *testing.T) {
	const piece = 64 * 96
	n := 170 * piece // a million
	k, v := tensor.NewHeads(1, 1, piece, 3), tensor.NewHeads(1, 1, piece, 2)
	x, y := []float64{1, 0.1, -0.7, 0.3}, []float64{1.1, -0.3}
	for _, row := range [][]float64{x, y} {
		for i, c := range row {
			row[i] = float64(float32(c))
		}
	}
	for j := range piece {
		for c := range k.D {
			k.Head(0, 0).Row(j)[c] = float32(x[c+1])
		}
		for c := range v.D {
			v.Head(0, 0).Row(j)[c] = float32(y[c])
		}
	}
	chunkLevel := (4 + 96) * 0x1p-24 // a rounding for each factor and token of a chunk
	errs := map[attention.Carry]float64{}
	for _, carry := range []attention.Carry{attention.Rounded, attention.Compensated} {
		_, st := sumsState(t, 3, 2, carry)
		for range n / piece {
			if err := st.Absorb(&attention.Call{K: k, V: v}); err != nil {
				t.Fatal(err)
			}
		}
		errs[carry] = worst(st, x, y, float64(n))
		t.Logf("%d times, %v: the largest relative error of a moment is %.2g", n, carry, errs[carry])
	}
	if !(errs[attention.Compensated] <= chunkLevel) {
		t.Errorf("compensated moments are off by %.2g, a chunk's by %.2g", errs[attention.Compensated], chunkLevel)
	}
	if !(errs[attention.Rounded] >= 2*chunkLevel) {
		t.Errorf("rounded moments are off by %.2g alone: the test shows nothing", errs[attention.Rounded])
	}
}
