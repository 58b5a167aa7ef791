//go:build !float64

package engine

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/tensor"
)

func TestSimilarityHasNoSums(t *testing.T) {
	f := similarityOf(math.Tanh, func(x float64) float64 { return 1 - math.Tanh(x)*math.Tanh(x) })
	e := mustNew(t, attention.Spec{Name: "tanh", Scale: 1, Similarity: f})
	if tr := e.Traits(); tr.Linear || tr.Streaming || tr.Positive || !tr.Causal {
		t.Errorf("traits %+v", tr)
	}
	c := &attention.Call{
		Q: tensor.HeadsOf([]float32{1, 2}, 1, 1, 2, 1),
		K: tensor.HeadsOf([]float32{3, -3, 3, -3}, 1, 1, 4, 1),
		V: tensor.HeadsOf([]float32{1, 2, 3, 4}, 1, 1, 4, 1),
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
	if _, err := newMechanism(attention.Spec{Name: "half", Similarity: &attention.Similarity{F: f.F}}); err == nil || err.Error() != "half: a similarity needs F and Slope" {
		t.Errorf("without a slope: %v", err)
	}
	if _, err := newMechanism(attention.Spec{Name: "both", Similarity: f, Exp: true}); err == nil {
		t.Error("two kernels are accepted")
	}
}
