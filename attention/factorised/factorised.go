// Package factorised makes the mechanism of an attention.Spec. The weight can be a kernel
// polynomial, a product of mapped rows, the exponential, or any other function of the score,
// and a Spec may add a sliding window of exact weights.
//
// The direct form computes every weight, in blocks, like Dao et al. (2022, arXiv 2205.14135)
// but on a processor. The linear form computes no weights. It writes a polynomial of the score,
// or a product of mapped rows, as a sum over features, adds each key to the sums of its
// features, and reads the sums with the features of each query (Katharopoulos et al. 2020,
// arXiv 2006.16236, with the packed monomials of docs/math.md). docs/numerics.md derives the
// rounding errors of outputs.
//
// Package attention has the types of calls, package headwise makes mechanisms of whole heads,
// and package mechanism is the catalogue of both.
package factorised

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/engine"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/attention/internal/hybrid"
)

// New returns the mechanism that s describes. It returns an error if the fields of s do not fit
// together or a number is out of range. All numbers must be finite, and Eps and Floor must not
// be negative.
func New(s attention.Spec) (attention.Mechanism, error) {
	if err := checkNumbers(&s); err != nil {
		return nil, err
	}
	if s.Window != nil {
		return hybrid.New(s)
	}
	e, err := engine.New(headtask.Spec{Spec: s})
	if err != nil {
		return nil, err
	}
	return e, nil
}
