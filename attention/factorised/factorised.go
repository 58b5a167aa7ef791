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
	"cmp"
	"fmt"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/engine"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/attention/hybrid"
)

// New returns the mechanism that s describes. It returns an error if the fields of s do not fit
// together or a number is out of range. All numbers must be finite, and Eps and Floor must not
// be negative.
func New(s attention.Spec) (attention.Mechanism, error) {
	if err := checkNumbers(&s); err != nil {
		return nil, err
	}
	s.Name = cmp.Or(s.Name, "spec")
	s.Setting = cmp.Or(s.Setting, settingOf(&s))
	s.Positive = s.Positive || s.Exp
	if s.Window != nil {
		return hybrid.New(s)
	}
	e, err := engine.New(headtask.Spec{Spec: s})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// settingOf returns the setting of a Spec that has none: its numbers and choices, and the types of
// its maps.
func settingOf(s *attention.Spec) string {
	var b strings.Builder
	fmt.Fprintf(&b, "norm=%d scale=%v tau=%t map=%T features=%T exp=%t similarity=%t coef=%v eps=%v unnormalized=%t floor=%v floor_size=%t gated=%t output_norm=%t",
		int(s.Norm), s.Scale, s.Tau != nil, s.Map, s.Features, s.Exp, s.Similarity != nil, s.Coef, s.Eps, s.Unnormalized, s.Floor, s.FloorSize, s.Gated, s.OutputNorm)
	if d := s.BuiltinDecay; d != nil {
		fmt.Fprintf(&b, " decay=%s", d.Name)
		for h := range cmp.Or(d.Heads, 64) {
			fmt.Fprintf(&b, ",%v", d.Log(h))
		}
	}
	if w := s.Window; w != nil {
		fmt.Fprintf(&b, " window=%d join=%d gamma=%t", w.Width, int(w.Join), w.LogGamma != nil)
	}
	return b.String()
}
