package attention

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// forward is Forward in one form, into an output that begins as NaN.
func forward[T tensor.Float](t *testing.T, e Mechanism[T], c *Call[T], form Form) (tensor.Heads[T], *Saved[T]) {
	t.Helper()
	c.Form = form
	out := unset[T](c.Q.B, c.Q.H, c.Q.N, c.V.D)
	keep := new(Saved[T])
	if err := e.Forward(out, c, keep); err != nil {
		t.Fatal(err)
	}
	return out, keep
}

func backward[T tensor.Float](t *testing.T, e Mechanism[T], c *Call[T], do, out tensor.Heads[T], keep *Saved[T]) (*Grads[T], []T) {
	t.Helper()
	g := &Grads[T]{
		DQ: unset[T](c.Q.B, c.Q.H, c.Q.N, c.Q.D),
		DK: unset[T](c.K.B, c.K.H, c.K.N, c.K.D),
		DV: unset[T](c.V.B, c.V.H, c.V.N, c.V.D),
	}
	var dtau []T
	if tau := e.(*engine[T]).spec.Tau; tau != nil {
		clear(tau.Grad)
		dtau = tau.Grad
	}
	if err := e.Backward(g, do, out, c, keep); err != nil {
		t.Fatal(err)
	}
	return g, dtau
}

// unset returns heads full of NaN, to see what is not written.
func unset[T tensor.Float](b, h, n, d int) tensor.Heads[T] {
	x := tensor.NewHeads[T](b, h, n, d)
	for i := range x.Data {
		x.Data[i] = T(math.NaN())
	}
	return x
}

func directLimits[T tensor.Float](m *oracle.Mechanism) check.Limits {
	if m.Exp {
		return check.Softmax[T]()
	}
	return check.Direct[T]()
}

func TestDirectAgainstTextbook(t *testing.T) {
	eachProblem(t, func(t *testing.T, name string, m *oracle.Mechanism, c *oracle.Call) {
		want := m.Forward(c)
		do := normal(rand.New(rand.NewPCG(3, 4)), c.Q.B, c.Q.H, c.Q.N, c.V.D)
		grads := m.Backward(c, do)
		directAgainst[float64](t, name, m, c, do, want, grads)
		directAgainst[float32](t, name, m, c, do, want, grads)
	})
}

func directAgainst[T tensor.Float](t *testing.T, name string, m *oracle.Mechanism, c *oracle.Call, do tensor.Heads[float64], want *oracle.Result, grads *oracle.Grads) {
	t.Helper()
	e, call := mechanismOf[T](t, name, m), callOf[T](c)
	out, keep := forward(t, e, call, Direct)
	judge(t, directLimits[T](m), m, c, want, out, keep)
	g, dtau := backward(t, e, call, convert[T](do), out, keep)
	judgeGrads(t, directLimits[T](m), c, do, want, grads, g, dtau)
}
