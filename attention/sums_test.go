package attention

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/tensor"
)

// stateCall is a causal call of n tokens with a mask, two batch rows, and
// three query heads to each key head.
func stateCall(n, d, dv, chunk int) *Call[float32] {
	r := rand.New(rand.NewPCG(uint64(n), uint64(d)))
	c := &Call[float64]{Q: randomHeads(r, 2, 6, n, d), K: randomHeads(r, 2, 2, n, d), V: randomHeads(r, 2, 2, n, dv),
		KeyMask: make([]bool, 2*n), Causal: true, Chunk: chunk, Form: Linear}
	for i := range c.KeyMask {
		c.KeyMask[i] = i%n > 1 && r.IntN(5) > 0
	}
	c.Rope = NewRope[float64](d, 10000, 0, n)
	return call32(c)
}

// tokens returns the part of c with tokens j0 ≤ j < j1.
func tokens[T tensor.Float](c *Call[T], j0, j1 int) *Call[T] {
	p := *c
	p.Q, p.K, p.V = c.Q.Tokens(j0, j1), c.K.Tokens(j0, j1), c.V.Tokens(j0, j1)
	if c.KeyMask != nil {
		p.KeyMask = nil
		for b := range c.K.B {
			p.KeyMask = append(p.KeyMask, c.KeyMask[b*c.K.N+j0:b*c.K.N+j1]...)
		}
	}
	if c.Rope != nil {
		p.Rope = c.Rope.Slice(j0)
	}
	return &p
}

func newState[T tensor.Float](t *testing.T, s Spec[T], c *Call[T]) *sums[T] {
	t.Helper()
	st, err := mustNew(t, s).NewState(c.Shape())
	if err != nil {
		t.Fatal(err)
	}
	return st.(*sums[T])
}

// steps feeds tokens from j0 on in pieces that end at cuts.
func steps[T tensor.Float](t *testing.T, st State[T], out tensor.Heads[T], c *Call[T], j0 int, cuts ...int) {
	t.Helper()
	for _, j1 := range cuts {
		if err := st.Step(out.Tokens(j0, j1), tokens(c, j0, j1)); err != nil {
			t.Fatal(err)
		}
		j0 = j1
	}
}

// sameBits compares what two states hold of their past and their open chunk.
func sameBits(t *testing.T, what string, a, b *sums[float32]) {
	t.Helper()
	if a.tokens != b.tokens {
		t.Errorf("%s: %d and %d tokens", what, a.tokens, b.tokens)
	}
	for i, x := range a.heads {
		y := b.heads[i]
		if x.n != y.n || x.first != y.first || x.holes != y.holes || x.past.some != y.past.some {
			t.Errorf("%s, head %d: open chunks differ", what, i)
			return
		}
		if x.past.some && (!slices.Equal(x.past.s, y.past.s) || !slices.Equal(x.past.z[:x.m.count], y.past.z[:x.m.count])) {
			t.Errorf("%s, head %d: moments differ", what, i)
		}
		if !slices.Equal(x.v[:x.n*x.past.ld], y.v[:x.n*x.past.ld]) || !slices.Equal(x.exist[:x.n], y.exist[:x.n]) {
			t.Errorf("%s, head %d: values of the open chunk differ", what, i)
		}
		for c := range x.u.da + 1 {
			if !slices.Equal(x.x[c*x.ld:][:x.n], y.x[c*x.ld:][:x.n]) {
				t.Errorf("%s, head %d: keys of the open chunk differ", what, i)
				break
			}
		}
	}
}

// TestPieces: the bits of a state and of its answers do not depend on the
// pieces in which tokens arrive, and are those of the causal linear form.
func TestPieces(t *testing.T) {
	const n = 131
	ones := make([]int, n)
	for i := range ones {
		ones[i] = i + 1
	}
	for _, s := range linearSpecs {
		for _, chunk := range []int{1, 7, 50, 64, 0} {
			c := stateCall(n, 5, 3, chunk)
			spec := as32(s.Spec)
			want := poisoned[float32](2, 6, n, 3)
			if err := mustNew(t, spec).Forward(want, c, nil); err != nil {
				t.Fatal(err)
			}
			whole := newState(t, spec, c)
			steps(t, whole, poisoned[float32](2, 6, n, 3), c, 0, n)
			for name, cuts := range map[string][]int{"whole": {n}, "tokens": ones, "pieces": {1, 3, 20, 21, 64, 100, 114, 128, n}} {
				st := newState(t, spec, c)
				out := poisoned[float32](2, 6, n, 3)
				steps(t, st, out, c, 0, cuts...)
				if !slices.Equal(out.Data, want.Data) {
					t.Errorf("%s, chunk %d, %s: outputs differ from the linear form", s.name, chunk, name)
				}
				sameBits(t, s.name+", "+name, st, whole)
				absorbed := newState(t, spec, c)
				j := 0
				for _, j1 := range cuts {
					if err := absorbed.Absorb(tokens(c, j, j1)); err != nil {
						t.Fatal(err)
					}
					j = j1
				}
				sameBits(t, s.name+", absorbed "+name, absorbed, whole)
				if st.Tokens() != n {
					t.Errorf("%d tokens, want %d", st.Tokens(), n)
				}
			}
		}
	}
}

// TestRead: queries asked together or alone get the same bits, and the answer
// of the textbook.
func TestRead(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, s := range linearSpecs {
		for _, m := range []int{0, 1, 40, 64, 100} {
			c := &Call[float64]{Q: randomHeads(r, 1, 4, 37, 5), K: randomHeads(r, 1, 2, m, 5), V: randomHeads(r, 1, 2, m, 3), Chunk: 32}
			want := tensor.NewHeads[float64](1, 4, 37, 3)
			cond := plain{s: s.Spec}.call(want, c)
			st := newState(t, s.Spec, c)
			if err := st.Absorb(c); err != nil {
				t.Fatal(err)
			}
			together, alone := poisoned[float64](1, 4, 37, 3), poisoned[float64](1, 4, 37, 3)
			if err := st.Read(together, c); err != nil {
				t.Fatal(err)
			}
			for i := range 37 {
				q := &Call[float64]{Q: c.Q.Tokens(i, i+1)}
				if err := st.Read(alone.Tokens(i, i+1), q); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(together.Data, alone.Data) {
				t.Errorf("%s, %d keys: queries alone get other bits", s.name, m)
			}
			f := math.Sqrt(float64(s.features(s.width(5))))
			for i, w := range want.Data {
				limit := (8 + f + math.Sqrt(32)) * 0x1p-53 * cond[i/3] * (maxAbs(c.V.Data) + maxAbs(want.Data))
				if d := math.Abs(together.Data[i] - w); !(d <= limit) {
					t.Fatalf("%s, %d keys: element %d is %g, want %g, limit %g", s.name, m, i, together.Data[i], w, limit)
				}
			}
		}
	}
}

// TestStepForm: the step form of every call is the linear form within the bound.
func TestStepForm(t *testing.T) {
	for _, s := range linearSpecs {
		for name, c := range linearCalls() {
			m := mustNew(t, s.Spec)
			want := poisoned[float64](c.Q.B, c.Q.H, c.Q.N, c.V.D)
			if err := m.Forward(want, c, nil); err != nil {
				t.Fatal(err)
			}
			cond := plain{s: s.Spec}.call(tensor.NewHeads[float64](c.Q.B, c.Q.H, c.Q.N, c.V.D), c)
			got := poisoned[float64](c.Q.B, c.Q.H, c.Q.N, c.V.D)
			c.Form = Step
			if err := m.Forward(got, c, nil); err != nil {
				t.Fatalf("%s, %s: %v", s.name, name, err)
			}
			f := math.Sqrt(float64(s.features(s.width(c.Q.D))))
			for i, w := range want.Data {
				limit := 2 * (24 + f) * 0x1p-53 * cond[i/c.V.D] * (maxAbs(c.V.Data) + maxAbs(want.Data))
				if d := math.Abs(got.Data[i] - w); !(d <= limit) {
					t.Fatalf("%s, %s: element %d is %g, linear %g, limit %g", s.name, name, i, got.Data[i], w, limit)
				}
			}
		}
	}
}

func TestCloneAndReset(t *testing.T) {
	c := stateCall(60, 4, 3, 16)
	spec := as32(linearSpecs[1].Spec)
	st := newState(t, spec, c)
	out := poisoned[float32](2, 6, 60, 3)
	steps(t, st, out, c, 0, 37)
	again := heads32(heads64(out))
	clone := st.Clone().(*sums[float32])
	sameBits(t, "clone", clone, st)
	steps(t, st, out, c, 37, 60)
	steps(t, clone, again, c, 37, 45, 60)
	sameBits(t, "continued clone", clone, st)
	if !slices.Equal(out.Data, again.Data) {
		t.Error("a clone continues with other bits")
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

// TestStateIsBounded: neither memory nor the work of a token grows with what
// was absorbed.
func TestStateIsBounded(t *testing.T) {
	c := stateCall(100, 4, 3, 16)
	c.KeyMask, c.Rope = nil, nil
	st := newState(t, as32(linearSpecs[1].Spec), c)
	bytes := st.Bytes()
	out := poisoned[float32](2, 6, 100, 3)
	steps(t, st, out, c, 0, 100)
	steps(t, st, out, c, 0, 100)
	if b := st.Bytes(); b != bytes {
		t.Errorf("%d bytes after 200 tokens, %d before", b, bytes)
	}
	token, o := tokens(c, 0, 1), out.Tokens(0, 1)
	if n := testing.AllocsPerRun(100, func() {
		if err := st.Step(o, token); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a token allocates %g times", n)
	}
}

func TestStateRefuses(t *testing.T) {
	c := stateCall(6, 4, 3, 16)
	st := newState(t, as32(linearSpecs[1].Spec), c)
	out := poisoned[float32](2, 6, 6, 3)
	for _, x := range []struct {
		want   string
		change func(c *Call[float32])
	}{
		{"key_lengths: not defined", func(c *Call[float32]) { c.KeyLens = []int64{6, 6} }},
		{"attn_keep: not defined", func(c *Call[float32]) { c.AttnKeep = make([]bool, 36) }},
		{"cu_q: not defined", func(c *Call[float32]) { c.CuQ = []int64{0, 6} }},
		{"cu_k: not defined", func(c *Call[float32]) { c.CuK = []int64{0, 6} }},
		{"k: D is 5, the state has 4", func(c *Call[float32]) { c.K = tensor.NewHeads[float32](2, 2, 6, 5) }},
		{"k: has 3 heads, the state has 2", func(c *Call[float32]) {
			c.K, c.V = tensor.NewHeads[float32](2, 3, 6, 4), tensor.NewHeads[float32](2, 3, 6, 3)
		}},
		{"v: Dv is 4, the state has 3", func(c *Call[float32]) { c.V = tensor.NewHeads[float32](2, 2, 6, 4) }},
		{"q: D is 5, the state has 4", func(c *Call[float32]) { c.Q = tensor.NewHeads[float32](2, 6, 6, 5) }},
		{"q: has 2 heads, the state has 6", func(c *Call[float32]) { c.Q = tensor.NewHeads[float32](2, 2, 6, 4) }},
		{"q: B is 1, the state has 2", func(c *Call[float32]) { c.Q = tensor.NewHeads[float32](1, 6, 6, 4) }},
		{"k: M is 6, a step of q has 5", func(c *Call[float32]) { c.Q = tensor.NewHeads[float32](2, 6, 5, 4) }},
		{"keymask: has 3 elements", func(c *Call[float32]) { c.KeyMask = c.KeyMask[:3] }},
		{"rope: has 2 rows, the call has 6 tokens", func(c *Call[float32]) { c.Rope = NewRope[float32](4, 10000, 0, 2) }},
		{"rope: rotates 3 pairs of channels, D is 4", func(c *Call[float32]) { c.Rope = NewRope[float32](6, 10000, 0, 9) }},
	} {
		call := *c
		x.change(&call)
		o := out
		if call.Q.N == 5 {
			o = out.Tokens(0, 5)
		}
		if err := st.Step(o, &call); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error %v, want one that says %q", err, x.want)
		}
	}
	if err := st.Step(out.Tokens(0, 5), c); err == nil || !strings.Contains(err.Error(), "o: shape") {
		t.Errorf("error %v about a short output", err)
	}
	if st.Tokens() != 0 {
		t.Errorf("%d tokens after refusals", st.Tokens())
	}
}

// TestSumsSnapshot: a state saved at any token goes on with the same bits, and
// saves the same bytes again, as many as any other.
func TestSumsSnapshot(t *testing.T) {
	const n = 50
	for _, s := range linearSpecs {
		c := stateCall(n, 4, 3, 16)
		spec := as32(s.Spec)
		m := mustNew(t, spec)
		want := poisoned[float32](2, 6, n, 3)
		steps(t, newState(t, spec, c), want, c, 0, n)
		size := 0
		for _, cut := range []int{0, 1, 2, 15, 16, 17, 33, 48, 50} {
			st := newState(t, spec, c)
			out := poisoned[float32](2, 6, n, 3)
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
				t.Errorf("%s: %d bytes after %d tokens, %d for none", s.name, len(data), cut, size)
			}
			restored, err := m.RestoreState(data)
			if err != nil {
				t.Fatalf("%s, %d tokens: %v", s.name, cut, err)
			}
			sameBits(t, s.name+", restored", restored.(*sums[float32]), st)
			again, err := restored.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(again, data) {
				t.Errorf("%s, %d tokens: saved again, other bytes", s.name, cut)
			}
			steps(t, restored, out, c, cut, n)
			if !slices.Equal(out.Data, want.Data) {
				t.Errorf("%s: saved after %d tokens, it goes on with other bits", s.name, cut)
			}
			for _, short := range []int{1, 40, len(data) / 2, len(data) - 5} {
				if _, err := m.RestoreState(data[:short]); err == nil {
					t.Errorf("%s: %d of %d bytes are accepted", s.name, short, len(data))
				}
			}
		}
	}
}
