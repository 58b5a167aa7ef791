package headwise

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// weightedCausal is definition 2 as it is written, with the sum of the sizes of
// its terms.
func weightedCausal(w []float64, q, k, v tensor.Heads[float64]) (out, size tensor.Heads[float64]) {
	out, size = tensor.NewHeads[float64](q.B, q.H, q.N, v.D), tensor.NewHeads[float64](q.B, q.H, q.N, v.D)
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
		causalSumAgainst[float32](t, w, q, k, v)
		causalSumAgainst[float64](t, w, q, k, v)
	}
}

func causalSumAgainst[T tensor.Float](t *testing.T, w []float64, q, k, v tensor.Heads[float64]) {
	t.Helper()
	var wt []T
	for _, x := range w {
		wt = append(wt, T(x))
	}
	for i, x := range wt { // what is computed with
		w[i] = float64(x)
	}
	want, size := weightedCausal(w, q, k, v)
	out := calltest.Poisoned[T](q.B, q.H, q.N, v.D)
	if err := WeightedCausal(out, wt, calltest.Convert[T](q), calltest.Convert[T](k), calltest.Convert[T](v)); err != nil {
		t.Fatal(err)
	}
	l := check.LinearLimits[T](q.D, sumChunk)
	for i, x := range out.Data {
		if ratio := check.ErrorRatio([]T{x}, want.Data[i:][:1], l.Sum(q.N, size.Data[i])+1e-300); ratio > 1 {
			t.Fatalf("element %d is %v, want %v: %.3g of the limit", i, x, want.Data[i], ratio)
		}
	}
}

func TestWeightedCausalGradientsAreDerivatives(t *testing.T) {
	const n = sumChunk + 3
	r := rand.New(rand.NewPCG(9, 9))
	q, k, v, do := calltest.Normal(r, 1, 2, n, 3), calltest.Normal(r, 1, 1, n, 3), calltest.Normal(r, 1, 1, n, 2), calltest.Normal(r, 1, 2, n, 2)
	w := make([]float64, n)
	for i := range w {
		w[i] = r.NormFloat64()
	}
	w[1] = 0
	out := tensor.NewHeads[float64](1, 2, n, 2)
	loss := func() (sum float64) {
		if err := WeightedCausal(out, w, q, k, v); err != nil {
			t.Fatal(err)
		}
		for i, y := range out.Data {
			sum += y * do.Data[i]
		}
		return sum
	}
	dq, dk, dv := calltest.Poisoned[float64](1, 2, n, 3), calltest.Poisoned[float64](1, 1, n, 3), calltest.Poisoned[float64](1, 1, n, 2)
	dw := make([]float64, n)
	if err := WeightedCausalGrad(dw, dq, dk, dv, do, w, q, k, v); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name      string
		at, grads []float64
	}{{"dw", w, dw}, {"dq", q.Data, dq.Data}, {"dk", k.Data, dk.Data}, {"dv", v.Data, dv.Data}} {
		want := check.NumericGradient(loss, x.at)
		if ratio := check.ErrorRatio(x.grads, want, 1e-8*(1+check.MaxAbs(want))); ratio > 1 {
			t.Errorf("%s differs from finite differences by %.3g limits", x.name, ratio)
		}
	}
}

// With φ of queries and keys, w = 1 and 1/i are the causal quotient: the same
// as the mechanism whose weights are products of rows.
func TestWeightedCausalIsLinearAttention(t *testing.T) {
	const n, d, dv = 90, 4, 3
	r := rand.New(rand.NewPCG(10, 10))
	c := &attention.Call[float64]{Q: calltest.Normal(r, 1, 2, n, d), K: calltest.Normal(r, 1, 1, n, d), V: calltest.Normal(r, 1, 1, n, dv), Causal: true}
	for _, x := range [][]float64{c.Q.Data, c.K.Data} {
		for i := range x {
			x[i] = math.Exp(x[i])
		}
	}
	e, err := factorised.New(attention.Spec[float64]{Name: "product", Scale: 1, Coef: []float64{0, 1}, Positive: true})
	if err != nil {
		t.Fatal(err)
	}
	want, _ := calltest.Forward(t, e, c, attention.Direct)
	num, den := tensor.NewHeads[float64](1, 2, n, dv), tensor.NewHeads[float64](1, 2, n, 1)
	ones := tensor.HeadsOf(slices.Repeat([]float64{1}, n), 1, 1, n, 1)
	if err := WeightedCausal(num, nil, c.Q, c.K, c.V); err != nil {
		t.Fatal(err)
	}
	if err := WeightedCausal(den, nil, c.Q, c.K, ones); err != nil {
		t.Fatal(err)
	}
	for i, x := range num.Data {
		if got := x / den.Data[i/dv]; math.Abs(got-want.Data[i]) > 1e-12 {
			t.Fatalf("element %d is %v, want %v", i, got, want.Data[i])
		}
	}
}

func TestWeightedCausalBits(t *testing.T) {
	defer par.SetThreads(0)
	const n = 3 * sumChunk
	r := rand.New(rand.NewPCG(11, 11))
	q, k, v := calltest.Convert[float32](calltest.Normal(r, 4, 4, n, 32)), calltest.Convert[float32](calltest.Normal(r, 4, 2, n, 32)), calltest.Convert[float32](calltest.Normal(r, 4, 2, n, 32))
	run := func(threads int) [][]float32 {
		par.SetThreads(threads)
		out, dq, dk, dv := calltest.Poisoned[float32](4, 4, n, 32), calltest.Poisoned[float32](4, 4, n, 32), calltest.Poisoned[float32](4, 2, n, 32), calltest.Poisoned[float32](4, 2, n, 32)
		dw := make([]float32, n)
		if err := WeightedCausal(out, nil, q, k, v); err != nil {
			t.Fatal(err)
		}
		if err := WeightedCausalGrad(dw, dq, dk, dv, out, nil, q, k, v); err != nil {
			t.Fatal(err)
		}
		return [][]float32{out.Data, dq.Data, dk.Data, dv.Data, dw}
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
	q, k, v := tensor.NewHeads[float32](1, 2, 3, 4), tensor.NewHeads[float32](1, 1, 3, 4), tensor.NewHeads[float32](1, 1, 3, 2)
	out := tensor.NewHeads[float32](1, 2, 3, 2)
	for want, err := range map[string]error{
		"k: N is 2, q has 3":                        WeightedCausal(out, nil, q, k.Tokens(0, 2), v.Tokens(0, 2)),
		"w: has 2 elements, N is 3":                 WeightedCausal(out, make([]float32, 2), q, k, v),
		"out: shape is [1,1,3,2], needs [1,2,3,2]":  WeightedCausal(v, nil, q, k, v),
		"dw: has 1 elements, N is 3":                WeightedCausalGrad(make([]float32, 1), q, k, v, out, nil, q, k, v),
		"dk: shape is [1,2,3,4], needs [1,1,3,4]":   WeightedCausalGrad(nil, q, q, v, out, nil, q, k, v),
		"k: 3 heads do not divide the 2 heads of q": WeightedCausal(out, nil, q, tensor.NewHeads[float32](1, 3, 3, 4), tensor.NewHeads[float32](1, 3, 3, 2)),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
