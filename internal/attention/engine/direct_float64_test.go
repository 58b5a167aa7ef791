//go:build float64

package engine

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// Gradients of the whole mechanism by central differences of its own Forward.
func TestDirectGradientsAreDerivatives(t *testing.T) {
	all := calltest.Problems()
	for _, what := range []string{"groups", "causal, fewer keys", "causal pairs and mask", "causal rope"} {
		for name, m := range calltest.Textbook {
			if m.Map != nil {
				continue // the slope of elu has a kink, which differences do not follow
			}
			c := calltest.NewCall(all[what])
			e := mechanismOf(t, name, m)
			do := calltest.Normal(rand.New(rand.NewPCG(5, 6)), c.Q.B, c.Q.H, c.Q.N, c.V.D)
			out, keep := calltest.Forward(t, e, c, attention.Direct)
			g, dtau := calltest.Backward(t, e, c, do, out, keep)
			loss := func() float64 {
				var s float64
				out, _ := calltest.Forward(t, e, c, attention.Direct)
				for i, o := range out.Data {
					s += o * do.Data[i]
				}
				return s
			}
			for _, x := range []struct {
				name   string
				got, x []float64
			}{{"dq", g.DQ.Data, c.Q.Data}, {"dk", g.DK.Data, c.K.Data}, {"dv", g.DV.Data, c.V.Data}} {
				want := check.NumericGradient(loss, x.x)
				if ratio := check.ErrorRatio(x.got, want, 1e-7*max(1, check.MaxAbs(want))); ratio > 1 {
					t.Errorf("%s, %s: %s is wrong, %.3g of the limit", name, what, x.name, ratio)
				}
			}
			if tau := e.(*Engine).Spec.Tau; tau != nil {
				want := check.NumericGradient(loss, tau.Data)
				if ratio := check.ErrorRatio(dtau, want, 1e-7*max(1, check.MaxAbs(want))); ratio > 1 {
					t.Errorf("%s, %s: dtau is %v, want %v", name, what, dtau, want)
				}
			}
		}
	}
}

func TestDirectWeights(t *testing.T) {
	calltest.EachProblem(t, func(t *testing.T, name string, m *oracle.Mechanism, c *oracle.Call) {
		if c.Q.N == 0 {
			return
		}
		want := m.Forward(c)
		e := mechanismOf(t, name, m)
		b, h := c.Q.B-1, c.Q.H-1
		for _, rows := range [][2]int{{0, c.Q.N}, {c.Q.N / 2, c.Q.N}, {1, 1}} {
			i0, i1 := rows[0], rows[1]
			dst := tensor.NewMat(i1-i0, c.K.N)
			for i := range dst.Data {
				dst.Data[i] = math.NaN()
			}
			if err := e.Weights(dst, calltest.NewCall(c), b, h, i0, i1); err != nil {
				t.Fatal(err)
			}
			for i := i0; i < i1; i++ {
				w := want.W.Head(b, h).Row(i)
				limit := 1e-14 * max(want.Cond[(b*c.Q.H+h)*c.Q.N+i], 1)
				if ratio := check.ErrorRatio(dst.Row(i-i0), w, limit); ratio > 1 {
					t.Fatalf("weights of query %d are %v, want %v", i, dst.Row(i-i0), w)
				}
				for j := range w {
					if w[j] == 0 && dst.Row(i - i0)[j] != 0 {
						t.Fatalf("query %d: the weight of key %d is %v, not 0", i, j, dst.Row(i - i0)[j])
					}
				}
			}
		}
	})
}
