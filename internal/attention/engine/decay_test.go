package engine

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// fadingCall returns a stateCall of n tokens with decay, and the same call for the
// oracle.
func fadingCall(n, d, dv, chunk int) (*attention.Call, *oracle.Call) {
	r := rand.New(rand.NewPCG(uint64(n), 5))
	c := &oracle.Call{
		Q: calltest.Normal(r, 2, 6, n, d), K: calltest.Normal(r, 2, 2, n, d), V: calltest.Normal(r, 2, 2, n, dv), KeyMask: calltest.Flags(r, 2*n), Theta: 100,
	}
	calltest.Fade(r, c)
	call := calltest.NewCall(c)
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
		e := mechanismOf(t, name, sixHeads(m))
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
				out := calltest.Poisoned(2, 6, n, 3)
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

func mustState(t *testing.T, e attention.Mechanism, c *attention.Call) attention.State {
	t.Helper()
	st, err := e.NewState(c.Shape())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func restored(t *testing.T, e attention.Mechanism, st attention.State) attention.State {
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

// Merged states are the state of one stream within the bound, with decay in
// both, in the first or in the second alone.
func TestDecayMerge(t *testing.T) {
	const n, cut = 50, 23
	for name, m := range all() {
		m := sixHeads(m)
		e := mechanismOf(t, name, m)
		for _, chunk := range []int{4, 64} {
			for _, without := range [][2]int{{0, 0}, {0, cut}, {cut, n}} {
				c, book := fadingCall(n, 5, 3, chunk)
				book.Theta, c.Rope = 0, nil
				clear(book.KeyMask[cut:][:9]) // what waits goes from one to the other
				call := calltest.NewCall(book)
				call.Chunk = chunk
				for h := range 4 {
					clear(book.LogG.Head(h/2, h%2).Data[without[0]:without[1]])
				}
				first, second := mustState(t, e, call), mustState(t, e, call)
				parts := []*attention.Call{tokens(call, 0, cut-5), tokens(call, cut-5, n-8)}
				for i, st := range []attention.State{first, second} {
					for j := range parts[i].K.N {
						p := tokens(parts[i], j, j+1)
						if at := j + i*(cut-5); at >= without[0] && at < without[1] {
							p.LogG = tensor.Heads{}
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
				out := calltest.Poisoned(2, 6, 8, 3)
				last := tokens(call, n-8, n)
				if without[1] == n {
					last.LogG = tensor.Heads{}
				}
				if err := first.Step(out, last); err != nil {
					t.Fatal(err)
				}
				book.Q = book.Q.Tokens(n-8, n)
				l := directLimits(m)
				if !m.Exp {
					l = linearLimits(e, 5, chunk)
				}
				calltest.Judge(t, l, m, book, m.Forward(book), out, nil)
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
		e := mechanismOf(t, name, m)
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 4, n, 5), K: calltest.Normal(r, 1, 2, n, 5), V: calltest.Normal(r, 1, 2, n, 3), Causal: true})
		c.LogG = tensor.NewHeads(1, 2, n, 1)
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
			out := calltest.Poisoned(1, 4, n, 3)
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

// The state after a call has no decay where neither the call nor the state
// before it has one, whatever it held.
func TestDecayIsForgotten(t *testing.T) {
	for _, name := range []string{"fastmax2", "softmax"} {
		e := mechanismOf(t, name, calltest.Textbook[name])
		c, _ := fadingCall(20, 4, 3, 8)
		c.Causal = true
		faded, plain := mustState(t, e, c), mustState(t, e, c)
		if err := faded.Absorb(c); err != nil {
			t.Fatal(err)
		}
		c.LogG, c.Final = tensor.Heads{}, faded
		if err := e.Forward(calltest.Poisoned(2, 6, 20, 3), c, nil); err != nil {
			t.Fatal(err)
		}
		if err := plain.Absorb(c); err != nil {
			t.Fatal(err)
		}
		sameState(t, name, faded, plain)
	}
}

// Rows whose weights nearly cancel are judged by what is left of their keys.
func TestDecayedWeakRows(t *testing.T) {
	c, book := fadingCall(60, 5, 3, 16)
	m := calltest.Textbook["fastmax1"]
	_, keep := calltest.Forward(t, mechanismOf(t, "fastmax1", m), c, attention.Linear)
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

// Neither threads nor what stands at a key that does not exist, or at one that
// comes later, change a bit.
func TestDecayIgnoresWhatIsHidden(t *testing.T) {
	defer par.SetThreads(0)
	const n = 40
	nan := float(math.NaN())
	for name, m := range all() {
		e := mechanismOf(t, name, sixHeads(m))
		for _, form := range []attention.Form{attention.Direct, attention.Linear} {
			if form == attention.Linear && m.Exp {
				continue
			}
			c, _ := fadingCall(n, 5, 3, 16)
			do := calltest.Convert(calltest.Normal(rand.New(rand.NewPCG(5, 6)), 2, 6, n, 3))
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
	e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
	for want, change := range map[string]func(c *attention.Call){
		"log_g: decay needs a causal call, whose queries have a place among the keys": func(c *attention.Call) { c.Causal = false },
		"log_g: shape is [1,2,4,1], needs [1,2,5,1]":                                  func(c *attention.Call) { c.LogG = c.LogG.Tokens(0, 4) },
		"log_g: shape is [1,4,5,1], needs [1,2,5,1]":                                  func(c *attention.Call) { c.LogG = tensor.NewHeads(1, 4, 5, 1) },
		"log_g: row 0, head 1, token 3 is 0.5, needs to be finite and 0 or less":      func(c *attention.Call) { c.LogG.Head(0, 1).Row(3)[0] = 0.5 },
		"log_g: row 0, head 0, token 2 is NaN, needs to be finite and 0 or less":      func(c *attention.Call) { c.LogG.Head(0, 0).Row(2)[0] = float(math.NaN()) },
		"log_g: row 0, head 0, token 4 is -Inf, needs to be finite and 0 or less":     func(c *attention.Call) { c.LogG.Head(0, 0).Row(4)[0] = float(math.Inf(-1)) },
	} {
		r := rand.New(rand.NewPCG(1, 1))
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 4, 5, 3), K: calltest.Normal(r, 1, 2, 5, 3), V: calltest.Normal(r, 1, 2, 5, 3), Causal: true})
		c.LogG = tensor.NewHeads(1, 2, 5, 1)
		change(c)
		if err := e.Forward(tensor.NewHeads(1, 4, 5, 3), c, nil); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
		if st := mustState(t, e, c); c.Causal && st.Absorb(c) == nil {
			t.Errorf("a state accepts %q", want)
		}
	}
}
