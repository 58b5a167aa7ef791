//go:build !float64

package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// What keys hold that do not exist, or come later, changes no bit.
func TestLinearIgnoresWhatIsHidden(t *testing.T) {
	const n = 40
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	r := rand.New(rand.NewPCG(8, 9))
	for name, m := range polynomials() {
		e := mechanismOf(t, name, m)
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 4, n, 5), K: calltest.Normal(r, 1, 2, n, 5), V: calltest.Normal(r, 1, 2, n, 3)})
		c.Chunk = 16
		do := calltest.Convert(calltest.Normal(r, 1, 4, n, 3))
		// spoil overwrites keys and values of every head.
		spoil := func(key, value float32, tokens ...int) {
			for h := range c.K.H {
				for _, j := range tokens {
					c.K.Head(0, h).Row(j)[1], c.V.Head(0, h).Row(j)[1] = key, value
				}
			}
		}
		for _, causal := range []bool{false, true} {
			c.Causal = causal
			c.KeyMask = slices.Repeat([]bool{true}, n)
			hidden := []int{0, 1, 15, 16, n - 1}
			for _, j := range hidden {
				c.KeyMask[j] = false
			}
			bits := func() []byte {
				out, keep := calltest.Forward(t, e, c, attention.Linear)
				g, dtau := calltest.Backward(t, e, c, do, out, keep)
				return fmt.Append(nil, out.Data, keep.Den, g.DQ.Data, g.DK.Data, g.DV.Data, dtau)
			}
			before := bits()
			spoil(nan, inf, hidden...)
			if !slices.Equal(before, bits()) {
				t.Errorf("%s, causal %v: a masked key changes bits", name, causal)
			}
			spoil(1, 1, hidden...)
		}
		c.KeyMask = nil
		before, _ := calltest.Forward(t, e, c, attention.Linear)
		for j := n - 1; j > 0; j-- {
			spoil(inf, nan, j)
			after, _ := calltest.Forward(t, e, c, attention.Linear)
			for h := range after.H {
				for i := range j {
					if !slices.Equal(after.Head(0, h).Row(i), before.Head(0, h).Row(i)) {
						t.Fatalf("%s: key %d changes query %d", name, j, i)
					}
				}
			}
		}
	}
}

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
