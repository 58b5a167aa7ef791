package mechanism

import (
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/tensor"
)

// Masked tokens take no part in the causal form, in its sums nor in the number of
// keys that divides them: what the authors' causal class ignores.
func TestLunaCausalHeedsMasks(t *testing.T) {
	m, err := New[float64]("luna", Options{Width: 4, Set: map[string]string{"form": "causal", "length": "3"}})
	if err != nil {
		t.Fatal(err)
	}
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 1, m: 6, d: 4, dv: 3}.call(99)
	oc.KeyMask = []bool{false, true, true, false, true, false}
	short := *oc
	short.KeyMask = nil
	short.K, short.V = tensor.NewHeads[float64](1, 1, 3, 4), tensor.NewHeads[float64](1, 1, 3, 3)
	for to, j := range []int{1, 2, 4} {
		copy(short.K.Head(0, 0).Row(to), oc.K.Head(0, 0).Row(j))
		copy(short.V.Head(0, 0).Row(to), oc.V.Head(0, 0).Row(j))
	}
	want := forward(t, m, callIn[float64](&short)).o.Data
	if e := check.ErrorRatio(forward(t, m, callIn[float64](oc)).o.Data, want, 1e-14); e > 1 {
		t.Errorf("masked keys take part: off by %g limits", e)
	}
}

func TestLunaStateThatNoMemoryHoldsIsRefused(t *testing.T) {
	m, err := New[float32]("luna", Options{Heads: 4, Width: 16, Set: map[string]string{"form": "causal"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.NewState(attention.Shape{B: 1 << 18, H: 4, Hkv: 2, D: 16, Dv: 1 << 20}); err == nil || !strings.Contains(err.Error(), "bytes, at most") {
		t.Errorf("error %v", err)
	}
}

// A state without tokens keeps its own parameter behind a merge.
func TestLunaStateKeepsItsParameterBehindAMerge(t *testing.T) {
	var states [2]*packState[float32]
	for i := range states {
		m, err := New[float32]("luna", Options{Width: streamed.d, Set: map[string]string{"form": "causal", "length": "4"}})
		if err != nil {
			t.Fatal(err)
		}
		states[i] = newState(t, m).(*packState[float32])
	}
	oc, _ := streamed.call(101)
	p := states[0].p
	step(t, states[1], output(callIn[float32](oc)), callIn[float32](oc), 0, 5, 5)
	merge(t, states[0], attention.State[float32](states[1]))
	if states[0].p != p {
		t.Error("the state has the parameter of the state that follows")
	}
}

// A float32 state of many tokens has the error of a few: its sums keep what their
// roundings leave out.
func TestLunaStateOfManyTokensHasTheErrorOfFew(t *testing.T) {
	set := map[string]string{"form": "causal", "length": "4"}
	m, err := New[float32]("luna", Options{Width: 4, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	exact, err := New[float64]("luna", Options{Width: 4, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range m.Params().All()[0].Data {
		exact.Params().All()[0].Data[i] = float64(x)
	}
	const tokens = 20000
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: tokens, m: tokens, d: 4, dv: 3, causal: true}.call(100)
	st, err := m.NewState(attention.Shape{B: 1, H: 1, Hkv: 1, D: 4, Dv: 3})
	if err != nil {
		t.Fatal(err)
	}
	empty := st.Bytes()
	out := tensor.NewHeads[float32](1, 1, tokens, 3)
	c := callIn[float32](oc)
	c.Causal = false
	if err := st.Step(out, c); err != nil {
		t.Fatal(err)
	}
	want := forward(t, exact, callIn[float64](oc)).o
	last := func(x []float64) []float64 { return x[len(x)-300:] }
	if e := check.ErrorRatio(out.Data[len(out.Data)-300:], last(want.Data), 2e-6*check.MaxAbs(last(want.Data))); e > 1 {
		t.Errorf("the last outputs are off by %g limits", e)
	}
	if st.Bytes() != empty {
		t.Errorf("the state has %d bytes, had %d", st.Bytes(), empty)
	}
}

// What the encoder cannot do is refused with the reason, and so are calls that
// its parameter does not fit.
func TestLunaRefusesCallsThatDoNotFit(t *testing.T) {
	oc, _ := shape{b: 1, h: 2, hkv: 2, n: 3, m: 3, d: 3, dv: 2}.call(101)
	for _, x := range []struct {
		o      Options
		causal bool
		want   string
	}{
		{Options{Width: 3}, true, "causal: luna has no causal form: every packed token is an average of all tokens; form=causal is another function, which is causal"},
		{Options{Width: 4}, false, "q: D is 3, p of luna is of 4"},
		{Options{Width: 3, Heads: 3}, false, "q: has 2 heads, p of luna is of 3"},
		{Options{Width: 4, Set: map[string]string{"form": "causal"}}, false, "q: D is 3, p of luna is of 4"},
	} {
		m, err := New[float32]("luna", x.o)
		if err != nil {
			t.Fatal(err)
		}
		c := callIn[float32](oc)
		c.Causal = x.causal
		if err := m.Forward(tensor.NewHeads[float32](1, 2, 3, 2), c, nil); err == nil || err.Error() != x.want {
			t.Errorf("error %v, want %s", err, x.want)
		}
	}
}
