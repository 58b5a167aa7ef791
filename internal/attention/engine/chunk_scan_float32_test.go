//go:build !float64

package engine

import (
	"fmt"
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// A degree and width whose sums are beyond the limit is refused with both numbers, and
// never chosen.
func TestLinearTooManyFeatures(t *testing.T) {
	e := mustNew(t, attention.Spec{Name: "wide", Coef: oracle.TaylorCoef(6)})
	want := fmt.Sprintf("wide: the linear form of degree 6 has %d features for D = 300, whose sums with Dv = 64 are %s numbers a head, at most 1073741824",
		min(int64(1085371516236), int64(math.MaxInt)), "86829721298880")
	c := &attention.Call{Q: tensor.NewHeads(1, 1, 1, 300), K: tensor.NewHeads(1, 1, 1, 300), V: tensor.NewHeads(1, 1, 1, 64), Form: attention.Linear}
	if err := e.Forward(tensor.NewHeads(1, 1, 1, 64), c, nil); err == nil || err.Error() != want {
		t.Errorf("Forward: error %v, want %q", err, want)
	}
	if _, err := e.NewState(c.Shape()); err == nil || err.Error() != want {
		t.Errorf("NewState: error %v, want %q", err, want)
	}
	s := c.Shape()
	s.N, s.M, s.Form = 1<<50, 1<<50, attention.Auto
	if p := e.Plan(s); p.Form != attention.Direct || p.Back != attention.Direct || p.WidthError == nil || p.WidthError.Error() != want {
		t.Errorf("Plan of 2^50 tokens: %v, %v, %v", p.Form, p.Back, p.WidthError)
	}
	s.D = 8
	if p := e.Plan(s); p.Form != attention.Linear || p.WidthError != nil {
		t.Errorf("Plan at D = 8: %v, %v", p.Form, p.WidthError)
	}
}
