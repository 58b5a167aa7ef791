package engine

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// softmaxState returns softmax and an empty state of it for c.
func softmaxState(t *testing.T, c *attention.Call) (attention.Mechanism, attention.State) {
	t.Helper()
	e := mechanismOf(t, "softmax", calltest.Textbook["softmax"])
	st, err := e.NewState(c.Shape())
	if err != nil {
		t.Fatal(err)
	}
	return e, st
}

// The bits equal the bits of one causal call, for any pieces and in any form.
func TestCachePieces(t *testing.T) {
	const n = headtask.KeyBlock + 45
	c := stateCall(n, 5, 3, 0)
	e, _ := softmaxState(t, c)
	want, _ := calltest.Forward(t, e, c, attention.Direct)
	ones := make([]int, n)
	for i := range ones {
		ones[i] = i + 1
	}
	for name, cuts := range map[string][]int{
		"whole": {n}, "tokens": ones, "pieces": {1, 48, 60, 200, headtask.KeyBlock, headtask.KeyBlock + 1, n},
	} {
		_, st := softmaxState(t, c)
		out := calltest.Poisoned(2, 6, n, 3)
		steps(t, st, out, c, 0, cuts...)
		if !slices.Equal(out.Data, want.Data) {
			t.Errorf("%s: outputs differ from those of one call", name)
		}
		if st.Tokens() != n {
			t.Errorf("%s: %d tokens, want %d", name, st.Tokens(), n)
		}
	}
}

// Read is the call that is not causal, with what was absorbed as its keys.
func TestCacheRead(t *testing.T) {
	const n, m = 70, headtask.KeyBlock + 45
	c := stateCall(m, 5, 3, 0)
	c.Causal = false
	c.Q = c.Q.Tokens(0, n)
	e, st := softmaxState(t, c)
	out := calltest.Poisoned(2, 6, n, 3)
	if err := st.Read(out, c); err != nil {
		t.Fatal(err)
	}
	for i, o := range out.Data {
		if o != 0 {
			t.Fatalf("element %d is %v before any key", i, o)
		}
	}
	want, _ := calltest.Forward(t, e, c, attention.Direct)
	for _, cut := range [][2]int{{0, 9}, {9, 9}, {9, headtask.KeyBlock + 3}, {headtask.KeyBlock + 3, m}} {
		if err := st.Absorb(tokens(c, cut[0], cut[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Read(out, c); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(out.Data, want.Data) {
		t.Error("outputs differ from those of one call")
	}
}

// A map that widens rows widens what the cache keeps.
func TestCacheOfMappedRows(t *testing.T) {
	c := stateCall(30, 4, 3, 0)
	e := mustNew(t, attention.Spec{Name: "mapped", Exp: true, Map: squares{}, Positive: true})
	st, err := e.NewState(c.Shape())
	if err != nil {
		t.Fatal(err)
	}
	want, _ := calltest.Forward(t, e, c, attention.Direct)
	out := calltest.Poisoned(2, 6, 30, 3)
	steps(t, st, out, c, 0, 7, 30)
	if !slices.Equal(out.Data, want.Data) {
		t.Error("outputs differ from those of one call")
	}
}

func TestCacheCloneAndReset(t *testing.T) {
	const n = headtask.KeyBlock + 20
	c := stateCall(n, 4, 3, 0)
	_, st := softmaxState(t, c)
	out := calltest.Poisoned(2, 6, n, 3)
	steps(t, st, out, c, 0, 200)
	again := tensor.HeadsOf(slices.Clone(out.Data), 2, 6, n, 3)
	clone := st.Clone()
	steps(t, st, out, c, 200, n)
	if clone.Tokens() != 200 {
		t.Errorf("the clone has %d tokens, want 200", clone.Tokens())
	}
	steps(t, clone, again, c, 200, 201, n)
	if !slices.Equal(out.Data, again.Data) {
		t.Error("a clone continues with other bits")
	}
	st.Reset()
	if st.Tokens() != 0 {
		t.Errorf("%d tokens after Reset", st.Tokens())
	}
	again = calltest.Poisoned(2, 6, n, 3)
	steps(t, st, again, c, 0, n)
	if !slices.Equal(out.Data, again.Data) {
		t.Error("a state that was reset gives other bits")
	}
}

// Memory follows the tokens, and a token allocates only when it must grow.
func TestCacheGrows(t *testing.T) {
	const n = 2*headtask.KeyBlock + 10
	c := calltest.NewCall(&oracle.Call{
		Q: oracle.NewHeads(1, 2, n, 5), K: oracle.NewHeads(1, 1, n, 5), V: oracle.NewHeads(1, 1, n, 3),
	})
	_, st := softmaxState(t, c)
	if b := st.Bytes(); b != 0 {
		t.Errorf("an empty cache holds %d bytes", b)
	}
	out := tensor.NewHeads(1, 2, n, 3)
	steps(t, st, out, c, 0, n)
	if b, least := st.Bytes(), int64(n*(4*(5+3)+1)); b < least || b > 8*least {
		t.Errorf("%d bytes for %d tokens, their rows have %d", b, n, least)
	}
	if calltest.Raced {
		return
	}
	token, o := tokens(c, 0, 1), out.Tokens(0, 1)
	if allocs := testing.AllocsPerRun(100, func() {
		if err := st.Step(o, token); err != nil {
			t.Fatal(err)
		}
	}); allocs >= 1 {
		t.Errorf("a token allocates %v times", allocs)
	}
}

func TestCacheRefuses(t *testing.T) {
	c := stateCall(6, 4, 3, 0)
	_, st := softmaxState(t, c)
	out := calltest.Poisoned(2, 6, 6, 3)
	for _, x := range []struct {
		want   string
		change func(c *attention.Call)
	}{
		{"key_lengths: ", func(c *attention.Call) { c.KeyLens = []int64{6, 6} }},
		{"attn_keep: ", func(c *attention.Call) { c.AttnKeep = make([]bool, 36) }},
		{"cu_q: ", func(c *attention.Call) { c.CuQ = []int64{0, 6} }},
		{"keymask: has 3 elements", func(c *attention.Call) { c.KeyMask = c.KeyMask[:3] }},
		{"k: D is 5, the state has 4", func(c *attention.Call) { c.K = tensor.NewHeads(2, 2, 6, 5) }},
		{"v: Dv is 4, the state has 3", func(c *attention.Call) { c.V = tensor.NewHeads(2, 2, 6, 4) }},
		{"q: has 2 heads, the state has 6", func(c *attention.Call) { c.Q = tensor.NewHeads(2, 2, 6, 4) }},
	} {
		call := *c
		x.change(&call)
		if err := st.Step(out, &call); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error %v, want one that says %q", err, x.want)
		}
	}
	if st.Tokens() != 0 {
		t.Errorf("%d tokens after refusals", st.Tokens())
	}
}

func TestCacheIgnoresMaskedTokens(t *testing.T) {
	c := stateCall(40, 5, 3, 0)
	_, st := softmaxState(t, c)
	want := calltest.Poisoned(2, 6, 40, 3)
	steps(t, st, want, c, 0, 40)
	for b := range 2 {
		for j := range 40 {
			if c.KeyMask[b*40+j] {
				continue
			}
			for h := range 2 {
				c.K.Head(b, h).Row(j)[0] = float(math.NaN())
				c.V.Head(b, h).Row(j)[0] = float(math.Inf(1))
			}
		}
	}
	_, st = softmaxState(t, c)
	out := calltest.Poisoned(2, 6, 40, 3)
	steps(t, st, out, c, 0, 11, 40)
	if !slices.Equal(out.Data, want.Data) {
		t.Error("masked tokens change outputs")
	}
}

// The step form of every call has the bits of the direct form.
func TestCacheStepForm(t *testing.T) {
	for name, p := range calltest.Problems() {
		if p.AttnKeep != nil {
			continue
		}
		c := calltest.NewCall(p)
		e := mechanismOf(t, "softmax", calltest.Textbook["softmax"])
		want, _ := calltest.Forward(t, e, c, attention.Direct)
		got := calltest.Poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D)
		c.Form = attention.Step
		if err := e.Forward(got, c, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(got.Data, want.Data) {
			t.Errorf("%s: step form gives other bits", name)
		}
	}
}
