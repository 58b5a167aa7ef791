//go:build float64

package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/tensor"
)

// Features of either sign may cancel; such rows are counted. The floor of the authors'
// program bounds such rows instead and shrinks them. Rows of form=paper sum to one.
func TestRFACountsRowsThatCancel(t *testing.T) {
	const d = 2
	c := &attention.Call{Q: tensor.NewHeads(1, 1, 2, d), K: tensor.NewHeads(1, 1, 2, d), V: tensor.NewHeads(1, 1, 2, 1), Causal: true}
	copy(c.Q.Data, []float64{1, 0, 1, 0})
	copy(c.K.Data, []float64{-1, 0, 1, 0})
	copy(c.V.Data, []float64{1, 1})
	for _, x := range []struct {
		form string
		o    [2]float64
		weak int64
	}{
		// Angles of -π and 0 between rows: weights cos(π) = -1, and 1 beside it.
		{"paper", [2]float64{1, math.NaN()}, 2},
		{"code", [2]float64{-0.01, 0}, 0},
		{"code-cross", [2]float64{-0.01, 0}, 0},
		{"code-masked", [2]float64{-1, 0}, 0},
	} {
		m, err := New("rfa", Options{Width: d, Set: map[string]string{"features": "1", "form": x.form}})
		if err != nil {
			t.Fatal(err)
		}
		size := 1.0
		if x.form != "paper" {
			size = 1 + 1e-3 // of rows over their length and that
		}
		copy(m.Constants().All()[0].Data, []float64{math.Pi / 2 * size, 0})
		r := forward(t, m, c)
		for i, want := range x.o {
			if got := r.o.Data[i]; !math.IsNaN(want) && math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: output %d is %v, want %v", x.form, i, got, want)
			}
		}
		if r.keep.WeakCount != x.weak {
			t.Errorf("%s: %d weak rows, want %d", x.form, r.keep.WeakCount, x.weak)
		}
	}
}

// The gradient of a gate covers the key that enters and the sums that it keeps.
func TestGradientsOfGatesAreFiniteDifferences(t *testing.T) {
	for _, s := range randomFeatures() {
		if !s.book.Gated {
			continue
		}
		sh := shape{b: 1, h: 2, hkv: 1, n: 5, m: 5, d: 8, dv: 3, causal: true, decay: 1, mask: true}
		oc, do := sh.call(71)
		m, _ := build(t, s, sh.h)
		for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 2}} {
			c := callIn(oc)
			c.Form, c.Chunk = f.form, f.chunk
			r := both(t, m, c, do)
			want := check.NumericGradient(func() float64 {
				var sum float64
				for i, x := range forward(t, m, c).o.Data {
					sum += x * do.Data[i]
				}
				return sum
			}, c.LogG.Data)
			if e := check.ErrorRatio(r.g.DLogG.Data, want, 1e-6*(1+check.MaxAbs(want))); e > 1 {
				t.Errorf("%s, %v: dlog_g differs from finite differences by %.3g limits", s.label, f, e)
			}
		}
	}
}
