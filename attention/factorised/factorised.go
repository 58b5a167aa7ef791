// Package factorised makes mechanisms of an attention.Spec: kernel polynomials, feature maps,
// the exponential and any other function of the score, with a sliding window if the Spec has one.
//
// The direct form computes every weight, the linear form none: a polynomial of the score, or a
// product of mapped rows, is a sum over features, which keys enter before queries read it. The
// direct form follows Dao et al. (2022, arXiv 2205.14135) on a processor. The linear form follows
// Katharopoulos et al. (2020, arXiv 2006.16236), with the packed monomials of docs/math.md.
// docs/numerics.md derives the rounding errors of outputs.
//
// Package attention has the types of calls, package headwise makes mechanisms of whole heads, and
// package mechanism is the catalogue of both.
package factorised

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/engine"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/attention/internal/hybrid"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// New returns the mechanism that s describes. It returns an error if its fields do not fit
// together, or a number is outside its range: all are finite, Eps and Floor are 0 or more.
func New[T tensor.Float](s attention.Spec[T]) (attention.Mechanism[T], error) {
	return kernel.Instance[func(attention.Spec[T]) (attention.Mechanism[T], error)](new32, new64)(s)
}

// The engines are compiled here and nowhere else: see kernel.Instance.
var new32, new64 = build[float32], build[float64]

func build[T tensor.Float](s attention.Spec[T]) (attention.Mechanism[T], error) {
	if err := checkNumbers(&s); err != nil {
		return nil, err
	}
	if s.Window != nil {
		return hybrid.New(s)
	}
	e, err := engine.New(headtask.Spec[T]{Spec: s})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Prepared returns the rows of a call as the feature map of m gets them: normalised,
// rotated and, for queries, scaled; q [B,H,N,D] and k [B,Hkv,M,D]. Masked keys are
// zeros. Constants of a map are fitted to these rows. It returns an error if c does not
// fit, and for mechanisms of whole heads and with a window.
func Prepared[T tensor.Float](m attention.Mechanism[T], c *attention.Call[T]) (q, k tensor.Heads[T], err error) {
	e, ok := m.(interface {
		Prepared(c *attention.Call[T]) (q, k tensor.Heads[T], err error)
	})
	if !ok {
		return q, k, fmt.Errorf("%s: has no single form of prepared rows", m.Traits().Name)
	}
	return e.Prepared(c)
}
