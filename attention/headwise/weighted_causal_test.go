package headwise

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
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

func TestWeightedCausalBits(t *testing.T) {
	defer par.SetThreads(0)
	const n = 3 * sumChunk
	r := rand.New(rand.NewPCG(11, 11))
	q, k, v := calltest.Convert(calltest.Normal(r, 4, 4, n, 32)), calltest.Convert(calltest.Normal(r, 4, 2, n, 32)), calltest.Convert(calltest.Normal(r, 4, 2, n, 32))
	run := func(threads int) [][]float {
		par.SetThreads(threads)
		out, dq, dk, dv := calltest.Poisoned(4, 4, n, 32), calltest.Poisoned(4, 4, n, 32), calltest.Poisoned(4, 2, n, 32), calltest.Poisoned(4, 2, n, 32)
		dw := make([]float, n)
		if err := WeightedCausal(out, nil, q, k, v); err != nil {
			t.Fatal(err)
		}
		if err := WeightedCausalGrad(dw, dq, dk, dv, out, nil, q, k, v); err != nil {
			t.Fatal(err)
		}
		return [][]float{out.Data, dq.Data, dk.Data, dv.Data, dw}
	}
	one, two := run(1), run(3)
	for i := range one {
		if !slices.Equal(one[i], two[i]) {
			t.Errorf("result %d depends on the threads", i)
		}
	}
	// The future changes no bit.
	before := slices.Clone(one[0][:(n-1)*32])
	for c := range 32 {
		k.Head(0, 0).Row(n - 1)[c] *= 3
		v.Head(0, 0).Row(n - 1)[c] -= 5
	}
	if after := run(2)[0]; !slices.Equal(before, after[:(n-1)*32]) {
		t.Error("the last token changes an output before it")
	}
}

func TestWeightedCausalRefuses(t *testing.T) {
	q, k, v := tensor.NewHeads(1, 2, 3, 4), tensor.NewHeads(1, 1, 3, 4), tensor.NewHeads(1, 1, 3, 2)
	out := tensor.NewHeads(1, 2, 3, 2)
	for want, err := range map[string]error{
		"k: N is 2, q has 3":                        WeightedCausal(out, nil, q, k.Tokens(0, 2), v.Tokens(0, 2)),
		"w: has 2 elements, N is 3":                 WeightedCausal(out, make([]float, 2), q, k, v),
		"out: shape is [1,1,3,2], needs [1,2,3,2]":  WeightedCausal(v, nil, q, k, v),
		"dw: has 1 elements, N is 3":                WeightedCausalGrad(make([]float, 1), q, k, v, out, nil, q, k, v),
		"dk: shape is [1,2,3,4], needs [1,1,3,4]":   WeightedCausalGrad(nil, q, q, v, out, nil, q, k, v),
		"k: 3 heads do not divide the 2 heads of q": WeightedCausal(out, nil, q, tensor.NewHeads(1, 3, 3, 4), tensor.NewHeads(1, 3, 3, 2)),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
