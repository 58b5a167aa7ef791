//go:build !float64

package headwise

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Strided views, several threads, several units of parameters at a time and
// memory that was used before change no bit.
func TestHeadwiseBits(t *testing.T) {
	defer par.SetThreads(0)
	for name, oc := range plainProblems() {
		if oc.K.N > 64 || oc.K.N == 0 || oc.Q.N == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			do := calltest.Convert(calltest.Normal(rand.New(rand.NewPCG(14, 15)), oc.Q.B, oc.Q.H, oc.Q.N, oc.V.D))
			m, c := New(newPlain()), calltest.NewCall(oc)
			out, keep := calltest.Forward(t, m, c, attention.Auto)
			g, dtau := calltest.Backward(t, m, c, do, out, keep)

			saved := make([][]float32, len(keep.Heads))
			for i, x := range keep.Heads {
				saved[i] = slices.Clone(x)
				for j := range x {
					x[j] = float32(math.NaN())
				}
			}
			wide := *c
			wide.Q, wide.K, wide.V = spacious(c.Q), spacious(c.K), spacious(c.V)
			par.SetThreads(3)
			out2 := spacious(calltest.Poisoned(out.B, out.H, out.N, out.D))
			if err := m.Forward(out2, &wide, keep); err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(keep.Heads, saved, slices.Equal[[]float32]) {
				t.Errorf("saved for Backward is %v, was %v", keep.Heads, saved)
			}
			g2 := &attention.Grads{DQ: spacious(calltest.Poisoned(c.Q.B, c.Q.H, c.Q.N, c.Q.D)),
				DK: spacious(calltest.Poisoned(c.K.B, c.K.H, c.K.N, c.K.D)), DV: spacious(calltest.Poisoned(c.V.B, c.V.H, c.V.N, c.V.D))}
			m.Params().ZeroGrad()
			if err := m.Backward(g2, spacious(do), out2, &wide, keep); err != nil {
				t.Fatal(err)
			}
			for _, x := range []struct {
				name      string
				got, want tensor.Heads
			}{{"o", out2, out}, {"dq", g2.DQ, g.DQ}, {"dk", g2.DK, g.DK}, {"dv", g2.DV, g.DV}} {
				for i := range x.want.B * x.want.H {
					for n := range x.want.N {
						if !slices.Equal(x.got.Head(i/x.want.H, i%x.want.H).Row(n), x.want.Head(i/x.want.H, i%x.want.H).Row(n)) {
							t.Fatalf("%s of a strided view differs", x.name)
						}
					}
				}
			}
			if got := m.Params().All()[0].Grad; !slices.Equal(got, dtau) {
				t.Errorf("dtau is %v, was %v", got, dtau)
			}
		})
	}
}
