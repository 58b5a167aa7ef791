//go:build float64

package headwise

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/tensor"
)

func TestWeightedCausalGradientsAreDerivatives(t *testing.T) {
	const n = sumChunk + 3
	r := rand.New(rand.NewPCG(9, 9))
	q, k, v, do := calltest.Normal(r, 1, 2, n, 3), calltest.Normal(r, 1, 1, n, 3), calltest.Normal(r, 1, 1, n, 2), calltest.Normal(r, 1, 2, n, 2)
	w := make([]float64, n)
	for i := range w {
		w[i] = r.NormFloat64()
	}
	w[1] = 0
	out := tensor.NewHeads(1, 2, n, 2)
	loss := func() (sum float64) {
		if err := WeightedCausal(out, w, q, k, v); err != nil {
			t.Fatal(err)
		}
		for i, y := range out.Data {
			sum += y * do.Data[i]
		}
		return sum
	}
	dq, dk, dv := calltest.Poisoned(1, 2, n, 3), calltest.Poisoned(1, 1, n, 3), calltest.Poisoned(1, 1, n, 2)
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
	c := &attention.Call{Q: calltest.Normal(r, 1, 2, n, d), K: calltest.Normal(r, 1, 1, n, d), V: calltest.Normal(r, 1, 1, n, dv), Causal: true}
	for _, x := range [][]float64{c.Q.Data, c.K.Data} {
		for i := range x {
			x[i] = math.Exp(x[i])
		}
	}
	e, err := factorised.New(attention.Spec{Name: "product", Scale: 1, Coef: []float64{0, 1}, Positive: true})
	if err != nil {
		t.Fatal(err)
	}
	want, _ := calltest.Forward(t, e, c, attention.Direct)
	num, den := tensor.NewHeads(1, 2, n, dv), tensor.NewHeads(1, 2, n, 1)
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
