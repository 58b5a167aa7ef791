package engine

import (
	"errors"
	"fmt"
	"maps"
	"math"
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

// fadingCall returns a stateCall of n tokens with decay, and the same call for the
// oracle.
func fadingCall(n, d, dv, chunk int) (*attention.Call[float32], *oracle.Call) {
	r := rand.New(rand.NewPCG(uint64(n), 5))
	c := &oracle.Call{
		Q: calltest.Normal(r, 2, 6, n, d), K: calltest.Normal(r, 2, 2, n, d), V: calltest.Normal(r, 2, 2, n, dv), KeyMask: calltest.Flags(r, 2*n), Theta: 100,
	}
	calltest.Fade(r, c)
	call := calltest.NewCall[float32](c)
	call.Chunk = chunk
	return call, c
}

// all are the mechanisms that the tests know and that take a decay, softmax too.
func all() map[string]*oracle.Mechanism {
	list := polynomials()
	list["softmax"] = calltest.Textbook["softmax"]
	maps.DeleteFunc(list, func(_ string, m *oracle.Mechanism) bool { return m.OutputNorm })
	return list
}

// The bits of a state with decay do not depend on pieces, saving and restoring. Its
// outputs equal the causal form's.
func TestDecayPieces(t *testing.T) {
	const n = 131
	single := make([]int, n)
	for i := range single {
		single[i] = i + 1
	}
	for name, m := range all() {
		e := mechanismOf[float32](t, name, sixHeads(m))
		for _, chunk := range []int{1, 7, 64, 0} {
			c, _ := fadingCall(n, 5, 3, chunk)
			form := attention.Linear
			if m.Exp {
				form = attention.Direct
			}
			whole := mustState(t, e, c)
			want, _ := calltest.Forward(t, e, inStateChunks(whole, c), form)
			if err := whole.Absorb(c); err != nil {
				t.Fatal(err)
			}
			for way, cuts := range map[string][]int{"at once": {n}, "one by one": single, "in pieces": {1, 3, 20, 21, 64, 100, 114, 128, n}} {
				out := calltest.Poisoned[float32](2, 6, n, 3)
				st := mustState(t, e, c)
				for j, at := range cuts {
					from := 0
					if j > 0 {
						from = cuts[j-1]
					}
					steps(t, st, out, c, from, at)
					if j%7 == 3 {
						st = restored(t, e, st)
					}
					if j%7 == 5 {
						st = st.Clone()
					}
				}
				if !slices.Equal(out.Data, want.Data) {
					t.Errorf("%s, chunk %d: outputs %s differ from the causal form", name, chunk, way)
				}
				sameState(t, name+", "+way, st, whole)
			}
		}
	}
}

func mustState[T tensor.Float](t *testing.T, e attention.Mechanism[T], c *attention.Call[T]) attention.State[T] {
	t.Helper()
	st, err := e.NewState(c.Shape())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func restored(t *testing.T, e attention.Mechanism[float32], st attention.State[float32]) attention.State[float32] {
	t.Helper()
	data, err := st.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	st, err = e.RestoreState(data)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// The log-decay of a masked token that ends the second of two merged caches is still to
// come, for eps as for the keys.
func TestMergedCacheKeepsWhatWaits(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	book := &oracle.Call{Q: calltest.Normal(r, 1, 1, 4, 3), K: calltest.Normal(r, 1, 1, 4, 3), V: calltest.Normal(r, 1, 1, 4, 2), KeyMask: []bool{true, true, true, false}, Causal: true}
	book.LogG = tensor.HeadsOf([]float64{-1, -1, -1, -5}, 1, 1, 4, 1)
	c := calltest.NewCall[float64](book)
	e := mustNew(t, attention.Spec[float64]{Name: "square", Similarity: similarityOf[float64](func(x float64) float64 { return 1 + x*x }, func(x float64) float64 { return 2 * x }), Positive: true, Eps: 0.5})
	whole, a, b := mustState(t, e, c), mustState(t, e, c), mustState(t, e, c)
	for st, cut := range map[attention.State[float64]][2]int{whole: {0, 4}, a: {0, 2}, b: {2, 4}} {
		if err := st.Absorb(tokens(c, cut[0], cut[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Merge(b); err != nil {
		t.Fatal(err)
	}
	query := &attention.Call[float64]{Q: c.Q.Tokens(3, 4)}
	got, want := tensor.NewHeads[float64](1, 1, 1, 2), tensor.NewHeads[float64](1, 1, 1, 2)
	if err := errors.Join(a.Read(got, query), whole.Read(want, query)); err != nil {
		t.Fatal(err)
	}
	if ratio := check.ErrorRatio(got.Data, want.Data, 1e-14); ratio > 1 {
		t.Errorf("merged %v, in one stream %v", got.Data, want.Data)
	}
}

// Merged states are the state of one stream within the bound, with decay in
// both, in the first or in the second alone.
func TestDecayMerge(t *testing.T) {
	const n, cut = 50, 23
	for name, m := range all() {
		m := sixHeads(m)
		e := mechanismOf[float32](t, name, m)
		for _, chunk := range []int{4, 64} {
			for _, without := range [][2]int{{0, 0}, {0, cut}, {cut, n}} {
				c, book := fadingCall(n, 5, 3, chunk)
				book.Theta, c.Rope = 0, nil
				clear(book.KeyMask[cut:][:9]) // what waits goes from one to the other
				call := calltest.NewCall[float32](book)
				call.Chunk = chunk
				for h := range 4 {
					clear(book.LogG.Head(h/2, h%2).Data[without[0]:without[1]])
				}
				first, second := mustState(t, e, call), mustState(t, e, call)
				parts := []*attention.Call[float32]{tokens(call, 0, cut-5), tokens(call, cut-5, n-8)}
				for i, st := range []attention.State[float32]{first, second} {
					for j := range parts[i].K.N {
						p := tokens(parts[i], j, j+1)
						if at := j + i*(cut-5); at >= without[0] && at < without[1] {
							p.LogG = tensor.Heads[float32]{}
						}
						if err := st.Absorb(p); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := first.Merge(second); err != nil {
					t.Fatal(err)
				}
				if first.Tokens() != n-8 {
					t.Errorf("%s: merged it has %d tokens, want %d", name, first.Tokens(), n-8)
				}
				first = restored(t, e, first)
				out := calltest.Poisoned[float32](2, 6, 8, 3)
				last := tokens(call, n-8, n)
				if without[1] == n {
					last.LogG = tensor.Heads[float32]{}
				}
				if err := first.Step(out, last); err != nil {
					t.Fatal(err)
				}
				book.Q = book.Q.Tokens(n-8, n)
				l := directLimits[float32](m)
				if !m.Exp {
					l = linearLimits(e, 5, chunk)
				}
				calltest.Judge(t, l, m, book, m.Forward(book), out, nil)
			}
		}
	}
}

// Gradients are those that central differences of Forward show.
func TestDecayGradientsAreDerivatives(t *testing.T) {
	all := calltest.Problems()
	for _, what := range []string{"causal mask, decay", "packed causal rope, decay", "causal, more keys, decay", "causal pairs and mask, decay"} {
		for _, name := range []string{"taylorshift", "softmax", "square"} {
			m := polynomials()[name]
			if m == nil {
				m = calltest.Textbook[name]
			}
			for _, form := range []attention.Form{attention.Direct, attention.Linear} {
				c := calltest.NewCall[float64](all[what])
				if form == attention.Linear && (m.Exp || c.AttnKeep != nil) {
					continue
				}
				// Differences reach to both sides of 0.
				for i, x := range c.LogG.Data {
					c.LogG.Data[i] = max(x, -3) - 0.1
				}
				c.Chunk = 4
				e := mechanismOf[float64](t, name, m)
				do := calltest.Normal(rand.New(rand.NewPCG(5, 6)), c.Q.B, c.Q.H, c.Q.N, c.V.D)
				out, keep := calltest.Forward(t, e, c, form)
				g, _ := calltest.Backward(t, e, c, do, out, keep)
				want := check.NumericGradient(func() float64 {
					var s float64
					out, _ := calltest.Forward(t, e, c, form)
					for i, o := range out.Data {
						s += o * do.Data[i]
					}
					return s
				}, c.LogG.Data)
				if ratio := check.ErrorRatio(g.DLogG.Data, want, 1e-7*max(1, check.MaxAbs(want))); ratio > 1 {
					t.Errorf("%s, %s, %v: dlog_g is %v, want %v", name, what, form, g.DLogG.Data, want)
				}
			}
		}
	}
}

// However fast keys lose weight, the last one is left: outputs are finite, and
// the value of that key where nothing of the others is.
func TestDecayToNothing(t *testing.T) {
	const n = 300
	r := rand.New(rand.NewPCG(1, 9))
	for name, m := range all() {
		e := mechanismOf[float32](t, name, m)
		c := calltest.NewCall[float32](&oracle.Call{Q: calltest.Normal(r, 1, 4, n, 5), K: calltest.Normal(r, 1, 2, n, 5), V: calltest.Normal(r, 1, 2, n, 3), Causal: true})
		c.LogG = tensor.NewHeads[float32](1, 2, n, 1)
		for i := range c.LogG.Data {
			c.LogG.Data[i] = -3e38
		}
		if m.Eps > 0.01 || name == "linear" {
			continue // what is left of the sum is not much more than eps
		}
		for _, form := range []attention.Form{attention.Direct, attention.Linear, attention.Step} {
			if c.Form = form; form == attention.Linear && m.Exp {
				continue
			}
			out := calltest.Poisoned[float32](1, 4, n, 3)
			if err := e.Forward(out, c, nil); err != nil {
				t.Fatal(err)
			}
			for h := range 4 {
				for i := range n {
					for x, v := range c.V.Head(0, h/2).Row(i) {
						if o := out.Head(0, h).Row(i)[x]; math.Abs(float64(o-v)) > 1e-5*math.Abs(float64(v)) {
							t.Fatalf("%s, %v: query %d gives %v, its value is %v", name, form, i, o, v)
						}
					}
				}
			}
		}
	}
}

// Neither threads nor what stands at a key that does not exist, or at one that
// comes later, change a bit.
func TestDecayIgnoresWhatIsHidden(t *testing.T) {
	defer par.SetThreads(0)
	const n = 40
	nan := float32(math.NaN())
	for name, m := range all() {
		e := mechanismOf[float32](t, name, sixHeads(m))
		for _, form := range []attention.Form{attention.Direct, attention.Linear} {
			if form == attention.Linear && m.Exp {
				continue
			}
			c, _ := fadingCall(n, 5, 3, 16)
			do := calltest.Convert[float32](calltest.Normal(rand.New(rand.NewPCG(5, 6)), 2, 6, n, 3))
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
	e := mechanismOf[float32](t, "fastmax2", calltest.Textbook["fastmax2"])
	for want, change := range map[string]func(c *attention.Call[float32]){
		"log_g: decay needs a causal call, whose queries have a place among the keys": func(c *attention.Call[float32]) { c.Causal = false },
		"log_g: shape is [1,2,4,1], needs [1,2,5,1]":                                  func(c *attention.Call[float32]) { c.LogG = c.LogG.Tokens(0, 4) },
		"log_g: shape is [1,4,5,1], needs [1,2,5,1]":                                  func(c *attention.Call[float32]) { c.LogG = tensor.NewHeads[float32](1, 4, 5, 1) },
		"log_g: row 0, head 1, token 3 is 0.5, needs to be finite and 0 or less":      func(c *attention.Call[float32]) { c.LogG.Head(0, 1).Row(3)[0] = 0.5 },
		"log_g: row 0, head 0, token 2 is NaN, needs to be finite and 0 or less":      func(c *attention.Call[float32]) { c.LogG.Head(0, 0).Row(2)[0] = float32(math.NaN()) },
		"log_g: row 0, head 0, token 4 is -Inf, needs to be finite and 0 or less":     func(c *attention.Call[float32]) { c.LogG.Head(0, 0).Row(4)[0] = float32(math.Inf(-1)) },
	} {
		r := rand.New(rand.NewPCG(1, 1))
		c := calltest.NewCall[float32](&oracle.Call{Q: calltest.Normal(r, 1, 4, 5, 3), K: calltest.Normal(r, 1, 2, 5, 3), V: calltest.Normal(r, 1, 2, 5, 3), Causal: true})
		c.LogG = tensor.NewHeads[float32](1, 2, 5, 1)
		change(c)
		if err := e.Forward(tensor.NewHeads[float32](1, 4, 5, 3), c, nil); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
		if st := mustState(t, e, c); c.Causal && st.Absorb(c) == nil {
			t.Errorf("a state accepts %q", want)
		}
	}
}

// The state after a call has no decay where neither the call nor the state
// before it has one, whatever it held.
func TestDecayIsForgotten(t *testing.T) {
	for _, name := range []string{"fastmax2", "softmax"} {
		e := mechanismOf[float32](t, name, calltest.Textbook[name])
		c, _ := fadingCall(20, 4, 3, 8)
		c.Causal = true
		faded, plain := mustState(t, e, c), mustState(t, e, c)
		if err := faded.Absorb(c); err != nil {
			t.Fatal(err)
		}
		c.LogG, c.Final = tensor.Heads[float32]{}, faded
		if err := e.Forward(calltest.Poisoned[float32](2, 6, 20, 3), c, nil); err != nil {
			t.Fatal(err)
		}
		if err := plain.Absorb(c); err != nil {
			t.Fatal(err)
		}
		sameState(t, name, faded, plain)
	}
}

// Queries that are not causal read a state with decay as State.Read does. Their
// gradient through the state's sums equals the difference quotient.
func TestDecayBeforeUnmaskedCalls(t *testing.T) {
	const n, chunk = 9, 4
	r := rand.New(rand.NewPCG(8, 9))
	for name, m := range all() {
		if m.Tau != nil {
			continue
		}
		e := mechanismOf[float64](t, name, m)
		before := calltest.NewCall[float64](&oracle.Call{Q: calltest.Normal(r, 1, 4, 0, 5), K: calltest.Normal(r, 1, 2, n, 5), V: calltest.Normal(r, 1, 2, n, 3), Causal: true})
		before.LogG = tensor.NewHeads[float64](1, 2, n, 1)
		for i := range before.LogG.Data {
			before.LogG.Data[i] = -0.05 - 0.4*r.Float64()
		}
		c := calltest.NewCall[float64](&oracle.Call{Q: calltest.Normal(r, 1, 4, 6, 5), K: calltest.Normal(r, 1, 2, 2, 5), V: calltest.Normal(r, 1, 2, 2, 3)})
		do, out := calltest.Normal(r, 1, 4, 6, 3), tensor.NewHeads[float64](1, 4, 6, 3)
		before.Chunk, c.Chunk = chunk, chunk
		st := statesOf(t, e, c, 2, attention.Rounded)
		before.Final, c.Init = st[0], st[0]
		run := func() (loss float64, keep [2]attention.Saved[float64]) {
			if err := e.Forward(tensor.NewHeads[float64](1, 4, 0, 3), before, &keep[0]); err != nil {
				t.Fatal(err)
			}
			if err := e.Forward(out, c, &keep[1]); err != nil {
				t.Fatal(err)
			}
			for i, o := range out.Data {
				loss += o * do.Data[i]
			}
			return loss, keep
		}
		_, keep := run()
		st[1].Absorb(before)
		st[1].Absorb(c)
		read := tensor.NewHeads[float64](1, 4, 6, 3)
		if err := st[1].Read(read, c); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(out.Data, read.Data) {
			t.Errorf("%s: the outputs are not those of reading", name)
		}
		var dinit attention.StateGrad[float64]
		heads := func(h, n, d int) tensor.Heads[float64] { return tensor.NewHeads[float64](1, h, n, d) }
		g := &attention.Grads[float64]{DQ: heads(4, 6, 5), DK: heads(2, 2, 5), DV: heads(2, 2, 3), DInit: &dinit}
		if err := e.Backward(g, do, out, c, &keep[1]); err != nil {
			t.Fatal(err)
		}
		none := heads(4, 0, 3)
		g = &attention.Grads[float64]{DQ: heads(4, 0, 5), DK: heads(2, n, 5), DV: heads(2, n, 3), DLogG: heads(2, n, 1), DFinal: &dinit}
		if err := e.Backward(g, none, none, before, &keep[0]); err != nil {
			t.Fatal(err)
		}
		want := check.NumericGradient(func() float64 { loss, _ := run(); return loss }, before.LogG.Data)
		if ratio := check.ErrorRatio(g.DLogG.Data, want, 1e-7*max(1, check.MaxAbs(want))); ratio > 1 {
			t.Errorf("%s: dlog_g is %v, want %v", name, g.DLogG.Data, want)
		}
	}
}

// Rows whose weights nearly cancel are judged by what is left of their keys.
func TestDecayedWeakRows(t *testing.T) {
	c, book := fadingCall(60, 5, 3, 16)
	m := calltest.Textbook["fastmax1"]
	_, keep := calltest.Forward(t, mechanismOf[float32](t, "fastmax1", m), c, attention.Linear)
	want := m.Forward(book)
	var weak int64
	for i, den := range want.Den {
		b, h, at := i/360, i/60%6, i%60
		var left float64
		sum := 0.0
		for j := at; j >= 0; j-- {
			if book.KeyMask[b*60+j] {
				if left == 0 {
					sum = 0
				}
				left += math.Exp(sum)
			}
			sum += book.LogG.Head(b, h/3).Row(j)[0]
		}
		if left > 0 && den < 1.7*left/1024 {
			weak++
		}
	}
	if keep.WeakCount != weak {
		t.Errorf("%d weak rows, want %d", keep.WeakCount, weak)
	}
}
