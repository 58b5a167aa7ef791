package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// derivatives compares the gradients of the textbook with finite differences, and in float64 those of the
// engine.
func derivatives(t *testing.T, s subject) {
	if s.whole != nil {
		if precision == "float64" {
			wholeDerivatives(t, s)
		} else {
			t.Log("the law of the direct form holds gradients of whole heads in float32")
		}
		return
	}
	derivativesOf(t, s, shape{b: 1, h: 2, hkv: 1, n: 3, m: 4, d: 5, dv: 2, causal: true})
	if s.book.Window != nil {
		derivativesOf(t, s, shape{b: 1, h: 2, hkv: 1, n: 7, m: 8, d: 5, dv: 2})
	}
}

// derivative is a gradient of an array.
type derivative[T kernel.Float] struct {
	name      string
	at, grads []T
}

// holdDerivatives reports gradients of Σ do·o that are not finite differences.
func holdDerivatives[T kernel.Float](t *testing.T, name string, do []float64, o func() []T, list ...derivative[T]) {
	t.Helper()
	loss := func() float64 {
		var sum float64
		for i, x := range o() {
			sum += float64(x) * do[i]
		}
		return sum
	}
	for _, x := range list {
		want := check.NumericGradient(loss, x.at)
		if e := check.ErrorRatio(x.grads, want, 1e-6*(1+check.MaxAbs(want))); e > 1 {
			t.Errorf("%s: %s differs from finite differences by %.3g limits", name, x.name, e)
		}
	}
}

// derivativesOf is derivatives for a call of a shape.
func derivativesOf(t *testing.T, s subject, sh shape) {
	oc, do := s.fit(sh).call(77)
	m, book := build(t, s, 2)
	g := book.Backward(oc, do)
	list := []derivative[float64]{{"dq", oc.Q.Data, g.DQ.Data}, {"dk", oc.K.Data, g.DK.Data}, {"dv", oc.V.Data, g.DV.Data}, {"dtau", book.Tau, g.DTau}}
	if w := book.Window; w != nil {
		dgamma := make([]float64, len(w.Gamma))
		for i := range dgamma {
			dgamma[i] = g.DLogGamma[i] / w.Gamma[i]
		}
		list = append(list, derivative[float64]{"dgamma", w.Gamma, dgamma})
	}
	if book.Features != nil {
		list = append(list, derivative[float64]{"the gradient of features", book.Features.Learned(oc.Q.D), g.DFeatures})
	}
	holdDerivatives(t, "textbook", do.Data, func() []float64 { return book.Forward(oc).O.Data }, list...)
	if precision == "float32" {
		return
	}
	for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 2}} {
		if !f.computes(s, oc) {
			continue
		}
		c := callIn(oc)
		c.Form, c.Chunk = f.form, f.chunk
		r := both(t, m, c, in(do))
		list := []derivative[float]{{"dq", c.Q.Data, r.g.DQ.Data}, {"dk", c.K.Data, r.g.DK.Data}, {"dv", c.V.Data, r.g.DV.Data}}
		rest := r.tau
		for _, p := range m.Params().All() {
			list = append(list, derivative[float]{"d" + p.Name, p.Data, rest[:len(p.Data)]})
			rest = rest[len(p.Data):]
		}
		holdDerivatives(t, f.String(), do.Data, func() []float { return forward(t, m, c).o.Data }, list...)
	}
}
