package mechanism

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

func weights(t *testing.T, s subject) {
	for i, sh := range shapesOf(s) {
		t.Run(sh.name, func(t *testing.T) { weightsOf(t, s, sh, uint64(i)) })
	}
}

func weightsOf(t *testing.T, s subject, sh shape, seed uint64) {
	sh = s.fit(sh)
	oc, _ := sh.call(seed)
	m, book := build(t, s, sh.h)
	c := callIn(oc)
	want := book.answers(s, sh, seed, oc)
	l := limitsOfWeights(s, m, c)
	for b := range sh.b {
		for h := range sh.h {
			for _, rows := range [][2]int{{0, sh.n}, {sh.n / 3, sh.n / 2}} {
				dst := tensor.NewMat(rows[1]-rows[0], sh.m)
				for i := range dst.Data {
					dst.Data[i] = float(math.NaN())
				}
				if err := m.Weights(dst, c, b, h, rows[0], rows[1]); err != nil {
					t.Fatal(err)
				}
				for i := range dst.Rows {
					at := rows[0] + i
					ref := want.W.Head(b, h).Row(at)
					cond := want.Cond[(b*sh.h+h)*sh.n+at]
					if e := check.ErrorRatio(dst.Row(i), ref, l.Output(cond, 1+check.MaxAbs(ref))); e > 1 {
						t.Fatalf("weights of query %d are off by %.3g limits", at, e)
					}
					whole := 1.0
					if total(book.Mechanism, h) != 1 { // but 1 where no key of the window exists
						whole = sumOf(ref)
					}
					checkRow(t, s.sums() && cond > 0, dst.Row(i), whole, l.Output(cond, 1)*float64(max(1, sh.m)))
				}
			}
		}
	}
}

// limitsOfWeights returns the limits of rows of A.
func limitsOfWeights(s subject, m attention.Mechanism, c *attention.Call) check.Limits {
	switch {
	case s.whole != nil:
		return wholeLimits(m, c)
	case s.book.Exp:
		return check.SoftmaxLimits[float]()
	}
	return check.DirectLimits[float](len(s.book.Coef) - 1)
}

// total is what a row of weights of head h sums to: 1, or 1 + γ where a window has
// a term of its own.
func total(m *oracle.Mechanism, h int) float64 {
	if m.Window == nil || !m.Window.Separate {
		return 1
	}
	return 1 + m.Window.Gamma[h]
}

// checkRow reports a row of weights that should have a sum and has not.
func checkRow(t *testing.T, sums bool, row []float, want, limit float64) {
	t.Helper()
	sum := sumOf(row)
	if sums && math.Abs(sum-want) > limit {
		t.Errorf("weights sum to %.9g", sum)
	}
}

func sumOf[T kernel.Float](x []T) (sum float64) {
	for _, y := range x {
		sum += float64(y)
	}
	return sum
}

// A token with equal channels normalises to exactly zero: every key then weighs f(0) = 1,
// and the gradient is 0.
func TestConstantTokenIsZero(t *testing.T) {
	for _, bounded := range []string{"false", "true"} {
		for d := 1; d <= 130; d++ {
			o := Options{Set: map[string]string{"bounded": bounded}}
			constant(t, o, d)
		}
	}
}

func constant(t *testing.T, o Options, d int) {
	t.Helper()
	m, err := New("fastmax", o)
	if err != nil {
		t.Fatal(err)
	}
	oc, do := shape{b: 1, h: 1, hkv: 1, n: 2, m: 2, d: d, dv: 1}.call(uint64(d))
	c := callIn(oc)
	for i, x := range []float{0.1, -float(d) / 3} {
		for e := range c.Q.Head(0, 0).Row(i) {
			c.Q.Head(0, 0).Row(i)[e] = x
		}
	}
	for _, form := range []attention.Form{attention.Direct, attention.Linear} {
		c.Form = form
		r := both(t, m, c, in(do))
		for i := range 2 {
			if r.keep.Den[i] != 2 {
				t.Fatalf("D=%d, %v: the denominator of a constant query over 2 keys is %v, want 2", d, form, r.keep.Den[i])
			}
		}
		for _, x := range r.g.DQ.Data {
			if x != 0 {
				t.Fatalf("D=%d, %v: dq of a constant query is %v", d, form, x)
			}
		}
	}
}

// forwardAny is forward where outputs may lie beyond all bounds.
func forwardAny(t *testing.T, m attention.Mechanism, c *attention.Call) *attention.Saved {
	t.Helper()
	var keep attention.Saved
	if err := m.Forward(tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D), c, &keep); err != nil {
		t.Fatal(err)
	}
	return &keep
}

func unseen(t *testing.T, s subject) {
	sh := shape{b: 1, h: 3, hkv: 1, n: 8, m: 5, d: 3, dv: 2, causal: true}
	oc, do := sh.call(31)
	m, _ := build(t, s, sh.h)
	c := callIn(oc)
	c.KeyMask = []bool{false, true, true, true, true}
	r := both(t, m, c, in(do))
	// Queries 0 to 2 come before every key, query 3 sees the masked one.
	if r.keep.UnseenCount != 4*3 {
		t.Errorf("%d unseen queries, want 4 of each of 3 heads", r.keep.UnseenCount)
	}
	for h := range sh.h {
		for i := range 4 {
			o, dq := r.o.Head(0, h).Row(i), r.g.DQ.Head(0, h).Row(i)
			if slices.ContainsFunc(slices.Concat(o, dq), func(x float) bool { return x != 0 }) {
				t.Errorf("head %d, unseen query %d: output %v, dq %v, want 0", h, i, o, dq)
			}
		}
	}
}

// Every mechanism refuses a nil call, gradient, matrix or state before it reads any other
// argument.
func TestMissingArgumentsAreRefused(t *testing.T) {
	for _, name := range Names() {
		m, err := New(name, Options{Heads: 4, Width: 16, Length: 16})
		if err != nil {
			t.Fatal(err)
		}
		heads := tensor.NewHeads
		c := &attention.Call{Q: heads(1, 4, 16, 16), K: heads(1, 4, 16, 16), V: heads(1, 4, 16, 16), Causal: m.Traits().Causal}
		out := heads(1, 4, 16, 16)
		keep := new(attention.Saved)
		if err := m.Forward(out, c, keep); err != nil {
			t.Fatal(err)
		}
		const noCall = "call: it is nil"
		refused := func(what, want string, err error) {
			if err == nil || err.Error() != want {
				t.Errorf("%s, %s: error %v, want %s", name, what, err, want)
			}
		}
		grads := &attention.Grads{DQ: heads(1, 4, 16, 16), DK: heads(1, 4, 16, 16), DV: heads(1, 4, 16, 16)}
		refused("Forward", noCall, m.Forward(out, nil, nil))
		refused("Backward", noCall, m.Backward(grads, out, out, nil, keep))
		refused("Backward", "grads: they are nil", m.Backward(nil, out, out, c, keep))
		refused("Backward", "saved: not what Forward left for this call", m.Backward(grads, out, out, c, nil))
		less := &attention.Call{Q: heads(1, 4, 8, 16), K: heads(1, 4, 8, 16), V: heads(1, 4, 8, 16), Causal: c.Causal}
		if err := m.Forward(heads(1, 4, 8, 16), less, keep); err == nil {
			refused("Backward after another Forward", "saved: not what Forward left for this call", m.Backward(grads, out, out, c, keep))
		}
		refused("Weights", noCall, m.Weights(tensor.NewMat(1, 16), nil, 0, 0, 0, 1))
		_, err = m.Diagnose(nil)
		refused("Diagnose", noCall, err)
		if err := m.Weights(tensor.Mat{Rows: 2, Cols: 16, Stride: 16}, c, 0, 0, 0, 2); !errors.Is(err, attention.ErrNoMatrix) {
			refused("Weights", "weights: shape [2,16] needs 32 elements, has 0", err)
		}
		st, err := m.NewState(attention.Shape{B: 1, H: 4, Hkv: 4, D: 16, Dv: 16})
		if err != nil {
			continue
		}
		refused("Absorb", noCall, st.Absorb(nil))
		refused("Read", noCall, st.Read(out, nil))
		refused("Step", noCall, st.Step(out, nil))
		if err := st.Merge(nil); err == nil || !strings.HasPrefix(err.Error(), "merge: kind of state is <nil>, needs ") {
			t.Errorf("%s, Merge: error %v", name, err)
		}
	}
}

// A state that no memory holds is refused before memory is taken, and Plan knows the
// size of one of constant size.
func TestStatesThatNoMemoryHoldsAreRefused(t *testing.T) {
	for _, name := range Names() {
		m, err := New(name, Options{Heads: 4, Width: 16, Length: 16})
		if err != nil {
			t.Fatal(err)
		}
		s := attention.Shape{B: 2, H: 4, Hkv: 2, D: 16, Dv: 9}
		st, err := m.NewState(s)
		if err != nil {
			continue
		}
		if plan := m.Plan(s).State; plan != 0 && plan != float64(st.Bytes()) {
			t.Errorf("%s: a state of %d bytes was planned as %.0f", name, st.Bytes(), plan)
		}
		for want, x := range map[string]attention.Shape{
			"state: B·H is 268435456·4, at most 1048576 heads are kept":             {B: 1 << 28, H: 4, Hkv: 2, D: 16, Dv: 9},
			"state: rows of D = 16 and Dv = 1073741824, at most 268435456 are kept": {B: 1, H: 4, Hkv: 2, D: 16, Dv: 1 << 30},
			"chunk: -1 is negative":                                  {B: 1, H: 4, Hkv: 2, D: 16, Dv: 9, Chunk: -1},
			"chunk: 1073741824 tokens, a state has at most 16777216": {B: 1, H: 4, Hkv: 2, D: 16, Dv: 9, Chunk: 1 << 30},
		} {
			if _, err := m.NewState(x); err == nil || err.Error() != want {
				t.Errorf("%s: error %v, want %s", name, err, want)
			}
		}
		if m.Traits().Streaming && m.Plan(s).State > 0 {
			s.B, s.Dv = 1<<18, 1<<20
			if _, err := m.NewState(s); err == nil || !strings.Contains(err.Error(), "bytes, at most") && !strings.Contains(err.Error(), "too many") {
				t.Errorf("%s: error %v about a state without end", name, err)
			}
		}
	}
}

func TestCallsThatDoNotFitAreRefused(t *testing.T) {
	base := shape{b: 1, h: 2, hkv: 1, n: 3, m: 4, d: 3, dv: 2}
	for i, c := range []struct {
		name   string
		change func(*attention.Call)
		want   string
	}{
		{"fastmax", func(c *attention.Call) { c.K.D = 2 }, "k: D is 2, q has 3"},
		{"fastmax", func(c *attention.Call) { c.V.N = 3 }, "v: M is 3, k has 4"},
		{"fastmax", func(c *attention.Call) { c.KeyLens = []int64{5} }, "key_lengths: row 0 is 5, M is 4"},
		{"fastmax", func(c *attention.Call) {
			c.AttnKeep, c.Form = make([]bool, 12), attention.Linear
		}, "attn_keep: not defined in the linear form"},
		{"fastmax", func(c *attention.Call) { c.Rope = attention.NewRope(5, 1e4, 0, 4) }, "rope: rotates 2 pairs of channels, D is 3"},
		{"fastmax", func(c *attention.Call) {
			c.Rope = attention.NewRope(3, 1e4, 0, 4)
			c.Rope.Sin = c.Rope.Sin[1:]
		}, "rope: has 3 sines, and 4 cosines"},
		{"fastmax", func(c *attention.Call) { c.Rope = attention.NewRope(3, 1e4, 0, 3) }, "rope: has 3 rows, a sequence has 4 positions"},
		{"softmax", func(c *attention.Call) { c.Form = attention.Linear }, "form: softmax has no linear form"},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			oc, _ := base.call(32)
			m, err := New(c.name, Options{})
			if err != nil {
				t.Fatal(err)
			}
			call := callIn(oc)
			c.change(call)
			err = m.Forward(tensor.NewHeads(1, 2, 3, 2), call, nil)
			if err == nil || err.Error() != c.want {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

// With D = 2 rows normalise to ±(1,-1), so scores are ±2 and for p = 1 weights
// are 3 and -1: three keys of the one sign cancel one of the other.
func TestRowsThatCancelAreCounted(t *testing.T) {
	oc, _ := shape{b: 2, h: 2, hkv: 1, n: 4, m: 4, d: 2, dv: 3}.call(30)
	c := callIn(oc)
	for b := range 2 {
		for j, x := range [][]float{{2, 0}, {0, 5}, {0, 1}, {-1, 9}} {
			copy(c.K.Head(b, 0).Row(j), x)
		}
		for h := range 2 {
			for i := range 4 {
				copy(c.Q.Head(b, h).Row(i), []float{0, 3}) // three weights of 3, one of -1
			}
		}
	}
	copy(c.Q.Head(1, 0).Row(2), []float{3, 0})
	copy(c.Q.Head(1, 1).Row(3), []float{7, 0})
	for _, form := range []attention.Form{attention.Direct, attention.Linear} {
		for p, want := range map[int]int64{1: 2, 2: 0} {
			m, err := New("fastmax", Options{Order: p})
			if err != nil {
				t.Fatal(err)
			}
			c.Form = form
			r := forwardAny(t, m, c)
			if r.WeakCount != want {
				t.Errorf("p=%d, %v: %d weak rows, want %d", p, form, r.WeakCount, want)
			}
			if at := [3]int{1, 0, 2}; want > 0 && r.WeakAt != at {
				t.Errorf("p=%d, %v: the first weak row is %v, want %v", p, form, r.WeakAt, at)
			}
		}
	}
}

// A row counts as ill-conditioned from the documented limit, 2^-10 of the largest possible
// weight of the keys, and not from half of it: 1 + s of a score s just above -1.
func TestIllConditionedRowsBeginAtTheDocumentedLimit(t *testing.T) {
	for _, window := range []bool{false, true} {
		set := map[string]string{"coef": "1,1", "scale": "1"}
		if window {
			set["window"], set["join"] = "1", "denominator"
		}
		m, err := New("polynomial", Options{Set: set})
		if err != nil {
			t.Fatal(err)
		}
		if window { // e^-700 is all that it weighs
			gamma, err := m.Params().Get("log_gamma")
			if err != nil {
				t.Fatal(err)
			}
			gamma.Data[0] = -700
		}
		for _, x := range []struct {
			den  float64
			weak int64
		}{{0.52 * limitOfOneKey, 1}, {0.98 * limitOfOneKey, 1}, {1.02 * limitOfOneKey, 0}} {
			c := &attention.Call{Q: tensor.NewHeads(1, 1, 1, 1), K: tensor.NewHeads(1, 1, 1, 1), V: tensor.NewHeads(1, 1, 1, 1), Causal: true}
			if window { // the key of the query's own token is the window's
				c.K, c.V = tensor.NewHeads(1, 1, 2, 1), tensor.NewHeads(1, 1, 2, 1)
			}
			c.Q.Data[0], c.K.Data[0] = 1, float(x.den-1)
			var keep attention.Saved
			if err := m.Forward(output(c), c, &keep); err != nil {
				t.Fatal(err)
			}
			if keep.WeakCount != x.weak {
				t.Errorf("window %v: a denominator of %.2f limits: %d rows are ill-conditioned, want %d", window, x.den/limitOfOneKey, keep.WeakCount, x.weak)
			}
		}
	}
}

// limitOfOneKey is the solution g of g = (2 - g)/1024: one key with 1 + s = g above 0 has
// f̄(|s|) = 2 - g.
const limitOfOneKey = 2.0 / 1025
