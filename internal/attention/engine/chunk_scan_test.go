package engine

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/tensor"
)

// polynomials are the mechanisms with a linear form: the calltest.Textbook's, other degrees,
// single powers and a kernel without some powers.
func polynomials() map[string]*oracle.Mechanism {
	all := maps.Clone(calltest.Textbook)
	delete(all, "softmax")
	all["fastmax3"] = &oracle.Mechanism{Norm: oracle.Bounded, Scale: 1, Coef: oracle.TaylorCoef(3)}
	all["square"] = &oracle.Mechanism{Coef: []float64{0, 0, 1}, Eps: 0.25}
	all["fourth power"] = &oracle.Mechanism{Norm: oracle.Unit, Scale: 1.5, Coef: []float64{0, 0, 0, 0, 2}, Eps: 0.1}
	all["even powers"] = &oracle.Mechanism{Norm: oracle.Unit, Scale: 1, Coef: []float64{0.3, 0, 1, 0, 0.5}}
	return all
}

// chunks are the sizes that tests try; 0 is the default.
var chunks = []int{1, 7, 64, 0}

// eachPolynomial runs f for every mechanism and call that have a linear form.
func eachPolynomial(t *testing.T, f func(t *testing.T, name string, m *oracle.Mechanism, c *oracle.Call)) {
	for what, c := range calltest.Problems() {
		if c.AttnKeep != nil {
			continue
		}
		for name, m := range polynomials() {
			if m.OutputNorm && c.LogG.D > 0 {
				continue // refused: see TestOutputNormRefusesDecay
			}
			if calltest.IsTried(name, c) {
				t.Run(name+"/"+what, func(t *testing.T) { f(t, name, m, c) })
			}
		}
	}
}

// linearLimits are the limits of the linear form for rows of width d.
func linearLimits(e attention.Mechanism, d, chunk int) check.Limits {
	p := e.Plan(attention.Shape{B: 1, H: 1, Hkv: 1, N: 1, M: 1, D: d, Dv: 1, Form: attention.Linear, Chunk: chunk})
	return check.LinearLimits[float](p.F, p.Chunk)
}

func TestLinearAgainstTextbook(t *testing.T) {
	eachPolynomial(t, func(t *testing.T, name string, m *oracle.Mechanism, c *oracle.Call) {
		t.Parallel()
		want := m.Forward(c)
		do := calltest.Normal(rand.New(rand.NewPCG(3, 4)), c.Q.B, c.Q.H, c.Q.N, c.V.D)
		grads := m.Backward(c, do)
		list := chunks
		if c.Q.N*c.K.N >= 4096 && !suite.IsLong() {
			list = chunks[2:] // short problems have all
		}
		for _, chunk := range list {
			linearAgainst(t, name, chunk, m, c, do, want, grads)
		}
	})
}

func linearAgainst(t *testing.T, name string, chunk int, m *oracle.Mechanism, c *oracle.Call, do oracle.Heads, want *oracle.Result, grads *oracle.Grads) {
	t.Helper()
	e, call := mechanismOf(t, name, m), calltest.NewCall(c)
	call.Chunk = chunk
	limits := linearLimits(e, c.Q.D, chunk)
	out, keep := calltest.Forward(t, e, call, attention.Linear)
	calltest.Judge(t, limits, m, c, want, out, keep)
	for i, den := range keep.Den {
		if (den == 0) != (want.Cond[i] == 0) {
			t.Fatalf("chunk %d: row %d has denominator %v, its condition is %v", chunk, i, den, want.Cond[i])
		}
	}
	g, dtau := calltest.Backward(t, e, call, calltest.Convert(do), out, keep)
	calltest.JudgeGrads(t, limits, c, do, want, grads, g, dtau)
}

func mustNew(t *testing.T, s attention.Spec) attention.Mechanism {
	t.Helper()
	e, err := newMechanism(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// squares maps x to x/2 and x²/4: prepared rows are wider than given ones.
type squares struct{}

func (squares) Dim(d int) int { return 2 * d }

func (squares) Map(dst, x []float) {
	for i, v := range x {
		dst[i], dst[len(x)+i] = v/2, v*v/4
	}
}

func (squares) Grad(dx, dy, x []float) {
	for i, v := range x {
		dx[i] = dy[i]/2 + dy[len(x)+i]*v/2
	}
}

func TestLinearThreads(t *testing.T) {
	defer par.SetThreads(0)
	r := rand.New(rand.NewPCG(10, 11))
	for name, m := range polynomials() {
		e := mechanismOf(t, name, m)
		for _, causal := range []bool{false, true} {
			c := calltest.NewCall(&oracle.Call{
				Q: calltest.Normal(r, 3, 4, 90, 6), K: calltest.Normal(r, 3, 2, 101, 6), V: calltest.Normal(r, 3, 2, 101, 7), Causal: causal,
			})
			c.Chunk = 32
			do := calltest.Convert(calltest.Normal(r, 3, 4, 90, 7))
			var first []byte
			for _, threads := range []int{1, 2, 5} {
				par.SetThreads(threads)
				out, keep := calltest.Forward(t, e, c, attention.Linear)
				g, dtau := calltest.Backward(t, e, c, do, out, keep)
				bits := bitsOf(t, out.Data, keep.Den, g.DQ.Data, g.DK.Data, g.DV.Data, dtau)
				if first == nil {
					first = bits
				}
				if !slices.Equal(first, bits) {
					t.Errorf("%s, causal %v: %d threads change bits", name, causal, threads)
				}
			}
		}
	}
}

// Scratch is lent: what a call allocates does not grow with its tokens.
func TestLinearAllocations(t *testing.T) {
	if calltest.Raced {
		t.Skip("the race detector allocates")
	}
	par.SetThreads(1)
	defer par.SetThreads(0)
	r := rand.New(rand.NewPCG(14, 15))
	e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
	for _, causal := range []bool{false, true} {
		var few float64
		for i, n := range []int{300, 1100} {
			c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 2, n, 5), K: calltest.Normal(r, 1, 1, n, 5), V: calltest.Normal(r, 1, 1, n, 3), Causal: causal})
			c.Form = attention.Linear
			out, keep := tensor.NewHeads(1, 2, n, 3), new(attention.Saved)
			g := &attention.Grads{DQ: tensor.NewHeads(1, 2, n, 5), DK: tensor.NewHeads(1, 1, n, 5), DV: tensor.NewHeads(1, 1, n, 3)}
			allocs := testing.AllocsPerRun(5, func() {
				if err := e.Forward(out, c, keep); err != nil {
					t.Fatal(err)
				}
				if err := e.Backward(g, out, out, c, keep); err != nil {
					t.Fatal(err)
				}
			})
			if i > 0 && allocs != few {
				t.Errorf("causal %v: %v allocations for %d tokens, %v for fewer", causal, allocs, n, few)
			}
			few = allocs
		}
	}
}

// What Forward leaves of the moments is what Backward would sum again, and
// nothing of it outlasts a call that leaves none.
func TestMomentsKeptForBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 17))
	e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
	c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 2, 2, 40, 6), K: calltest.Normal(r, 2, 1, 50, 6), V: calltest.Normal(r, 2, 1, 50, 3)})
	c.Chunk = 16
	do := calltest.Convert(calltest.Normal(r, 2, 2, 40, 3))
	out, keep := calltest.Forward(t, e, c, attention.Linear)
	with, _ := calltest.Backward(t, e, c, do, out, keep)
	alone := &attention.Saved{Den: keep.Den}
	without, _ := calltest.Backward(t, e, c, do, out, alone)
	if !slices.Equal(with.DQ.Data, without.DQ.Data) || !slices.Equal(with.DK.Data, without.DK.Data) || !slices.Equal(with.DV.Data, without.DV.Data) {
		t.Error("gradients differ from those without what Forward kept")
	}
	for i, past := range keep.Moments {
		if len(past) == 0 {
			t.Errorf("sequence %d keeps no moments", i)
		}
	}
	for _, form := range []attention.Form{attention.Linear, attention.Direct} {
		c.Causal = form == attention.Linear
		if c.Form = form; e.Forward(out, c, keep) != nil {
			t.Fatal("Forward fails")
		}
		for i, past := range keep.Moments {
			if len(past) != 0 {
				t.Errorf("sequence %d keeps moments in the form %v, causal %v", i, form, c.Causal)
			}
		}
	}
}

// What keys hold that do not exist, or come later, changes no bit.
func TestLinearIgnoresWhatIsHidden(t *testing.T) {
	const n = 40
	nan, inf := float(math.NaN()), float(math.Inf(1))
	r := rand.New(rand.NewPCG(8, 9))
	for name, m := range polynomials() {
		e := mechanismOf(t, name, m)
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 4, n, 5), K: calltest.Normal(r, 1, 2, n, 5), V: calltest.Normal(r, 1, 2, n, 3)})
		c.Chunk = 16
		do := calltest.Convert(calltest.Normal(r, 1, 4, n, 3))
		// spoil overwrites keys and values of every head.
		spoil := func(key, value float, tokens ...int) {
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
				return bitsOf(t, out.Data, keep.Den, g.DQ.Data, g.DK.Data, g.DV.Data, dtau)
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
