//go:build float64

package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// The mean of the features' products is exp(q·k/√D).
func TestPerformerApproachesSoftmax(t *testing.T) {
	sh := shape{b: 1, h: 1, hkv: 1, n: 6, m: 12, d: 4, dv: 2}
	oc, _ := sh.call(61)
	c := callIn(oc)
	for i := range c.Q.Data {
		c.Q.Data[i] /= 2 // products vary as the exponential of the rows' lengths
	}
	soft, err := New("softmax", Options{})
	if err != nil {
		t.Fatal(err)
	}
	want, got := tensor.NewMat(sh.n, sh.m), tensor.NewMat(sh.n, sh.m)
	if err := soft.Weights(want, c, 0, 0, 0, sh.n); err != nil {
		t.Fatal(err)
	}
	for _, set := range []map[string]string{
		{"features": "16384"}, {"features": "8192", "kernel": "hyperbolic"}, {"features": "16384", "projection": "iid", "seed": "1"},
		{"features": "16384", "kernel": "trigonometric"},
	} {
		m, err := New("performer", Options{Width: sh.d, Set: set})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Weights(got, c, 0, 0, 0, sh.n); err != nil {
			t.Fatal(err)
		}
		for i, x := range got.Data {
			if math.Abs(x-want.Data[i]) > 0.04 {
				t.Errorf("%v: weight %d is %.3f, softmax has %.3f", set, i, x, want.Data[i])
			}
		}
	}
}

func TestProjectionRowsAreOrthogonal(t *testing.T) {
	const d, rows = 6, 15
	for _, even := range []bool{false, true} {
		w := make([]float64, rows*d)
		drawProjection(w, rows, d, true, even, rng.New(3))
		normal := make([]float64, rows*d)
		drawProjection(normal, rows, d, false, false, rng.New(3))
		for i := range rows {
			length := math.Sqrt(d)
			if !even {
				length = scratch.Norm2(normal[i*d:][:d])
			}
			if got := scratch.Norm2(w[i*d:][:d]); math.Abs(got-length) > 1e-6*length {
				t.Errorf("row %d is %v long, want %v", i, got, length)
			}
			for j := i/d*d + 0; j < i; j++ {
				var along float64
				for c := range d {
					along += w[i*d+c] * w[j*d+c]
				}
				if math.Abs(along) > 1e-5 {
					t.Errorf("rows %d and %d of a block have the product %v", i, j, along)
				}
			}
		}
	}
}
