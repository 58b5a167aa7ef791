package mechanism

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

func TestLunaStateThatNoMemoryHoldsIsRefused(t *testing.T) {
	m, err := New("luna", Options{Heads: 4, Width: 16, Set: map[string]string{"form": "causal"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.NewState(attention.Shape{B: 1 << 18, H: 4, Hkv: 2, D: 16, Dv: 1 << 20}); err == nil || !strings.Contains(err.Error(), "bytes, at most") {
		t.Errorf("error %v", err)
	}
}

// A state without tokens keeps its own parameter behind a merge: that of the state that follows may
// change.
func TestLunaStateKeepsItsParameterBehindAMerge(t *testing.T) {
	var mechs [2]attention.Mechanism
	for i := range mechs {
		m, err := New("luna", Options{Width: streamed.d, Set: map[string]string{"form": "causal", "length": "4"}})
		if err != nil {
			t.Fatal(err)
		}
		mechs[i] = m
	}
	oc, _ := streamed.call(101)
	c := callIn(oc)
	state, other, whole := newState(t, mechs[0]), newState(t, mechs[1]), newState(t, mechs[0])
	want, got := tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D), tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D)
	step(t, other, got, c, 0, 5, 5)
	step(t, whole, want, c, 0, 5, 5)
	merge(t, state, other)
	clear(mechs[1].Params().All()[0].Data)
	step(t, whole, want, c, 5, 9, 4)
	step(t, state, got, c, 5, 9, 4)
	if !slices.Equal(got.Data, want.Data) {
		t.Error("the state has the parameter of the state that follows")
	}
}

// A float32 state of many tokens has the error of a few: its sums keep what their
// roundings leave out.
func TestLunaStateOfManyTokensHasTheErrorOfFew(t *testing.T) {
	set := map[string]string{"form": "causal", "length": "4"}
	m, err := New("luna", Options{Width: 4, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	const tokens = 20000
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: tokens, m: tokens, d: 4, dv: 3, causal: true}.call(100)
	st, err := m.NewState(attention.Shape{B: 1, H: 1, Hkv: 1, D: 4, Dv: 3})
	if err != nil {
		t.Fatal(err)
	}
	empty := st.Bytes()
	out := tensor.NewHeads(1, 1, tokens, 3)
	c := callIn(oc)
	c.Causal = false
	if err := st.Step(out, c); err != nil {
		t.Fatal(err)
	}
	want := lunaOutputs(widened(m.Params().All()[0].Data), oc)[tokens-100:]
	if last := slices.Concat(want...); check.ErrorRatio(out.Data[len(out.Data)-300:], last, 2e-6*check.MaxAbs(last)) > 1 {
		e := check.ErrorRatio(out.Data[len(out.Data)-300:], last, 2e-6*check.MaxAbs(last))
		t.Errorf("the last outputs are off by %g limits", e)
	}
	if st.Bytes() != empty {
		t.Errorf("the state has %d bytes, had %d", st.Bytes(), empty)
	}
}

// lunaOutputs returns the outputs of the causal form for packed queries p, with ω = elu + 1, as
// oracle.NewLuna has them, with the sums over the tokens so far.
func lunaOutputs(p []float64, c *oracle.Call) [][]float64 {
	d, dv := c.K.D, c.V.D
	rows, scale := rowsOf(p, d), 1/math.Sqrt(float64(d))
	product := func(a, b []float64) (sum float64) {
		for i := range a {
			sum += a[i] * b[i]
		}
		return sum
	}
	ks, vs := make([][]float64, len(rows)), make([][]float64, len(rows))
	for l := range rows {
		ks[l], vs[l] = make([]float64, d), make([]float64, dv)
	}
	var list [][]float64
	for i := range c.K.N {
		q, k, v := c.Q.Head(0, 0).Row(i), c.K.Head(0, 0).Row(i), c.V.Head(0, 0).Row(i)
		o, total := make([]float64, dv), 0.0
		for l := range rows {
			a := oracle.EluPlusOne.F(scale * product(k, rows[l]))
			for c := range k {
				ks[l][c] += a * k[c]
			}
			for c := range v {
				vs[l][c] += a * v[c]
			}
			seen := float64(i + 1)
			u := math.Exp(scale * product(q, ks[l]) / seen)
			total += u
			for c := range o {
				o[c] += u * vs[l][c] / seen
			}
		}
		for c := range o {
			o[c] /= total
		}
		list = append(list, o)
	}
	return list
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
		m, err := New("luna", x.o)
		if err != nil {
			t.Fatal(err)
		}
		c := callIn(oc)
		c.Causal = x.causal
		if err := m.Forward(tensor.NewHeads(1, 2, 3, 2), c, nil); err == nil || err.Error() != x.want {
			t.Errorf("error %v, want %s", err, x.want)
		}
	}
}
