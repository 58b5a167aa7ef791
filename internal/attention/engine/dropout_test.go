package engine

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

func TestDropoutAgainstTextbook(t *testing.T) {
	for _, kind := range []attention.DropKind{attention.TokenDrop, attention.ElementDrop, attention.ProductDrop} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			calltest.EachProblem(t, func(t *testing.T, name string, m *oracle.Mechanism, c *oracle.Call) {
				if kind == attention.ProductDrop && (len(m.Coef) != 3 || m.Map != nil) {
					return
				}
				if long := c.Q.N*c.K.N >= 4096; long && !suite.IsLong() { // short problems have all kinds and mechanisms
					isPlain := c.KeyMask == nil && c.LogG.D == 0
					switch kind {
					case attention.TokenDrop:
						if name == "fastmax2" || c.Causal {
							return
						}
					case attention.ElementDrop:
						if name != "fastmax2" || isPlain {
							return
						}
					default:
						if !c.Causal || !isPlain {
							return
						}
					}
				}
				r := rand.New(rand.NewPCG(20, 21))
				d, book := calltest.GivenDrop(r, kind, 0.3, c)
				c.Drop = book
				want := m.Forward(c)
				do := calltest.Normal(r, c.Q.B, c.Q.H, c.Q.N, c.V.D)
				grads := m.Backward(c, do)
				droppedAgainst(t, name, m, c, d, do, want, grads)
			})
		})
	}
}

// droppedAgainst holds every form of a call with masks against the reference.
func droppedAgainst(t *testing.T, name string, m *oracle.Mechanism, c *oracle.Call, d *attention.Drop, do oracle.Heads, want *oracle.Result, grads *oracle.Grads) {
	t.Helper()
	e, call := mechanismOf(t, name, m), calltest.NewCall(c)
	call.Drop = d
	for _, form := range []attention.Form{attention.Direct, attention.Linear} {
		if form == attention.Linear && (m.Exp || c.AttnKeep != nil) {
			continue
		}
		call.Chunk = 3
		limits := directLimits(m)
		if form == attention.Linear {
			limits = linearLimits(e, c.Q.D, call.Chunk)
		}
		if d.Kind == attention.ProductDrop {
			limits = check.LinearLimits[float](headtask.Products{}.Dim(c.Q.D), call.Chunk)
		}
		out, keep := calltest.Forward(t, e, call, form)
		calltest.Judge(t, limits, m, c, want, out, keep)
		g, dtau := calltest.Backward(t, e, call, calltest.Convert(do), out, keep)
		calltest.JudgeGrads(t, limits, c, do, want, grads, g, dtau)
	}
	if c.AttnKeep != nil || d.Kind == attention.ProductDrop {
		return
	}
	call.Form = attention.Step
	out := calltest.Poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D)
	if err := e.Forward(out, call, nil); err != nil {
		t.Fatal(err)
	}
	limits := directLimits(m)
	if !m.Exp {
		limits = linearLimits(e, c.Q.D, call.Chunk)
	}
	calltest.Judge(t, limits, m, c, want, out, nil)
}

// drawn returns the masks that d draws for c, number by number, as its comment
// says.
func drawn(c *attention.Call, d *attention.Drop) *attention.Drop {
	width := headtask.BitsOf(d.Kind, c.Q.D)
	q, k := make([]bool, c.Q.B*c.Q.H*c.Q.N*width), make([]bool, c.K.B*c.K.H*c.K.N*width)
	fill := func(to []bool, key rng.Key, position int64) {
		for x := range to {
			at := uint64(position)*uint64((width+3)/4) + uint64(x/4)
			to[x] = float64(key.Uint32s(at)[x%4]) >= d.Rate*0x1p32-1
		}
	}
	for _, s := range c.Sequences() {
		off := int64(0)
		if c.Causal {
			off = int64(s.Offset)
		}
		for h := range c.Q.H {
			key := d.Key.Fold(0).Fold(uint64(s.Index)).Fold(uint64(h))
			for i := range s.N {
				fill(q[((s.Batch*c.Q.H+h)*c.Q.N+s.Q0+i)*width:][:width], key, d.Start+int64(i)+off)
			}
		}
		for h := range c.K.H {
			key := d.Key.Fold(1).Fold(uint64(s.Index)).Fold(uint64(h))
			for j := range s.Keys {
				fill(k[((s.Batch*c.K.H+h)*c.K.N+s.K0+j)*width:][:width], key, d.Start+int64(j))
			}
		}
	}
	given := &attention.Drop{Kind: d.Kind, Rate: d.Rate}
	switch d.Kind {
	case attention.TokenDrop:
		given.QTok, given.KTok = q, k
	case attention.ElementDrop:
		given.Q1, given.K1 = q, k
	case attention.ProductDrop:
		given.Q2, given.K2 = q, k
	}
	return given
}

// Neither threads nor the pieces in which a state is fed change a bit, and
// packed sequences have the masks of batch rows.
func TestDropoutInvariance(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 23))
	const b, n, d = 3, 40, 6
	for _, kind := range []attention.DropKind{attention.TokenDrop, attention.ElementDrop, attention.ProductDrop} {
		for _, name := range []string{"fastmax2", "softmax"} {
			if kind == attention.ProductDrop && name == "softmax" {
				continue
			}
			e := mechanismOf(t, name, calltest.Textbook[name])
			c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, b, 4, n, d), K: calltest.Normal(r, b, 2, n, d), V: calltest.Normal(r, b, 2, n, 5), Causal: true})
			c.Drop = &attention.Drop{Kind: kind, Rate: 0.5, Key: rng.New(3)}
			out, _ := calltest.Forward(t, e, c, attention.Auto)
			par.SetThreads(3)
			if again, _ := calltest.Forward(t, e, c, attention.Auto); !slices.Equal(out.Data, again.Data) {
				t.Errorf("%s, %v: three threads change the outputs", name, kind)
			}
			par.SetThreads(0)

			packed := *c
			packed.Q, packed.K, packed.V = inOneRow(c.Q), inOneRow(c.K), inOneRow(c.V)
			packed.CuQ = []int64{0, n, 2 * n, 3 * n}
			packed.CuK = packed.CuQ
			got, _ := calltest.Forward(t, e, &packed, attention.Auto)
			if !slices.Equal(got.Data, inOneRow(out).Data) {
				t.Errorf("%s, %v: packed sequences differ from batch rows", name, kind)
			}

			if kind == attention.ProductDrop {
				continue // states have none
			}
			var first tensor.Heads
			for _, step := range []int{n, 1, 7} {
				st, err := e.NewState(c.Shape())
				if err != nil {
					t.Fatal(err)
				}
				all := calltest.Poisoned(b, 4, n, 5)
				for i := 0; i < n; i += step {
					j := min(i+step, n)
					drop := *c.Drop
					drop.Start = int64(i)
					piece := &attention.Call{Q: c.Q.Tokens(i, j), K: c.K.Tokens(i, j), V: c.V.Tokens(i, j), Drop: &drop}
					if err := st.Step(all.Tokens(i, j), piece); err != nil {
						t.Fatal(err)
					}
				}
				if first.Data == nil {
					first = all
				} else if !slices.Equal(first.Data, all.Data) {
					t.Errorf("%s, %v: pieces of %d tokens change the outputs", name, kind, step)
				}
			}
		}
	}
}

// inOneRow packs batch rows.
func inOneRow(x tensor.Heads) tensor.Heads {
	y := tensor.NewHeads(1, x.H, x.B*x.N, x.D)
	for b := range x.B {
		for h := range x.H {
			for i := range x.N {
				copy(y.Head(0, h).Row(b*x.N+i), x.Head(b, h).Row(i))
			}
		}
	}
	return y
}

func TestNoDropout(t *testing.T) {
	r := rand.New(rand.NewPCG(24, 25))
	e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
	c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 2, 30, 6), K: calltest.Normal(r, 1, 1, 30, 6), V: calltest.Normal(r, 1, 1, 30, 5), Causal: true})
	for _, form := range []attention.Form{attention.Direct, attention.Linear} {
		c.Drop = nil
		want, _ := calltest.Forward(t, e, c, form)
		c.Drop = &attention.Drop{Kind: attention.ElementDrop, Key: rng.New(1)}
		if got, _ := calltest.Forward(t, e, c, form); !slices.Equal(got.Data, want.Data) {
			t.Errorf("%v: rate 0 changes the outputs", form)
		}
	}
}

func TestDropoutErrors(t *testing.T) {
	r := rand.New(rand.NewPCG(26, 27))
	e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
	c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 2, 3, 4), K: calltest.Normal(r, 1, 1, 5, 4), V: calltest.Normal(r, 1, 1, 5, 2)})
	out := tensor.NewHeads(1, 2, 3, 2)
	for _, x := range []struct {
		drop attention.Drop
		want string
	}{
		{attention.Drop{Rate: 1}, "dropout: rate is 1, needs 0 ≤ rate < 1"},
		{attention.Drop{Rate: -0.1}, "dropout: rate is -0.1, needs"},
		{attention.Drop{Rate: math.NaN()}, "dropout: rate is NaN, needs"},
		{attention.Drop{Kind: -1}, "dropout: kind is DropKind(-1), needs one of"},
		{attention.Drop{QTok: make([]bool, 6)}, "dropout: the mask of one side is given without the other's"},
		{attention.Drop{QTok: make([]bool, 6), KTok: make([]bool, 4)}, "mask_ktok: has 4 elements, needs 5"},
		{attention.Drop{Kind: attention.ElementDrop, QTok: make([]bool, 6)}, "mask_qtok: is for dropout 1d, the call has standard"},
		{attention.Drop{Kind: attention.ElementDrop, Q1: make([]bool, 24), K1: make([]bool, 5)}, "mask_k1: has 5 elements, needs 20"},
	} {
		c.Drop = &x.drop
		if err := e.Forward(out, c, nil); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error is %v, want %q", err, x.want)
		}
		st, _ := e.NewState(c.Shape())
		if err := st.Absorb(c); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("of a state: error is %v, want %q", err, x.want)
		}
	}
}

// Dropout of products needs a kernel of degree 2, and neither states nor steps
// have it.
func TestProductDropErrors(t *testing.T) {
	r := rand.New(rand.NewPCG(28, 29))
	c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 4, 3, 4), K: calltest.Normal(r, 1, 1, 3, 4), V: calltest.Normal(r, 1, 1, 3, 2)})
	out := tensor.NewHeads(1, 4, 3, 2)
	c.Drop = &attention.Drop{Kind: attention.ProductDrop, Rate: 0.5}
	for _, name := range []string{"softmax", "fastmax1", "fastmax4", "linear"} {
		err := mechanismOf(t, name, calltest.Textbook[name]).Forward(out, c, nil)
		if want := "dropout: quadratic needs a kernel of degree 2 without a feature map, which " + name; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
	e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
	c.Form = attention.Step
	if err := e.Forward(out, c, nil); err == nil || !strings.Contains(err.Error(), "not defined in the step form") {
		t.Errorf("step: error is %v", err)
	}
	st, _ := e.NewState(c.Shape())
	if err := st.Absorb(c); err == nil || !strings.Contains(err.Error(), "not defined for a state") {
		t.Errorf("state: error is %v", err)
	}
}

// Rows of products are as wide as D², but no more of them are held than of a
// chunk: twice the tokens take no more scratch.
func TestProductDropMemory(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	r := rand.New(rand.NewPCG(30, 31))
	e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
	var need [2]int64
	for i, n := range []int{300, 600} {
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 1, n, 12), K: calltest.Normal(r, 1, 1, n, 12), V: calltest.Normal(r, 1, 1, n, 4), Causal: true})
		c.Drop = &attention.Drop{Kind: attention.ProductDrop, Rate: 0.1}
		out, keep := calltest.Forward(t, e, c, attention.Auto)
		arena.HighWater()
		calltest.Backward(t, e, c, out, out, keep)
		need[i] = arena.HighWater()
	}
	if need[1] > need[0] {
		t.Errorf("scratch grows from %d to %d bytes", need[0], need[1])
	}
}

// What is drawn is what the key says for the row, head, position and channel,
// in every form and in packed sequences.
func TestDrawnMasks(t *testing.T) {
	all := calltest.Problems()
	for _, what := range []string{"groups", "causal", "causal, more keys", "causal, fewer keys", "causal rope", "packed", "packed causal rope", "causal beyond the blocks", "lengths"} {
		for _, name := range []string{"fastmax2", "linear", "softmax"} {
			for _, kind := range []attention.DropKind{attention.TokenDrop, attention.ElementDrop, attention.ProductDrop} {
				if kind == attention.ProductDrop && name != "fastmax2" {
					continue
				}
				e, c := mechanismOf(t, name, calltest.Textbook[name]), calltest.NewCall(all[what])
				d := &attention.Drop{Kind: kind, Rate: 0.25, Key: rng.New(7), Start: 1 << 33}
				given := drawn(c, d)
				for _, form := range []attention.Form{attention.Direct, attention.Linear, attention.Step} {
					if form == attention.Linear && name == "softmax" || form == attention.Step && kind == attention.ProductDrop {
						continue
					}
					var outs [2]tensor.Heads
					for i, d := range []*attention.Drop{d, given} {
						c.Drop, c.Form = d, form
						outs[i] = calltest.Poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D)
						if err := e.Forward(outs[i], c, nil); err != nil {
							t.Fatal(err)
						}
					}
					if !slices.Equal(outs[0].Data, outs[1].Data) {
						t.Errorf("%s, %s, %v, %v: outputs differ from those with the masks given", name, what, kind, form)
					}
				}
			}
		}
	}
}

// A diagnosis has the denominators of Forward, of the numbers that dropout leaves.
func TestDiagnosisHasDropout(t *testing.T) {
	for _, kind := range []attention.DropKind{attention.TokenDrop, attention.ElementDrop, attention.ProductDrop} {
		r := rand.New(rand.NewPCG(32, 33))
		e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 1, 6, 4), K: calltest.Normal(r, 1, 1, 6, 4), V: calltest.Normal(r, 1, 1, 6, 2)})
		c.Drop = &attention.Drop{Kind: kind, Rate: 0.6}
		_, keep := calltest.Forward(t, e, c, attention.Direct)
		found, err := e.Diagnose(c)
		if err != nil {
			t.Fatal(err)
		}
		d, least := found[0], slices.MinFunc(keep.Den, func(a, b float) int { return cmp.Compare(math.Abs(float64(a)), math.Abs(float64(b))) })
		if math.Abs(d.MinDen-float64(least)) > 1e-5*d.MaxCondition*math.Abs(d.MinDen) || d.WeakCount != keep.WeakCount {
			t.Errorf("%v: the least denominator is %v with %d weak rows, Forward has %v with %d", kind, d.MinDen, d.WeakCount, least, keep.WeakCount)
		}
	}
}
