package factorised

import (
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// The direct form counts the pairs that queries see: of a window and its far field each once.
func TestPlanCountsVisiblePairs(t *testing.T) {
	const d = 4
	plain := attention.Spec{Name: "poly", Norm: attention.Standard, Scale: 1, Coef: []float64{1, 1, 0.5}, Positive: true}
	windowed := plain
	windowed.Window = &attention.Window{Width: 64}
	for _, s := range []attention.Spec{plain, windowed} {
		m := mustNew(t, s)
		for _, x := range [][2]int{{1, 1000}, {64, 64}, {200, 200}, {100, 300}, {300, 100}, {300, 10}} {
			for _, causal := range []bool{false, true} {
				pairs := 0
				for i := range x[0] {
					seen := x[1]
					if causal {
						seen = min(max(i+x[1]-x[0]+1, 0), x[1])
					}
					pairs += seen
				}
				p := m.Plan(attention.Shape{B: 1, H: 1, Hkv: 1, N: x[0], M: x[1], D: d, Dv: d, Causal: causal, Form: attention.Direct})
				if want := float64(2 * pairs * (d + d + 3)); p.FLOPs != want {
					t.Errorf("window %t, N = %d, M = %d, causal %t: %g operations, want %g", s.Window != nil, x[0], x[1], causal, p.FLOPs, want)
				}
			}
		}
	}
}

// A token's step finds all its memory in place, whatever the state is of.
func TestTokensAllocateNothing(t *testing.T) {
	if calltest.Raced {
		t.Skip("the race detector allocates")
	}
	r := rand.New(rand.NewPCG(200, 4))
	textbook := &oracle.Call{Q: calltest.Normal(r, 2, 6, 200, 4), K: calltest.Normal(r, 2, 3, 200, 4), V: calltest.Normal(r, 2, 3, 200, 3), KeyMask: calltest.Flags(r, 400), Theta: 100}
	calltest.Fade(r, textbook)
	fades := calltest.NewCall(textbook)
	stays := *fades
	stays.LogG = tensor.Heads{}
	fastmax := func(w *attention.Window) attention.Mechanism {
		return mustNew(t, attention.Spec{Name: "fastmax2", Norm: attention.Standard, Scale: 1, Coef: []float64{1, 1, 0.5}, Window: w})
	}
	for name, m := range map[string]attention.Mechanism{
		"sums":            fastmax(nil),
		"one denominator": fastmax(&attention.Window{Width: 7}), "separate": fastmax(&attention.Window{Width: 7, Join: attention.Separate}),
	} {
		for _, c := range []*attention.Call{fades, &stays} {
			st, err := m.NewState(c.Shape())
			if err != nil {
				t.Fatal(err)
			}
			out := calltest.Poisoned(2, 6, 200, 3)
			if err := st.Step(out, c); err != nil {
				t.Fatal(err)
			}
			bytes := st.Bytes()
			token, o := &attention.Call{Q: c.Q.Tokens(50, 51), K: c.K.Tokens(50, 51), V: c.V.Tokens(50, 51), Rope: c.Rope.Slice(50), KeyMask: []bool{c.KeyMask[50], c.KeyMask[250]}, Causal: true}, out.Tokens(50, 51)
			if c.HasDecay() {
				token.LogG = c.LogG.Tokens(50, 51)
			}
			n := testing.AllocsPerRun(100, func() {
				if err := st.Step(o, token); err != nil {
					t.Fatal(err)
				}
			})
			if n != 0 {
				t.Errorf("%s, decay %v: a token allocates %v times", name, c == fades, n)
			}
			if b := st.Bytes(); b != bytes {
				t.Errorf("%s, decay %v: %d bytes, %d before", name, c == fades, b, bytes)
			}
		}
	}
}

func mustNew(t *testing.T, s attention.Spec) attention.Mechanism {
	t.Helper()
	m, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A kernel that its normalisation keeps positive may be negative where dropout enlarges scores.
// Rows are then weak where they are with a kernel that may be negative anyway.
func TestDropoutCountsWeakRowsOfBoundedKernels(t *testing.T) {
	plain := attention.Spec{Name: "bounded", Norm: attention.Bounded, Scale: 0.99, Coef: []float64{1, 1}, Positive: true}
	windowed := plain
	windowed.Window = &attention.Window{Width: 1, LogGamma: &param.Param{Name: "log_gamma", Shape: []int{1}, Data: []tensor.Float{-14}, Grad: make([]tensor.Float, 1)}}
	for _, s := range []attention.Spec{plain, windowed} {
		e, weak := mustNew(t, s), int64(0)
		s.Positive = false
		signed := mustNew(t, s)
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 34))
			c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 1, 40, 8), K: calltest.Normal(r, 1, 1, 40, 8), V: calltest.Normal(r, 1, 1, 40, 2), Causal: true})
			c.Drop = &attention.Drop{Kind: attention.TokenDrop, Rate: 0.7, Key: rng.New(seed)}
			_, keep := calltest.Forward(t, e, c, attention.Direct)
			_, want := calltest.Forward(t, signed, c, attention.Direct)
			found, err := e.Diagnose(c)
			if err != nil {
				t.Fatal(err)
			}
			if keep.WeakCount != want.WeakCount || found[0].WeakCount != want.WeakCount {
				t.Errorf("window %t, seed %d: %d weak rows, %d in the diagnosis, want %d", s.Window != nil, seed, keep.WeakCount, found[0].WeakCount, want.WeakCount)
			}
			weak += keep.WeakCount
			c.Drop = nil
			if _, keep := calltest.Forward(t, e, c, attention.Direct); keep.WeakCount != 0 {
				t.Errorf("window %t, seed %d: %d weak rows without dropout", s.Window != nil, seed, keep.WeakCount)
			}
		}
		if weak == 0 {
			t.Errorf("window %t: no row is weak", s.Window != nil)
		}
	}
}
