package engine

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/suite"
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
		if name == "linear" && c.Q.N*c.K.N >= 4096 && !suite.IsLong() {
			return // its form is that of fastmax2 with another function
		}
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

// bitsOf returns the bytes of numbers.
func bitsOf(t *testing.T, lists ...[]float) (bits []byte) {
	t.Helper()
	for _, x := range lists {
		var err error
		if bits, err = binary.Append(bits, binary.LittleEndian, x); err != nil {
			t.Fatal(err)
		}
	}
	return bits
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
			bits := bitsOf(t, out.Data, keep.Den, g.DQ.Data, g.DK.Data, g.DV.Data, dtau)
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

// What a query does not see changes no bit of its output, were it NaN.
func TestDirectIgnoresWhatIsHidden(t *testing.T) {
	const n, m = headtask.KeyBlock + 9, headtask.KeyBlock + 21
	nan, inf := float(math.NaN()), float(math.Inf(1))
	r := rand.New(rand.NewPCG(8, 9))
	for name, mech := range calltest.Textbook {
		e := mechanismOf(t, name, mech)
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 4, n, 5), K: calltest.Normal(r, 1, 2, m, 5), V: calltest.Normal(r, 1, 2, m, 3)})

		// set overwrites a key and its value in every head.
		set := func(j int, x float) {
			for h := range c.K.H {
				for _, row := range [][]float{c.K.Head(0, h).Row(j), c.V.Head(0, h).Row(j)} {
					for i := range row {
						row[i] = x
					}
				}
			}
		}
		same := func(what string, a, b tensor.Heads, rows int) {
			t.Helper()
			for h := range a.H {
				for i := range rows {
					if !slices.Equal(a.Head(0, h).Row(i), b.Head(0, h).Row(i)) {
						t.Fatalf("%s: %s changes query %d of head %d", name, what, i, h)
					}
				}
			}
		}

		c.KeyMask = slices.Repeat([]bool{true}, m)
		for _, j := range []int{0, 7, headtask.KeyBlock, m - 1} {
			c.KeyMask[j] = false
		}
		before, keep := calltest.Forward(t, e, c, attention.Direct)
		do := calltest.Convert(calltest.Normal(r, 1, 4, n, 3))
		g0, _ := calltest.Backward(t, e, c, do, before, keep)
		set(0, nan)
		set(7, inf)
		set(headtask.KeyBlock, -inf)
		set(m-1, nan)
		after, keep := calltest.Forward(t, e, c, attention.Direct)
		g1, _ := calltest.Backward(t, e, c, do, after, keep)
		same("a masked key", before, after, n)
		if !slices.Equal(g0.DQ.Data, g1.DQ.Data) || !slices.Equal(g0.DK.Data, g1.DK.Data) || !slices.Equal(g0.DV.Data, g1.DV.Data) {
			t.Errorf("%s: a masked key changes gradients", name)
		}
		for _, j := range []int{0, 7, headtask.KeyBlock, m - 1} {
			set(j, 1)
		}
		c.KeyMask = nil

		c.AttnKeep = slices.Repeat([]bool{true}, n*m)
		for i := range n {
			c.AttnKeep[i*m+3] = i%2 == 0
			c.AttnKeep[i*m+headtask.KeyBlock+3] = false
		}
		before, _ = calltest.Forward(t, e, c, attention.Direct)
		set(3, nan)
		set(headtask.KeyBlock+3, inf)
		after, _ = calltest.Forward(t, e, c, attention.Direct)
		for h := range before.H {
			for i := 1; i < n; i += 2 {
				if !slices.Equal(before.Head(0, h).Row(i), after.Head(0, h).Row(i)) {
					t.Fatalf("%s: a pair that is not kept changes query %d", name, i)
				}
				if o := after.Head(0, h).Row(i - 1)[0]; o == o {
					t.Fatalf("%s: query %d sees a NaN and gives %v", name, i-1, o)
				}
			}
		}
		set(3, 1)
		set(headtask.KeyBlock+3, 1)
		c.AttnKeep = nil

		c.Causal = true
		const at = headtask.KeyBlock + 5 // query from which on keys change
		before, _ = calltest.Forward(t, e, c, attention.Direct)
		for j := at + m - n; j < m; j++ {
			set(j, nan)
		}
		after, _ = calltest.Forward(t, e, c, attention.Direct)
		same("a later key", before, after, at)
		c.Q, c.K, c.V = c.Q.Tokens(0, at), c.K.Tokens(0, at+m-n), c.V.Tokens(0, at+m-n)
		shorter, _ := calltest.Forward(t, e, c, attention.Direct)
		same("appending tokens", before, shorter, at)
	}
}

// Logits of 400 overflow the exponential and underflow it.
func TestSoftmaxOfLargeLogits(t *testing.T) {
	e, err := newMechanism(attention.Spec{Name: "softmax", Exp: true, Scale: 1, Positive: true})
	if err != nil {
		t.Fatal(err)
	}
	const m = headtask.KeyBlock + 40 // the largest logits come last, in another block
	c := &attention.Call{
		Q: tensor.HeadsOf([]float{20, -20}, 1, 1, 2, 1),
		K: tensor.NewHeads(1, 1, m, 1), V: tensor.NewHeads(1, 1, m, 1),
	}
	for j := range m {
		c.K.Data[j] = 40*float(j)/(m-1) - 20
		c.V.Data[j] = float(j)
	}
	out, keep := calltest.Forward(t, e, c, attention.Direct)
	// Neighbouring logits differ by x = 800/(m-1): the sum is geometric.
	x := math.Exp(-800 / float64(m-1))
	for i, want := range []float64{float64(m-1) - x/(1-x), x / (1 - x)} {
		if got := float64(out.Data[i]); math.Abs(got-want) > 1e-4*max(1, want) {
			t.Errorf("o[%d] is %v, want %v", i, got, want)
		}
		if got, want := float64(keep.Den[i]), 400-math.Log(1-x); math.Abs(got-want) > 1e-4 {
			t.Errorf("den[%d] is %v, want %v", i, got, want)
		}
	}
	g, _ := calltest.Backward(t, e, c, tensor.HeadsOf([]float{1, 1}, 1, 1, 2, 1), out, keep)
	for _, x := range slices.Concat(g.DQ.Data, g.DK.Data, g.DV.Data) {
		if x-x != 0 {
			t.Fatalf("a gradient is %v", x)
		}
	}
	if sum := check.MaxAbs(g.DV.Data); sum == 0 {
		t.Error("no gradient reaches the values")
	}
}

// Scores that grow by hundreds from key to key, here and there, make rows
// change their power within a block and between blocks.
func TestSoftmaxOfGrowingLogits(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 17))
	const n, m = headtask.PanelRows + 3, 2*headtask.KeyBlock + 5
	c := &oracle.Call{Q: calltest.Normal(r, 1, 4, n, 3), K: calltest.Normal(r, 1, 2, m, 3), V: calltest.Normal(r, 1, 2, m, 3), Causal: true}
	most := 0.0
	for i := range c.K.Data {
		c.K.Data[i] *= float64(1 + 60*(i/3%headtask.KeyBlock)/headtask.KeyBlock)
		most = max(most, math.Abs(c.K.Data[i]))
	}
	c.KeyMask = slices.Repeat([]bool{true}, m)
	c.KeyMask[0], c.KeyMask[headtask.KeyBlock] = false, false
	most *= math.Sqrt(3) * check.MaxAbs(c.Q.Data) // of |q·k|, the scale being 1/√3
	mech := calltest.Textbook["softmax"]
	want := mech.Forward(c)
	do := calltest.Normal(r, 1, 4, n, 3)
	grads := mech.Backward(c, do)
	e, call := mechanismOf(t, "softmax", mech), calltest.NewCall(c)
	out, keep := calltest.Forward(t, e, call, attention.Direct)
	limit := 8 * 0x1p-24 * (1 + most) * check.MaxAbs(c.V.Data)
	if ratio := check.ErrorRatio(out.Data, want.O.Data, limit); ratio > 1 {
		t.Errorf("outputs are off by %.3g of the limit", ratio)
	}
	g, _ := calltest.Backward(t, e, call, calltest.Convert(do), out, keep)
	for _, x := range []struct {
		name string
		got  []float
		want []float64
	}{{"dq", g.DQ.Data, grads.DQ.Data}, {"dk", g.DK.Data, grads.DK.Data}, {"dv", g.DV.Data, grads.DV.Data}} {
		limit := 16 * 0x1p-24 * (1 + most) * max(check.MaxAbs(x.want), check.MaxAbs(do.Data)*check.MaxAbs(c.V.Data))
		if ratio := check.ErrorRatio(x.got, x.want, limit); ratio > 1 {
			t.Errorf("%s is off by %.3g of the limit", x.name, ratio)
		}
	}
}

// Queries that are read where they are, and numerators that are summed where
// the outputs will be, give the bits of those that are copied: rows may lie
// close to each other or far apart, in a multiple of the cache's sets or not.
func TestInPlace(t *testing.T) {
	e, err := newMechanism(attention.Spec{Name: "softmax", Exp: true, Positive: true})
	if err != nil {
		t.Fatal(err)
	}
	const h, n, d = 2, headtask.QueryBlock + 21, 24
	r := rand.New(rand.NewPCG(8, 1))
	q := calltest.Convert(calltest.Normal(r, 1, h, n, d))
	const m, dv = headtask.KeyBlock + 7, 16
	c := &attention.Call{Q: q, K: calltest.Convert(calltest.Normal(r, 1, 1, m, d)), V: calltest.Convert(calltest.Normal(r, 1, 1, m, dv))}
	want, _ := calltest.Forward(t, e, c, attention.Direct)
	for _, width := range []int{h * d, h*d + 1, 64, 256, 1024} {
		c.Q = tensor.Split(make([]float, n*width), 1, n, width, 0, h, d)
		for i := range h {
			for j := range n {
				copy(c.Q.Head(0, i).Row(j), q.Head(0, i).Row(j))
			}
		}
		out := tensor.Split(make([]float, n*width), 1, n, width, 0, h, dv)
		if err := e.Forward(out, c, nil); err != nil {
			t.Fatal(err)
		}
		for i := range h {
			for j := range n {
				if !slices.Equal(out.Head(0, i).Row(j), want.Head(0, i).Row(j)) {
					t.Fatalf("rows %d apart change the bits of query %d of head %d", width, j, i)
				}
			}
		}
	}
}
