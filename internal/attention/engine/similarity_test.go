package engine

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// similarityOf returns f and f′ on slices.
func similarityOf(f, slope func(float64) float64) *attention.Similarity {
	over := func(f func(float64) float64) func(dst, s []float) {
		return func(dst, s []float) {
			for i, x := range s {
				dst[i] = float(f(float64(x)))
			}
		}
	}
	return &attention.Similarity{F: over(f), Slope: over(slope)}
}

// A polynomial as a similarity is the calltest.Textbook's polynomial, over every kind of
// call, and so is the state that keeps its keys.
func TestSimilarityAgainstTextbook(t *testing.T) {
	m := &oracle.Mechanism{Norm: oracle.Bounded, Scale: 1.5, Coef: oracle.TaylorCoef(3), Eps: 0.5, OutputNorm: true}
	for what, c := range calltest.Problems() {
		m := *m
		m.OutputNorm = c.LogG.D == 0 // refused together
		t.Run(what, func(t *testing.T) {
			want := m.Forward(c)
			do := calltest.Normal(rand.New(rand.NewPCG(3, 4)), c.Q.B, c.Q.H, c.Q.N, c.V.D)
			grads := m.Backward(c, do)
			similarityAgainst(t, &m, c, do, want, grads)
		})
	}
}

func similarityAgainst(t *testing.T, m *oracle.Mechanism, c *oracle.Call, do oracle.Heads, want *oracle.Result, grads *oracle.Grads) {
	e := mustNew(t, attention.Spec{
		Name: "third order", Norm: attention.Bounded, Scale: 1.5, Eps: 0.5, OutputNorm: m.OutputNorm, Positive: true,
		Similarity: similarityOf(
			func(x float64) float64 { return 1 + x + x*x/2 + x*x*x/6 },
			func(x float64) float64 { return 1 + x + x*x/2 }),
	})
	call := calltest.NewCall(c)
	// Outputs are multiplied by up to √(M/D), gradients as well.
	l, wide := check.DirectLimits[float](2), *c
	wide.V = oracle.NewHeads(1, 1, 1, 1)
	wide.V.Data[0] = check.MaxAbs(c.V.Data) * max(1, check.MaxAbs(want.Factor))
	for _, form := range []attention.Form{attention.Auto, attention.Direct} {
		out, keep := calltest.Forward(t, e, call, form)
		calltest.Judge(t, l, m, &wide, want, out, keep)
		g, _ := calltest.Backward(t, e, call, calltest.Convert(do), out, keep)
		calltest.JudgeGrads(t, l, &wide, do, want, grads, g, nil)
	}
	if c.AttnKeep == nil {
		call.Form = attention.Step
		out := calltest.Poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D)
		if err := e.Forward(out, call, nil); err != nil {
			t.Fatal(err)
		}
		calltest.Judge(t, l, m, &wide, want, out, nil)
	}
}

// An exponential over centred rows has no single power.
func TestExponentialOfCentredRows(t *testing.T) {
	m := &oracle.Mechanism{Norm: oracle.Standard, Exp: true}
	c := calltest.Problems()["causal"]
	e, call := mustNew(t, attention.Spec{Name: "exp", Norm: attention.Standard, Exp: true, Positive: true}), calltest.NewCall(c)
	out, keep := calltest.Forward(t, e, call, attention.Auto)
	calltest.Judge(t, check.SoftmaxLimits[float32](), m, c, m.Forward(c), out, keep)
}

func TestOutputNormRefusesDecay(t *testing.T) {
	const want = "log_g: counted with output_norm counts keys, which sums that lose weight do not tell"
	e := mustNew(t, attention.Spec{Name: "counted", Coef: []float64{1, 1, 0.5}, OutputNorm: true, Positive: true})
	c := calltest.NewCall(calltest.Problems()["causal mask, decay"])
	for _, form := range []attention.Form{attention.Auto, attention.Direct, attention.Linear, attention.Step} {
		c.Form = form
		if err := e.Forward(tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D), c, nil); err == nil || err.Error() != want {
			t.Errorf("%v: %v", form, err)
		}
	}
	st, err := e.NewState(c.Shape())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Absorb(&attention.Call{K: c.K, V: c.V, LogG: c.LogG}); err == nil || err.Error() != want {
		t.Errorf("a state absorbs: %v", err)
	}
}

func TestSimilarityHasNoSums(t *testing.T) {
	f := similarityOf(math.Tanh, func(x float64) float64 { return 1 - math.Tanh(x)*math.Tanh(x) })
	e := mustNew(t, attention.Spec{Name: "tanh", Scale: 1, Similarity: f})
	if tr := e.Traits(); tr.Linear || tr.Streaming || tr.Positive || !tr.Causal {
		t.Errorf("traits %+v", tr)
	}
	c := &attention.Call{
		Q: tensor.HeadsOf([]float{1, 2}, 1, 1, 2, 1),
		K: tensor.HeadsOf([]float{3, -3, 3, -3}, 1, 1, 4, 1),
		V: tensor.HeadsOf([]float{1, 2, 3, 4}, 1, 1, 4, 1),
	}
	c.Form = attention.Linear
	out := tensor.NewHeads(1, 1, 2, 1)
	if err := e.Forward(out, c, nil); err == nil || err.Error() != "form: tanh has no linear form" {
		t.Errorf("linear form: %v", err)
	}
	// Cancelling weights are counted relative to f at the largest score.
	if _, keep := calltest.Forward(t, e, c, attention.Direct); keep.WeakCount != 2 {
		t.Errorf("%d weak rows, want 2", keep.WeakCount)
	}
	if _, err := newMechanism(attention.Spec{Name: "half", Similarity: &attention.Similarity{F: f.F}}); err == nil || err.Error() != "half: Similarity needs F and Slope" {
		t.Errorf("without a slope: %v", err)
	}
	if _, err := newMechanism(attention.Spec{Name: "both", Similarity: f, Exp: true}); err == nil {
		t.Error("two kernels are accepted")
	}
}
