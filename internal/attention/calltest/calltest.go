// Package calltest has helpers for tests of attention mechanisms: calls that use every feature,
// the same call for the reference and for an engine, and comparisons of their results. Only
// tests import it.
package calltest

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// NewCall converts a call of the reference to a call of an engine.
func NewCall(c *oracle.Call) *attention.Call {
	x := &attention.Call{
		Q: Convert(c.Q), K: Convert(c.K), V: Convert(c.V),
		Causal: c.Causal, KeyLens: c.KeyLens, KeyMask: c.KeyMask, AttnKeep: c.AttnKeep,
		CuQ: c.CuQ, CuK: c.CuK,
	}
	if c.LogG.D > 0 {
		x.LogG = Convert(c.LogG)
	}
	if c.Theta != 0 {
		x.Rope = attention.NewRope(c.Q.D, c.Theta, 0, max(c.Q.N, c.K.N))
	}
	return x
}

// Convert returns x in the element type.
func Convert(x oracle.Heads) tensor.Heads {
	y := tensor.NewHeads(x.B, x.H, x.N, x.D)
	for i, v := range x.Data {
		y.Data[i] = float(v)
	}
	return y
}

// Normal returns normally distributed numbers that float32 represents exactly.
func Normal(r *rand.Rand, b, h, n, d int) oracle.Heads {
	x := oracle.NewHeads(b, h, n, d)
	for i := range x.Data {
		x.Data[i] = float64(float32(r.NormFloat64()))
	}
	return x
}

// Flags returns n random flags, two thirds of them set on average.
func Flags(r *rand.Rand, n int) []bool {
	x := make([]bool, n)
	for i := range x {
		x[i] = r.IntN(3) > 0
	}
	return x
}

// Fade makes c causal and gives it a decay with rates of every kind: none, slow, fast, and so
// fast that earlier keys keep no weight.
func Fade(r *rand.Rand, c *oracle.Call) {
	c.Causal = true
	c.LogG = oracle.NewHeads(c.K.B, c.K.H, c.K.N, 1)
	for i := range c.LogG.Data {
		speed := []float64{0, 0.01, 0.3, 0.3, 5, 200}[r.IntN(6)]
		c.LogG.Data[i] = float64(float32(-speed * r.Float64()))
	}
}

// Problems returns calls that together use every feature. They are small and have odd sizes.
func Problems() map[string]*oracle.Call {
	r := rand.New(rand.NewPCG(7, 11))
	of := func(b, h, hkv, n, m, d, dv int) *oracle.Call {
		return &oracle.Call{Q: Normal(r, b, h, n, d), K: Normal(r, b, hkv, m, d), V: Normal(r, b, hkv, m, dv)}
	}
	with := func(c *oracle.Call, change func(c *oracle.Call)) *oracle.Call { change(c); return c }
	all := map[string]*oracle.Call{
		"cross":             of(2, 4, 4, 5, 7, 6, 3),
		"one channel":       of(1, 4, 4, 5, 4, 1, 1),
		"one key":           of(1, 4, 4, 3, 1, 5, 17),
		"no key":            of(1, 4, 4, 3, 0, 5, 2),
		"no query":          of(1, 4, 4, 0, 3, 5, 2),
		"groups":            of(2, 4, 2, 7, 5, 5, 9),
		"one group":         of(1, 4, 1, 7, 5, 5, 9),
		"causal":            with(of(2, 4, 2, 9, 9, 5, 3), func(c *oracle.Call) { c.Causal = true }),
		"causal, more keys": with(of(1, 4, 4, 3, 8, 5, 3), func(c *oracle.Call) { c.Causal = true }),
		"causal, fewer keys": with(of(1, 4, 2, 8, 3, 5, 3), func(c *oracle.Call) {
			c.Causal = true
		}),
		"lengths": with(of(3, 4, 2, 4, 6, 5, 3), func(c *oracle.Call) { c.KeyLens = []int64{6, 0, 2} }),
		"causal lengths": with(of(3, 4, 2, 6, 6, 5, 3), func(c *oracle.Call) {
			c.Causal, c.KeyLens = true, []int64{6, 0, 2}
		}),
		"mask": with(of(3, 4, 2, 4, 7, 5, 3), func(c *oracle.Call) { c.KeyMask = Flags(r, 21) }),
		"causal mask": with(of(2, 4, 2, 7, 7, 5, 3), func(c *oracle.Call) {
			c.Causal, c.KeyMask = true, Flags(r, 14)
			c.KeyMask[0], c.KeyMask[1] = false, false
		}),
		"pairs": with(of(2, 4, 2, 6, 7, 5, 3), func(c *oracle.Call) {
			c.AttnKeep = Flags(r, 42)
			clear(c.AttnKeep[7:14])
		}),
		"causal pairs and mask": with(of(2, 4, 2, 6, 7, 5, 3), func(c *oracle.Call) {
			c.Causal, c.AttnKeep, c.KeyMask = true, Flags(r, 42), Flags(r, 14)
		}),
		"rope":        with(of(1, 4, 2, 6, 7, 7, 3), func(c *oracle.Call) { c.Theta = 100 }),
		"causal rope": with(of(2, 4, 2, 4, 7, 6, 3), func(c *oracle.Call) { c.Causal, c.Theta = true, 100 }),
		"packed": with(of(1, 4, 2, 9, 11, 5, 3), func(c *oracle.Call) {
			c.CuQ, c.CuK = []int64{0, 2, 2, 6, 9}, []int64{0, 5, 6, 6, 11}
		}),
		"packed causal rope": with(of(1, 4, 2, 9, 11, 6, 3), func(c *oracle.Call) {
			c.Causal, c.Theta, c.CuQ, c.CuK = true, 100, []int64{0, 2, 6, 9}, []int64{0, 3, 7, 11}
			c.KeyMask = Flags(r, 11)
		}),
		"below the blocks":  of(1, 4, 4, headtask.QueryBlock-1, headtask.KeyBlock-1, 3, 2),
		"at the blocks":     with(of(1, 4, 2, headtask.KeyBlock, headtask.KeyBlock, 5, 3), func(c *oracle.Call) { c.Causal = true }),
		"beyond the blocks": of(1, 4, 2, headtask.QueryBlock+1, headtask.KeyBlock+1, 5, 19),
		"causal beyond the blocks": with(of(1, 4, 2, 2*headtask.PanelRows+1, 2*headtask.KeyBlock+3, 5, 3), func(c *oracle.Call) {
			c.Causal = true
		}),
		"causal masked blocks": with(of(1, 4, 2, headtask.KeyBlock+37, headtask.KeyBlock+3, 5, 3), func(c *oracle.Call) {
			c.Causal, c.KeyMask = true, Flags(r, headtask.KeyBlock+3)
		}),
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if c := *all[name]; c.Causal && c.K.N < headtask.KeyBlock {
			Fade(r, &c)
			all[name+", decay"] = &c
		}
	}
	all["slow decay"] = with(of(1, 4, 2, headtask.KeyBlock+37, headtask.KeyBlock+40, 5, 16), func(c *oracle.Call) {
		Fade(r, c)
		for i := range c.LogG.Data {
			c.LogG.Data[i] = -0x1p-8
		}
	})
	all["fast decay, mask"] = with(of(1, 4, 2, 40, 50, 5, 3), func(c *oracle.Call) {
		Fade(r, c)
		c.KeyMask = slices.Repeat([]bool{true}, 50)
		clear(c.KeyMask[20:33])
		for i := range c.LogG.Data {
			c.LogG.Data[i] = -200
		}
	})
	// These draw last: committed snapshots are of calls above.
	lengths := with(of(3, 4, 2, 4, 9, 5, 3), func(c *oracle.Call) {
		c.Causal, c.KeyLens, c.KeyMask = true, []int64{9, 2, 6}, Flags(r, 27)
		for _, j := range []int{0, 1, 9, 20} {
			c.KeyMask[j] = false
		}
	})
	packed := with(of(1, 4, 2, 9, 18, 5, 3), func(c *oracle.Call) {
		c.Causal, c.CuQ, c.CuK = true, []int64{0, 2, 2, 6, 9}, []int64{0, 5, 8, 13, 18}
	})
	all["causal lengths and mask, more keys"], all["packed causal, more keys"] = lengths, packed
	fadedLengths, fadedPacked := *lengths, *packed
	Fade(r, &fadedLengths)
	Fade(r, &fadedPacked)
	all["causal lengths and mask, more keys, decay"], all["packed causal, more keys, decay"] = &fadedLengths, &fadedPacked
	return all
}

// Judge fails t if outputs, or denominators if keep has them, differ from want by more than the
// limits.
func Judge(t testing.TB, l check.Limits, m *oracle.Mechanism, c *oracle.Call, want *oracle.Result, out tensor.Heads, keep *attention.Saved) {
	t.Helper()
	maxV := check.MaxAbs(c.V.Data)
	for b := range out.B {
		for h := range out.H {
			for i := range out.N {
				at := (b*out.H+h)*out.N + i
				got, w := out.Head(b, h).Row(i), want.O.Head(b, h).Row(i)
				size := maxV
				if !m.Exp {
					size += check.MaxAbs(w)
				}
				if ratio := check.ErrorRatio(got, w, l.Output(want.Cond[at], size)); ratio > 1 {
					t.Fatalf("o[%d,%d,%d] is %v, want %v: %.2g of the limit", b, h, i, got, w, ratio)
				}
			}
		}
	}
	if keep == nil {
		return
	}
	n := c.K.N
	if c.LogG.D > 0 {
		n *= n // roundings of equal decays add up
	}
	for at, den := range keep.Den {
		cond, w := want.Cond[at], want.Den[at]
		if cond == 0 || den == float(w) { // not specified for a row without weights, or both are infinite
			continue
		}
		terms := cond * (1 + math.Abs(w))
		limit := l.Sum(n, terms)
		if c.Drop != nil { // the rounded factor of kept elements is in each term, once for each row and degree
			limit += 2 * float64(max(len(m.Coef)-1, 2)) * check.UnitRoundoff[float]() * terms
		}
		if ratio := check.ErrorRatio([]float{den}, []float64{w}, limit); ratio > 1 {
			t.Fatalf("denominator %d is %v, want %v: %.2g of the limit", at, den, w, ratio)
		}
	}
	if keep.UnseenCount != int64(want.QueriesWithoutKeys) {
		t.Errorf("%d queries see nothing, want %d", keep.UnseenCount, want.QueriesWithoutKeys)
	}
}

// JudgeGrads fails t if gradients, or dtau [H] of the temperature, differ from grads by more
// than the limits.
func JudgeGrads(t testing.TB, l check.Limits, c *oracle.Call, do oracle.Heads, want *oracle.Result, grads *oracle.Grads, g *attention.Grads, dtau []float) {
	t.Helper()
	cond := check.MaxAbs(want.Cond)
	floor := check.MaxAbs(do.Data) * check.MaxAbs(c.V.Data)
	for _, x := range []struct {
		name      string
		got       []float
		want      []float64
		tolerance float64
	}{
		{"dq", g.DQ.Data, grads.DQ.Data, 1},
		{"dk", g.DK.Data, grads.DK.Data, 1},
		{"dv", g.DV.Data, grads.DV.Data, 1},
		{"dtau", dtau, grads.DTau, float64(c.Q.N)},
		{"dlog_g", g.DLogG.Data, grads.DLogG.Data, float64(c.Q.N)},
	} {
		limit := l.Gradient(cond, max(check.MaxAbs(x.want), floor)) * x.tolerance
		if ratio := check.ErrorRatio(x.got, x.want, limit); ratio > 1 {
			t.Errorf("%s is wrong: %.3g of the limit %.3g\n got %.6g\nwant %.6g", x.name, ratio, limit, x.got, x.want)
		}
	}
}

// Forward calls e.Forward in the given form, with an output filled with NaN beforehand.
func Forward(t testing.TB, e attention.Mechanism, c *attention.Call, form attention.Form) (tensor.Heads, *attention.Saved) {
	t.Helper()
	c.Form = form
	out := Poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D)
	keep := new(attention.Saved)
	if err := e.Forward(out, c, keep); err != nil {
		t.Fatal(err)
	}
	return out, keep
}

// Backward calls e.Backward with gradients filled with NaN beforehand. It also returns a copy
// of the gradient of the temperature.
func Backward(t testing.TB, e attention.Mechanism, c *attention.Call, do, out tensor.Heads, keep *attention.Saved) (*attention.Grads, []float) {
	t.Helper()
	g := &attention.Grads{
		DQ: Poisoned(c.Q.B, c.Q.H, c.Q.N, c.Q.D),
		DK: Poisoned(c.K.B, c.K.H, c.K.N, c.K.D),
		DV: Poisoned(c.V.B, c.V.H, c.V.N, c.V.D),
	}
	if c.HasDecay() {
		g.DLogG = Poisoned(c.K.B, c.K.H, c.K.N, 1)
	}
	var dtau []float
	for _, tau := range e.Params().All() {
		clear(tau.Grad)
		dtau = tau.Grad
	}
	if err := e.Backward(g, do, out, c, keep); err != nil {
		t.Fatal(err)
	}
	return g, slices.Clone(dtau)
}

// Poisoned returns an output filled with NaN.
func Poisoned(b, h, n, d int) tensor.Heads {
	x := tensor.NewHeads(b, h, n, d)
	for i := range x.Data {
		x.Data[i] = float(math.NaN())
	}
	return x
}
