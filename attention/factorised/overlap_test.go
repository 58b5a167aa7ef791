package factorised

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// overlapCall is a causal call, its outputs and its gradients, each in memory of its own.
type overlapCall struct {
	c         *attention.Call
	out, dout tensor.Heads
	g         attention.Grads
	keep      attention.Saved
}

var overlapSpecs = map[string]attention.Spec{
	"softmax": {Name: "softmax", Setting: "s", Exp: true, Positive: true},
	"sums":    {Name: "sums", Setting: "s", Coef: []float64{1, 1, 0.5}},
	"window":  {Name: "window", Setting: "s", Coef: []float64{1, 1, 0.5}, Window: &attention.Window{Width: 3}},
}

func newOverlapCall(decay bool) *overlapCall {
	r := rand.New(rand.NewPCG(3, 5))
	random := func(b, h, n, d int) tensor.Heads {
		x := tensor.NewHeads(b, h, n, d)
		for i := range x.Data {
			x.Data[i] = tensor.Float(r.NormFloat64())
		}
		return x
	}
	const b, h, n, d = 2, 2, 6, 4
	x := &overlapCall{c: &attention.Call{Q: random(b, h, n, d), K: random(b, h, n, d), V: random(b, h, n, d), Causal: true}}
	if decay {
		x.c.LogG = tensor.NewHeads(b, h, n, 1)
	}
	x.out, x.dout = random(b, h, n, d), random(b, h, n, d)
	x.g = attention.Grads{DQ: random(b, h, n, d), DK: random(b, h, n, d), DV: random(b, h, n, d)}
	if decay {
		x.g.DLogG = tensor.NewHeads(b, h, n, 1)
	}
	return x
}

func TestOutputsThatOverlapAreRefused(t *testing.T) {
	for name, s := range overlapSpecs {
		m, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		checkOverlapsRefused(t, name, m)
	}
}

// checkOverlapsRefused makes calls of m whose outputs overlap something, and looks for the
// names of both in the error. Nothing may be written.
func checkOverlapsRefused(t *testing.T, name string, m attention.Mechanism) {
	t.Helper()
	decay := m.Traits().Decay
	refused := func(what string, err error, names ...string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s: overlaps %s,", names[0], names[1])) {
			t.Errorf("%s: %s: error is %v, needs %q", name, what, err, names)
		}
	}
	x := newOverlapCall(decay)
	inputs := map[string]tensor.Heads{"q": x.c.Q, "k": x.c.K, "v": x.c.V}
	if err := m.Forward(x.out, x.c, &x.keep); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	st, err := m.NewState(x.c.Shape())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for in, data := range inputs {
		before := append([]tensor.Float(nil), data.Data...)
		refused("Forward", m.Forward(data, x.c, nil), "o", in)
		refused("Forward for a gradient", m.Forward(data, x.c, new(attention.Saved)), "o", in)
		c := *x.c
		c.Form = attention.Step
		refused("Forward by steps", m.Forward(data, &c, nil), "o", in)
		refused("Step", st.Step(data, x.c), "o", in)
		if in == "q" {
			refused("Read", st.Read(data, x.c), "o", in)
		}
		g := x.g
		g.DQ = data
		refused("Backward", m.Backward(&g, x.dout, x.out, x.c, &x.keep), "dq", in)
		g = x.g
		g.DV = data
		refused("Backward", m.Backward(&g, x.dout, x.out, x.c, &x.keep), "dv", in)
		for i, y := range data.Data {
			if y != before[i] {
				t.Fatalf("%s: %s is written by a call that is refused", name, in)
			}
		}
	}
	if st.Tokens() != 0 {
		t.Errorf("%s: a step that is refused has absorbed %d tokens", name, st.Tokens())
	}
	part := x.c.K
	part.Data = append(x.c.K.Data[:0:0], append(x.c.K.Data, make([]tensor.Float, 8)...)...)
	behind := part
	behind.Data = part.Data[8:]
	c := *x.c
	c.K = part
	refused("Forward into a part of k", m.Forward(behind, &c, nil), "o", "k")
	for _, y := range []struct {
		what  string
		with  func(g *attention.Grads)
		names [2]string
	}{
		{"dk is dq", func(g *attention.Grads) { g.DK = g.DQ }, [2]string{"dk", "dq"}},
		{"dv is dk", func(g *attention.Grads) { g.DV = g.DK }, [2]string{"dv", "dk"}},
		{"dq is do", func(g *attention.Grads) { g.DQ = x.dout }, [2]string{"dq", "do"}},
		{"dk is o", func(g *attention.Grads) { g.DK = x.out }, [2]string{"dk", "o"}},
	} {
		g := x.g
		y.with(&g)
		refused(y.what, m.Backward(&g, x.dout, x.out, x.c, &x.keep), y.names[0], y.names[1])
	}
	same := x.out
	same.SB = 0
	if err := m.Forward(same, x.c, nil); err == nil || !strings.Contains(err.Error(), "o: its elements overlap") {
		t.Errorf("%s: an output of stride 0: error is %v", name, err)
	}
	if decay {
		g := x.g
		g.DLogG = x.c.LogG
		refused("Backward", m.Backward(&g, x.dout, x.out, x.c, &x.keep), "d_log_g", "log_g")
	}
	if len(x.keep.Den) > 0 {
		den := tensor.HeadsOf(x.keep.Den, 2, 2, 6, 1)
		g := x.g
		if decay {
			g.DLogG = den
			refused("Backward", m.Backward(&g, x.dout, x.out, x.c, &x.keep), "d_log_g", "saved")
		}
	}
	if err := m.Backward(&x.g, x.dout, x.out, x.c, &x.keep); err != nil {
		t.Errorf("%s: after calls that were refused: %v", name, err)
	}
}

// Gradients of one projection interleave.
func TestInterleavedGradientsAreNoOverlap(t *testing.T) {
	m, err := New(overlapSpecs["sums"])
	if err != nil {
		t.Fatal(err)
	}
	x := newOverlapCall(false)
	if err := m.Forward(x.out, x.c, &x.keep); err != nil {
		t.Fatal(err)
	}
	const b, h, n, d = 2, 2, 6, 4
	data := make([]tensor.Float, b*n*3*h*d)
	split := func(i int) tensor.Heads { return tensor.Split(data, b, n, 3*h*d, i*h*d, h, d) }
	if err := m.Backward(&attention.Grads{DQ: split(0), DK: split(1), DV: split(2)}, x.dout, x.out, x.c, &x.keep); err != nil {
		t.Error(err)
	}
}
