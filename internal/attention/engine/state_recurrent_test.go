package engine

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// stateCall is a causal, rotated and masked call of n tokens, of two batch rows
// and three query heads to each key head. Its first two keys do not exist.
func stateCall(n, d, dv, chunk int) *attention.Call {
	r := rand.New(rand.NewPCG(uint64(n), uint64(d)))
	c := calltest.NewCall(&oracle.Call{
		Q: calltest.Normal(r, 2, 6, n, d), K: calltest.Normal(r, 2, 2, n, d), V: calltest.Normal(r, 2, 2, n, dv),
		KeyMask: calltest.Flags(r, 2*n), Causal: true, Theta: 100,
	})
	for b := range 2 {
		clear(c.KeyMask[b*n:][:min(n, 2)])
	}
	c.Chunk = chunk
	return c
}

func TestStateOfNoSequencesTakesTokens(t *testing.T) {
	for name, m := range all() {
		e := mechanismOf(t, name, sixHeads(m))
		st, err := e.NewState(attention.Shape{H: 6, Hkv: 2, D: 4, Dv: 4})
		if err != nil {
			t.Fatal(err)
		}
		heads := tensor.NewHeads
		for _, n := range []int{1, 2} {
			if err := st.Step(heads(0, 6, n, 4), &attention.Call{Q: heads(0, 6, n, 4), K: heads(0, 2, n, 4), V: heads(0, 2, n, 4)}); err != nil {
				t.Errorf("%s, %d tokens: %v", name, n, err)
			}
		}
	}
}

// sixHeads returns m with a factor for each head of stateCall, where it has
// factors.
func sixHeads(m *oracle.Mechanism) *oracle.Mechanism {
	if m.Tau == nil {
		return m
	}
	six := *m
	six.Tau = []float64{0.5, 1.5, 2, 1, 0.7, 1.2}
	return &six
}

// tokens returns tokens j0 ≤ j < j1 of c.
func tokens(c *attention.Call, j0, j1 int) *attention.Call {
	p := *c
	p.Q, p.K, p.V = c.Q.Tokens(j0, j1), c.K.Tokens(j0, j1), c.V.Tokens(j0, j1)
	if c.KeyMask != nil {
		p.KeyMask = nil
		for b := range c.K.B {
			p.KeyMask = append(p.KeyMask, c.KeyMask[b*c.K.N:][j0:j1]...)
		}
	}
	if c.Rope != nil {
		p.Rope = c.Rope.Slice(j0)
	}
	if c.HasDecay() {
		p.LogG = c.LogG.Tokens(j0, j1)
	}
	return &p
}

func newState(t *testing.T, e attention.Mechanism, c *attention.Call) *RecurrentState {
	t.Helper()
	st, err := e.NewState(c.Shape())
	if err != nil {
		t.Fatal(err)
	}
	return st.(*RecurrentState)
}

// steps steps through tokens from j0 on, in pieces that end at cuts.
func steps(t *testing.T, st attention.State, out tensor.Heads, c *attention.Call, j0 int, cuts ...int) {
	t.Helper()
	for _, j1 := range cuts {
		if err := st.Step(out.Tokens(j0, j1), tokens(c, j0, j1)); err != nil {
			t.Fatal(err)
		}
		j0 = j1
	}
}

// sameState compares the bits of two states.
func sameState(t *testing.T, what string, a, b attention.State) {
	t.Helper()
	x, err := a.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.Tokens() != b.Tokens() || !slices.Equal(x, y) {
		t.Errorf("%s: states of %d and %d tokens differ", what, a.Tokens(), b.Tokens())
	}
}

// inStateChunks is c with the chunks of a state of sums.
func inStateChunks(st attention.State, c *attention.Call) *attention.Call {
	same := *c
	if s, ok := st.(*RecurrentState); ok {
		same.Chunk = s.Shape.Chunk
	}
	return &same
}

// The bits of a state and of its outputs do not depend on pieces. The outputs equal the
// causal linear form's with the same chunks.
func TestSumsPieces(t *testing.T) {
	const n, d, dv = 131, 5, 3
	single := make([]int, n)
	for i := range single {
		single[i] = i + 1
	}
	ways := map[string][]int{"at once": {n}, "one by one": single, "in pieces": {1, 3, 20, 21, 64, 100, 114, 128, n}}
	for name, m := range polynomials() {
		e := mechanismOf(t, name, sixHeads(m))
		for _, chunk := range chunks {
			c := stateCall(n, d, dv, chunk)
			whole := newState(t, e, c)
			want, _ := calltest.Forward(t, e, inStateChunks(whole, c), attention.Linear)
			if err := whole.Absorb(c); err != nil {
				t.Fatal(err)
			}
			for way, cuts := range ways {
				out := calltest.Poisoned(2, 6, n, dv)
				stepped, absorbed := newState(t, e, c), newState(t, e, c)
				steps(t, stepped, out, c, 0, cuts...)
				if !slices.Equal(out.Data, want.Data) {
					t.Errorf("%s, chunk %d: outputs %s differ from the linear form", name, chunk, way)
				}
				for j := 0; len(cuts) > 0; j, cuts = cuts[0], cuts[1:] {
					if err := absorbed.Absorb(tokens(c, j, cuts[0])); err != nil {
						t.Fatal(err)
					}
				}
				sameState(t, name+", stepped "+way, stepped, whole)
				sameState(t, name+", absorbed "+way, absorbed, whole)
			}
		}
	}
}

// The step form gives what the calltest.Textbook gives, for every kind of call.
func TestSumsStepForm(t *testing.T) {
	eachPolynomial(t, func(t *testing.T, name string, m *oracle.Mechanism, c *oracle.Call) {
		e, call := mechanismOf(t, name, m), calltest.NewCall(c)
		call.Form, call.Chunk = attention.Step, 7
		out := calltest.Poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D)
		if err := e.Forward(out, call, nil); err != nil {
			t.Fatal(err)
		}
		calltest.Judge(t, linearLimits(e, c.Q.D, 7), m, c, m.Forward(c), out, nil)
	})
}

func TestSumsCloneAndReset(t *testing.T) {
	c := stateCall(60, 4, 3, 16)
	st := newState(t, mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"]), c)
	out := calltest.Poisoned(2, 6, 60, 3)
	steps(t, st, out, c, 0, 37)
	clone, again := st.Clone(), out
	again.Data = slices.Clone(out.Data)
	sameState(t, "a clone", clone, st)
	steps(t, st, out, c, 37, 60)
	steps(t, clone, again, c, 37, 45, 60)
	sameState(t, "a clone that goes on", clone, st)
	if !slices.Equal(out.Data, again.Data) {
		t.Error("a clone goes on with other bits")
	}
	st.Reset()
	if st.Tokens() != 0 {
		t.Errorf("%d tokens after Reset", st.Tokens())
	}
	steps(t, st, again, c, 0, 60)
	if !slices.Equal(out.Data, again.Data) {
		t.Error("a state that was reset gives other bits")
	}
}

// Neither memory nor the work of a token grows with what was absorbed.
func TestSumsAreBounded(t *testing.T) {
	c := stateCall(100, 4, 3, 16)
	st := newState(t, mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"]), c)
	bytes := st.Bytes()
	out := calltest.Poisoned(2, 6, 100, 3)
	for range 3 {
		steps(t, st, out, c, 0, 100)
	}
	if b := st.Bytes(); b != bytes {
		t.Errorf("%d bytes after 300 tokens, %d before", b, bytes)
	}
	if calltest.Raced {
		return
	}
	token, o := tokens(c, 50, 51), out.Tokens(50, 51)
	if n := testing.AllocsPerRun(100, func() {
		if err := st.Step(o, token); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a token allocates %v times", n)
	}
}

func TestSumsRefuse(t *testing.T) {
	c := stateCall(6, 4, 3, 16)
	st := newState(t, mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"]), c)
	heads := tensor.NewHeads
	for _, x := range []struct {
		want   string
		change func(c *attention.Call)
	}{
		{"key_lengths: not defined", func(c *attention.Call) { c.KeyLens = []int64{6, 6} }},
		{"attn_keep: not defined", func(c *attention.Call) { c.AttnKeep = make([]bool, 36) }},
		{"cu_q: not defined", func(c *attention.Call) { c.CuQ = []int64{0, 6} }},
		{"cu_k: not defined", func(c *attention.Call) { c.CuK = []int64{0, 6} }},
		{"k: D is 5, the state has 4", func(c *attention.Call) { c.K, c.Rope = heads(2, 2, 6, 5), nil }},
		{"k: B is 1, the state has 2", func(c *attention.Call) {
			c.K, c.V, c.KeyMask = heads(1, 2, 6, 4), heads(1, 2, 6, 3), nil
		}},
		{"k: has 3 heads, the state has 2", func(c *attention.Call) { c.K, c.V = heads(2, 3, 6, 4), heads(2, 3, 6, 3) }},
		{"v: Dv is 4, the state has 3", func(c *attention.Call) { c.V = heads(2, 2, 6, 4) }},
		{"q: D is 5, the state has 4", func(c *attention.Call) { c.Q = heads(2, 6, 6, 5) }},
		{"q: has 2 heads, the state has 6", func(c *attention.Call) { c.Q = heads(2, 2, 6, 4) }},
		{"q: B is 1, the state has 2", func(c *attention.Call) { c.Q = heads(1, 6, 6, 4) }},
		{"o: shape is [2,6,6,3], needs [2,6,5,3]", func(c *attention.Call) { c.Q = heads(2, 6, 5, 4) }},
		{"keymask: has 3 elements", func(c *attention.Call) { c.KeyMask = c.KeyMask[:3] }},
		{"rope: has 2 rows, the call has 6 tokens", func(c *attention.Call) { c.Rope = attention.NewRope(4, 100, 0, 2) }},
		{"rope: rotates 3 pairs of channels, D is 4", func(c *attention.Call) { c.Rope = attention.NewRope(6, 100, 0, 9) }},
	} {
		call := *c
		x.change(&call)
		if err := st.Step(heads(2, 6, 6, 3), &call); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error %v, want one that says %q", err, x.want)
		}
	}
	five := *c
	five.Q = c.Q.Tokens(0, 5)
	if err := st.Step(heads(2, 6, 5, 3), &five); err == nil || !strings.Contains(err.Error(), "k: M is 6, a step of q has 5") {
		t.Errorf("error %v about 5 queries and 6 keys", err)
	}
	if st.Tokens() != 0 {
		t.Errorf("%d tokens after refusals", st.Tokens())
	}
}

// A state saved at any token goes on with the same bits, and its snapshot has
// the same size as any other.
func TestSumsSnapshot(t *testing.T) {
	const n = 50
	for name, m := range polynomials() {
		e := mechanismOf(t, name, sixHeads(m))
		c := stateCall(n, 4, 3, 16)
		want := calltest.Poisoned(2, 6, n, 3)
		steps(t, newState(t, e, c), want, c, 0, n)
		size := 0
		for _, cut := range []int{0, 1, 2, 15, 16, 17, 33, 48, 50} {
			st, out := newState(t, e, c), calltest.Poisoned(2, 6, n, 3)
			steps(t, st, out, c, 0, cut)
			data, err := st.AppendBinary([]byte("before"))
			if err != nil {
				t.Fatal(err)
			}
			data = data[len("before"):]
			if size == 0 {
				size = len(data)
			}
			if len(data) != size {
				t.Errorf("%s: %d bytes after %d tokens, %d after none", name, len(data), cut, size)
			}
			restored, err := e.RestoreState(data)
			if err != nil {
				t.Fatalf("%s, %d tokens: %v", name, cut, err)
			}
			sameState(t, name+", restored", restored, st)
			steps(t, restored, out, c, cut, n)
			if !slices.Equal(out.Data, want.Data) {
				t.Errorf("%s: saved after %d tokens, it goes on with other bits", name, cut)
			}
			for _, short := range []int{1, 40, len(data) / 2, len(data) - 5} {
				if _, err := e.RestoreState(data[:short]); err == nil {
					t.Errorf("%s: %d of %d bytes are accepted", name, short, len(data))
				}
			}
		}
	}
}

// Read answers as the calltest.Textbook does, with the same bits for a query alone.
func TestSumsRead(t *testing.T) {
	const n, d, dv = 37, 5, 3
	r := rand.New(rand.NewPCG(7, 8))
	for name, m := range polynomials() {
		e := mechanismOf(t, name, m)
		for _, keys := range []int{0, 1, 40, 64, 100} {
			c := &oracle.Call{Q: calltest.Normal(r, 1, 4, n, d), K: calltest.Normal(r, 1, 2, keys, d), V: calltest.Normal(r, 1, 2, keys, dv)}
			call := calltest.NewCall(c)
			call.Chunk = 32
			st := newState(t, e, call)
			if err := st.Absorb(call); err != nil {
				t.Fatal(err)
			}
			out, alone := calltest.Poisoned(1, 4, n, dv), calltest.Poisoned(1, 4, n, dv)
			if err := st.Read(out, call); err != nil {
				t.Fatal(err)
			}
			calltest.Judge(t, linearLimits(e, d, 32), m, c, m.Forward(c), out, nil)
			for i := range n {
				if err := st.Read(alone.Tokens(i, i+1), &attention.Call{Q: call.Q.Tokens(i, i+1)}); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(out.Data, alone.Data) {
				t.Errorf("%s, %d keys: queries alone get other bits", name, keys)
			}
		}
	}
}
