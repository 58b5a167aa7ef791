//go:build float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
)

// derivatives compares the gradients of the textbook, and of the engine, with finite
// differences.
func derivatives(t *testing.T, s subject) {
	if s.whole != nil {
		wholeDerivatives(t, s)
		return
	}
	derivativesOf(t, s, shape{b: 1, h: 2, hkv: 1, n: 3, m: 4, d: 5, dv: 2, causal: true})
	if s.book.Window != nil {
		derivativesOf(t, s, shape{b: 1, h: 2, hkv: 1, n: 7, m: 8, d: 5, dv: 2})
	}
}

// derivativesOf is derivatives for a call of a shape.
func derivativesOf(t *testing.T, s subject, sh shape) {
	oc, do := s.fit(sh).call(77)
	m, book := build(t, s, 2)
	type point struct {
		name      string
		at, grads []float64
	}
	against := func(name string, o func() []float64, points ...point) {
		loss := func() float64 {
			var sum float64
			for i, x := range o() {
				sum += x * do.Data[i]
			}
			return sum
		}
		for _, x := range points {
			want := check.NumericGradient(loss, x.at)
			if e := check.ErrorRatio(x.grads, want, 1e-6*(1+check.MaxAbs(want))); e > 1 {
				t.Errorf("%s: %s differs from finite differences by %.3g limits", name, x.name, e)
			}
		}
	}
	g := book.Backward(oc, do)
	points := []point{{"dq", oc.Q.Data, g.DQ.Data}, {"dk", oc.K.Data, g.DK.Data}, {"dv", oc.V.Data, g.DV.Data}, {"dtau", book.Tau, g.DTau}}
	if w := book.Window; w != nil {
		dgamma := make([]float64, len(w.Gamma))
		for i := range dgamma {
			dgamma[i] = g.DLogGamma[i] / w.Gamma[i]
		}
		points = append(points, point{"dgamma", w.Gamma, dgamma})
	}
	if book.Features != nil {
		points = append(points, point{"the gradient of features", book.Features.Learned(oc.Q.D), g.DFeatures})
	}
	against("textbook", func() []float64 { return book.Forward(oc).O.Data }, points...)
	for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 2}} {
		if !f.computes(s, oc) {
			continue
		}
		c := callIn(oc)
		c.Form, c.Chunk = f.form, f.chunk
		r := both(t, m, c, do)
		points := []point{{"dq", c.Q.Data, r.g.DQ.Data}, {"dk", c.K.Data, r.g.DK.Data}, {"dv", c.V.Data, r.g.DV.Data}}
		rest := r.tau
		for _, p := range m.Params().All() {
			points = append(points, point{"d" + p.Name, p.Data, rest[:len(p.Data)]})
			rest = rest[len(p.Data):]
		}
		against(f.String(), func() []float64 { return forward(t, m, c).o.Data }, points...)
	}
}
