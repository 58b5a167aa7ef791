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
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Neither threads nor what stands at a key that does not exist, or at one that
// comes later, change a bit.
func TestDecayIgnoresWhatIsHidden(t *testing.T) {
	defer par.SetThreads(0)
	const n = 40
	nan := float32(math.NaN())
	for name, m := range all() {
		e := mechanismOf(t, name, sixHeads(m))
		for _, form := range []attention.Form{attention.Direct, attention.Linear} {
			if form == attention.Linear && m.Exp {
				continue
			}
			c, _ := fadingCall(n, 5, 3, 16)
			do := calltest.Convert(calltest.Normal(rand.New(rand.NewPCG(5, 6)), 2, 6, n, 3))
			bits := func(threads int) []byte {
				par.SetThreads(threads)
				out, keep := calltest.Forward(t, e, c, form)
				g, dtau := calltest.Backward(t, e, c, do, out, keep)
				return fmt.Append(nil, out.Data, keep.Den, g.DQ.Data, g.DK.Data, g.DV.Data, g.DLogG.Data, dtau)
			}
			before := bits(1)
			if !slices.Equal(before, bits(5)) {
				t.Errorf("%s, %v: 5 threads change bits", name, form)
			}
			for i, exists := range c.KeyMask {
				for h := 0; h < 2 && !exists; h++ {
					c.K.Head(i/n, h).Row(i % n)[0], c.V.Head(i/n, h).Row(i % n)[1] = nan, nan
				}
			}
			if !slices.Equal(before, bits(1)) {
				t.Errorf("%s, %v: a masked key changes bits", name, form)
			}
			first, _ := calltest.Forward(t, e, c, form)
			for h := range 4 {
				g := c.LogG.Head(h/2, h%2)
				for j := 30; j < n; j++ {
					g.Row(j)[0] = -1
				}
			}
			then, _ := calltest.Forward(t, e, c, form)
			for h := range 12 {
				for i := range 30 {
					if !slices.Equal(first.Head(h/6, h%6).Row(i), then.Head(h/6, h%6).Row(i)) {
						t.Fatalf("%s, %v: a later decay changes query %d", name, form, i)
					}
				}
			}
		}
	}
}

func TestDecayRefuses(t *testing.T) {
	e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
	for want, change := range map[string]func(c *attention.Call){
		"log_g: decay needs a causal call, whose queries have a place among the keys": func(c *attention.Call) { c.Causal = false },
		"log_g: shape is [1,2,4,1], needs [1,2,5,1]":                                  func(c *attention.Call) { c.LogG = c.LogG.Tokens(0, 4) },
		"log_g: shape is [1,4,5,1], needs [1,2,5,1]":                                  func(c *attention.Call) { c.LogG = tensor.NewHeads(1, 4, 5, 1) },
		"log_g: row 0, head 1, token 3 is 0.5, needs to be finite and 0 or less":      func(c *attention.Call) { c.LogG.Head(0, 1).Row(3)[0] = 0.5 },
		"log_g: row 0, head 0, token 2 is NaN, needs to be finite and 0 or less":      func(c *attention.Call) { c.LogG.Head(0, 0).Row(2)[0] = float32(math.NaN()) },
		"log_g: row 0, head 0, token 4 is -Inf, needs to be finite and 0 or less":     func(c *attention.Call) { c.LogG.Head(0, 0).Row(4)[0] = float32(math.Inf(-1)) },
	} {
		r := rand.New(rand.NewPCG(1, 1))
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 4, 5, 3), K: calltest.Normal(r, 1, 2, 5, 3), V: calltest.Normal(r, 1, 2, 5, 3), Causal: true})
		c.LogG = tensor.NewHeads(1, 2, 5, 1)
		change(c)
		if err := e.Forward(tensor.NewHeads(1, 4, 5, 3), c, nil); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
		if st := mustState(t, e, c); c.Causal && st.Absorb(c) == nil {
			t.Errorf("a state accepts %q", want)
		}
	}
}
