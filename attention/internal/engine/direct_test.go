package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

func directLimits(m *oracle.Mechanism) check.Limits {
	if m.Exp {
		return check.SoftmaxLimits[float]()
	}
	return check.DirectLimits[float](len(m.Coef) - 1)
}

func TestDirectAgainstTextbook(t *testing.T) {
	calltest.EachProblem(t, func(t *testing.T, name string, m *oracle.Mechanism, c *oracle.Call) {
		t.Parallel()
		want := m.Forward(c)
		do := calltest.Normal(rand.New(rand.NewPCG(3, 4)), c.Q.B, c.Q.H, c.Q.N, c.V.D)
		grads := m.Backward(c, do)
		directAgainst(t, name, m, c, do, want, grads)
	})
}

func directAgainst(t *testing.T, name string, m *oracle.Mechanism, c *oracle.Call, do oracle.Heads, want *oracle.Result, grads *oracle.Grads) {
	t.Helper()
	e, call := mechanismOf(t, name, m), calltest.NewCall(c)
	out, keep := calltest.Forward(t, e, call, attention.Direct)
	calltest.Judge(t, directLimits(m), m, c, want, out, keep)
	g, dtau := calltest.Backward(t, e, call, calltest.Convert(do), out, keep)
	calltest.JudgeGrads(t, directLimits(m), c, do, want, grads, g, dtau)
}

func TestDirectThreads(t *testing.T) {
	defer par.SetThreads(0)
	r := rand.New(rand.NewPCG(10, 11))
	for name, m := range calltest.Textbook {
		e := mechanismOf(t, name, m)
		c := calltest.NewCall(&oracle.Call{
			Q: calltest.Normal(r, 3, 4, 150, 9), K: calltest.Normal(r, 3, 2, 161, 9), V: calltest.Normal(r, 3, 2, 161, 7), Causal: true,
		})
		do := calltest.Convert(calltest.Normal(r, 3, 4, 150, 7))
		var first []byte
		for _, threads := range []int{1, 2, 5} {
			par.SetThreads(threads)
			out, keep := calltest.Forward(t, e, c, attention.Direct)
			g, dtau := calltest.Backward(t, e, c, do, out, keep)
			bits := fmt.Append(nil, out.Data, keep.Den, g.DQ.Data, g.DK.Data, g.DV.Data, dtau)
			if first == nil {
				first = bits
			}
			if !slices.Equal(first, bits) {
				t.Errorf("%s: %d threads change bits", name, threads)
			}
		}
	}
}

// Batch rows do not know of each other.
func TestDirectBatchPosition(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 13))
	for name, m := range calltest.Textbook {
		e := mechanismOf(t, name, m)
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 3, 4, 50, 9), K: calltest.Normal(r, 3, 2, 61, 9), V: calltest.Normal(r, 3, 2, 61, 7)})
		all, _ := calltest.Forward(t, e, c, attention.Direct)
		for b := range 3 {
			one := *c
			row := func(x tensor.Heads) tensor.Heads {
				x.Data, x.B = x.Data[b*x.SB:], 1
				return x
			}
			one.Q, one.K, one.V = row(c.Q), row(c.K), row(c.V)
			out, _ := calltest.Forward(t, e, &one, attention.Direct)
			if !slices.Equal(out.Data, all.Data[b*all.SB:][:all.SB]) {
				t.Errorf("%s: batch row %d differs alone", name, b)
			}
		}
	}
}
