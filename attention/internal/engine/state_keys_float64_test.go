//go:build float64

package engine

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
)

// The step form of every call has the bits of the direct form.
func TestCacheStepForm(t *testing.T) {
	for name, p := range calltest.Problems() {
		if p.AttnKeep != nil {
			continue
		}
		c := calltest.NewCall(p)
		e := mechanismOf(t, "softmax", calltest.Textbook["softmax"])
		want, _ := calltest.Forward(t, e, c, attention.Direct)
		got := calltest.Poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D)
		c.Form = attention.Step
		if err := e.Forward(got, c, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(got.Data, want.Data) {
			t.Errorf("%s: step form gives other bits", name)
		}
	}
}
