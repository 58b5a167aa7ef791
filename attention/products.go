package attention

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/tensor"
)

// Dropout of products runs on rows that hold them, (1, x, x⊗x): f(a·b) = c₀ +
// c₁·s + c₂·s² is one scalar product of two of them, so that a kernel f(s) = s
// with this feature map has both forms, and the masks lie on mapped rows.

// products is the feature map.
type products[T tensor.Float] struct {
	coef [3]float64 // c₀, c₁, c₂, which multiply the rows of queries
}

func (products[T]) Dim(d int) int { return 1 + d + d*d }

func (products[T]) Map(dst, x []T) {
	dst[0] = 1
	dst = dst[1+copy(dst[1:], x):]
	for _, a := range x {
		for l, b := range x {
			dst[l] = a * b
		}
		dst = dst[len(x):]
	}
}

func (products[T]) Grad(dx, dy, x []T) {
	d := len(x)
	copy(dx, dy[1:])
	dy = dy[1+d:]
	for m, a := range x {
		row := dy[m*d:][:d]
		var sum T
		for l, b := range x {
			sum += row[l] * b
			dx[l] += row[l] * a
		}
		dx[m] += sum
	}
}

// dropProducts multiplies the mask and the coefficients into the mapped row of
// token i with d channels.
func dropProducts[T tensor.Float](m *headDropout, row []T, d, i int) {
	row[0] *= T(m.coef[0])
	for c := range d {
		row[1+c] *= T(m.coef[1])
	}
	bits := m.token(i, d*d)
	for c := range d * d {
		row[1+d+c] *= T(m.coef[2] * bits.next())
	}
}

// hasProducts reports whether the mechanism can leave out products.
func (e *engine[T]) hasProducts() bool {
	return !e.spec.Exp && !e.spec.hasMap() && e.spec.degree() == 2
}

// checkProducts reports a call whose dropout of products the mechanism cannot
// do.
func (e callCheck[T]) checkProducts(c *Call[T]) error {
	if c.Drop == nil || c.Drop.Kind != ProductDrop {
		return nil
	}
	_, mapped := e.spec.Map.(products[T])
	switch {
	case !mapped && !e.hasProducts():
		return fmt.Errorf("dropout: %v needs a kernel of degree 2 without a feature map, which %s does not have", c.Drop.Kind, e.spec.Name)
	case c.Form == Step:
		return fmt.Errorf("dropout: %v is not defined in the step form", c.Drop.Kind)
	case c.HasState():
		return fmt.Errorf("dropout: %v is not defined with a state before or after the call", c.Drop.Kind)
	}
	return nil
}

// onProducts returns the engine and the call that compute c on rows of products;
// nil where c does not need them. The linear form is what is taken unless
// another is asked for.
func (e *engine[T]) onProducts(c *Call[T]) (*engine[T], *Call[T]) {
	if !c.Drop.IsActive() || c.Drop.Kind != ProductDrop {
		return nil, nil
	}
	if _, mapped := e.spec.Map.(products[T]); mapped {
		return nil, nil
	}
	p := e.products.Load()
	if p == nil {
		s := e.spec
		s.Map, s.Coef, s.Positive = products[T]{[3]float64(s.Coef)}, []float64{0, 1}, false
		e.products.CompareAndSwap(nil, &engine[T]{spec: s, params: e.params, speeds: e.speeds})
		p = e.products.Load()
	}
	x := *c
	if x.Form == Auto && x.AttnKeep == nil {
		x.Form = Linear
	}
	return p, &x
}

// scoreGain is the factor by which dropout may make a score, or a weight, larger.
func (d *Drop) scoreGain() float64 {
	if d == nil {
		return 1
	}
	return 1 / ((1 - d.Rate) * (1 - d.Rate))
}

// productReach bounds the weights of rows of products without their masks.
func (s *Spec[T]) productReach(coef [3]float64, d, h int) float64 {
	plain := *s
	plain.Map, plain.Coef = nil, coef[:]
	x := plain.maxScore(d, h)
	if math.IsInf(x, 1) {
		return 0 // nothing is known to be weak
	}
	return plain.absPoly(x)
}
