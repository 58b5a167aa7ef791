//go:build float64

package engine

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/check"
)

// Gradients of a similarity that is no polynomial, by central differences.
func TestSimilarityGradientsAreDerivatives(t *testing.T) {
	softplus := similarityOf(
		func(x float64) float64 { return math.Log1p(math.Exp(x)) },
		func(x float64) float64 { return 1 / (1 + math.Exp(-x)) })
	e := mustNew(t, attention.Spec{Name: "softplus", Similarity: softplus, Positive: true})
	c := calltest.NewCall(calltest.Problems()["causal rope"])
	do := calltest.Normal(rand.New(rand.NewPCG(3, 4)), c.Q.B, c.Q.H, c.Q.N, c.V.D)
	out, keep := calltest.Forward(t, e, c, attention.Auto)
	g, _ := calltest.Backward(t, e, c, do, out, keep)
	loss := func() (sum float64) {
		if err := e.Forward(out, c, nil); err != nil {
			t.Fatal(err)
		}
		for i, o := range out.Data {
			sum += o * do.Data[i]
		}
		return sum
	}
	for _, x := range []struct {
		name      string
		at, grads []float64
	}{{"dq", c.Q.Data, g.DQ.Data}, {"dk", c.K.Data, g.DK.Data}, {"dv", c.V.Data, g.DV.Data}} {
		want := check.NumericGradient(loss, x.at)
		if ratio := check.ErrorRatio(x.grads, want, 1e-7*(1+check.MaxAbs(want))); ratio > 1 {
			t.Errorf("%s differs from finite differences by %.3g limits", x.name, ratio)
		}
	}
}
