package factorised

import (
	"cmp"
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// checkNumbers returns an error for the first number of s that is outside its range, in the
// element type: numbers are finite, Eps and Floor are 0 or more, decays 0 or less.
func checkNumbers(s *attention.Spec) error {
	name := cmp.Or(s.Name, "spec")
	if norms := attention.Norms(); s.Norm < 0 || int(s.Norm) >= len(norms) {
		return fmt.Errorf("%s: Norm is %d, needs 0 to %d", name, int(s.Norm), len(norms)-1)
	}
	if !isFinite(s.Scale) {
		return fmt.Errorf("%s: Scale is %v, needs to be finite", name, s.Scale)
	}
	for l, c := range s.Coef {
		if !isFinite(c) {
			return fmt.Errorf("%s: Coef: number %d is %v, needs to be finite", name, l, c)
		}
	}
	for _, x := range []struct {
		field string
		value float64
	}{{"Eps", s.Eps}, {"Floor", s.Floor}} {
		if !isFinite(x.value) || x.value < 0 {
			return fmt.Errorf("%s: %s is %v, needs to be finite and 0 or more", name, x.field, x.value)
		}
	}
	if d := s.BuiltinDecay; d != nil {
		if d.Log == nil || d.Heads < 0 {
			return fmt.Errorf("%s: BuiltinDecay %s: needs Log, and Heads of 0 or more, has %d", name, d.Name, d.Heads)
		}
		for h := range max(d.Heads, 1) {
			if x := d.Log(h); !(x <= 0) || math.IsInf(x, 0) {
				return fmt.Errorf("%s: BuiltinDecay %s: head %d is %v, needs to be finite and 0 or less", name, d.Name, h, x)
			}
		}
	}
	if err := checkLearned(name, "Tau", s.Tau); err != nil {
		return err
	}
	if s.Window != nil {
		return checkLearned(name, "Window.LogGamma", s.Window.LogGamma)
	}
	return nil
}

// checkLearned returns an error if p has no numbers, or has one that is not finite. p may be
// nil.
func checkLearned(owner, name string, p *param.Param) error {
	switch {
	case p == nil:
		return nil
	case len(p.Data) == 0 || len(p.Grad) != len(p.Data):
		return fmt.Errorf("%s: %s: has %d numbers and %d gradients, needs 1 or more of both", owner, name, len(p.Data), len(p.Grad))
	}
	for i, x := range p.Data {
		if !isFinite(float64(x)) {
			return fmt.Errorf("%s: %s: number %d is %v, needs to be finite", owner, name, i, x)
		}
	}
	return nil
}

// isFinite reports whether x is a finite number of the element type.
func isFinite(x float64) bool { y := tensor.Float(x); return y-y == 0 }
