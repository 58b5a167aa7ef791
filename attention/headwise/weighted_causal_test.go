package headwise

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
)

// weightedCausal is definition 2 as it is written, with the sum of the sizes of
// its terms.
func weightedCausal(w []float64, q, k, v oracle.Heads) (out, size oracle.Heads) {
	out, size = oracle.NewHeads(q.B, q.H, q.N, v.D), oracle.NewHeads(q.B, q.H, q.N, v.D)
	for b := range q.B {
		for h := range q.H {
			kh := h / (q.H / k.H)
			for i := range q.N {
				for j := range i + 1 {
					for e, ve := range v.Head(b, kh).Row(j) {
						for c, qc := range q.Head(b, h).Row(i) {
							x := w[i] * qc * k.Head(b, kh).Row(j)[c] * ve
							out.Head(b, h).Row(i)[e] += x
							size.Head(b, h).Row(i)[e] += math.Abs(x)
						}
					}
				}
			}
		}
	}
	return out, size
}

func TestWeightedCausal(t *testing.T) {
	for _, s := range []struct{ b, h, hkv, n, d, dv int }{
		{1, 1, 1, 1, 1, 1}, {2, 4, 2, 7, 3, 5}, {1, 2, 1, sumChunk, 16, 16}, {1, 3, 3, 2*sumChunk + 5, 5, 17}, {1, 1, 1, 0, 3, 2},
	} {
		r := rand.New(rand.NewPCG(8, uint64(s.n)))
		q, k, v := calltest.Normal(r, s.b, s.h, s.n, s.d), calltest.Normal(r, s.b, s.hkv, s.n, s.d), calltest.Normal(r, s.b, s.hkv, s.n, s.dv)
		w := make([]float64, s.n)
		for i := range w {
			w[i] = 1 / float64(i+1)
		}
		if s.n > 1 {
			w[s.n/2] = 0
		}
		causalSumAgainst(t, w, q, k, v)
	}
}

func causalSumAgainst(t *testing.T, w []float64, q, k, v oracle.Heads) {
	t.Helper()
	var wt []float
	for _, x := range w {
		wt = append(wt, float(x))
	}
	for i, x := range wt { // what is computed with
		w[i] = float64(x)
	}
	want, size := weightedCausal(w, q, k, v)
	out := calltest.Poisoned(q.B, q.H, q.N, v.D)
	if err := WeightedCausal(out, wt, calltest.Convert(q), calltest.Convert(k), calltest.Convert(v)); err != nil {
		t.Fatal(err)
	}
	l := check.LinearLimits[float](q.D, sumChunk)
	for i, x := range out.Data {
		if ratio := check.ErrorRatio([]float{x}, want.Data[i:][:1], l.Sum(q.N, size.Data[i])+1e-300); ratio > 1 {
			t.Fatalf("element %d is %v, want %v: %.3g of the limit", i, x, want.Data[i], ratio)
		}
	}
}
