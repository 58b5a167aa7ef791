package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/tensor"
)

// What the published forms are: the recurrence S_i = γ·S_{i-1} + k_i·v_iᵀ,
// o_i = q_i·S_i/√D, written down.
func TestRetentionIsItsRecurrence(t *testing.T) {
	sh := shape{b: 1, h: 3, hkv: 3, n: 40, m: 40, d: 4, dv: 2, causal: true}
	oc, _ := sh.call(70)
	for _, x := range []struct {
		set   map[string]string
		gamma [3]float64
	}{
		{nil, [3]float64{1 - 0x1p-5, 1 - 0x1p-6, 1 - 0x1p-7}},
		{map[string]string{"gamma": "0.5, 1, 0.875"}, [3]float64{0.5, 1, 0.875}},
	} {
		m, err := New("retention", Options{Set: x.set})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 7}, {attention.Step, 5}} {
			c := callIn(oc)
			c.Form, c.Chunk = f.form, f.chunk
			o := output(c)
			if err := m.Forward(o, c, nil); err != nil {
				t.Fatal(err)
			}
			for h, gamma := range x.gamma {
				state := make([]float64, sh.d*sh.dv)
				for i := range sh.n {
					for e := range sh.dv {
						var want float64
						for a := range sh.d {
							s := &state[a*sh.dv+e]
							*s = gamma**s + oc.K.Head(0, h).Row(i)[a]*oc.V.Head(0, h).Row(i)[e]
							want += oc.Q.Head(0, h).Row(i)[a] * *s / math.Sqrt(float64(sh.d))
						}
						if got := o.Head(0, h).Row(i)[e]; math.Abs(float64(got)-want) > check.Pick(1e-5, 1e-12)*(1+math.Abs(want)) {
							t.Fatalf("%v: output %d of head %d is %v, want %v", f, i, h, got, want)
						}
					}
				}
			}
		}
	}
}

func TestRetentionRefusesCallsThatDoNotFit(t *testing.T) {
	oc, _ := shape{b: 1, h: 2, hkv: 2, n: 3, m: 3, d: 4, dv: 2}.call(71)
	c := callIn(oc)
	refused := func(o Options, want string) {
		t.Helper()
		m, err := New("retention", o)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Forward(tensor.NewHeads(1, 2, 3, 2), c, nil); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	refused(Options{}, "causal: retention has decay, which needs a causal call, whose queries have a place among the keys")
	c.Causal = true
	plain, err := New("retention", Options{})
	if err != nil {
		t.Fatal(err)
	}
	keep, heads := new(attention.Saved), tensor.NewHeads
	out := heads(1, 2, 3, 2)
	if err := plain.Forward(out, c, keep); err != nil {
		t.Fatal(err)
	}
	grads := &attention.Grads{DQ: heads(1, 2, 3, 4), DK: heads(1, 2, 3, 4), DV: heads(1, 2, 3, 2), DLogG: heads(1, 1, 3, 1)}
	const short = "d_log_g: shape is [1,1,3,1], needs [1,2,3,1]"
	if err := plain.Backward(grads, out, out, c, keep); err == nil || err.Error() != short {
		t.Errorf("error %v, want %s", err, short)
	}
	three := Options{Set: map[string]string{"gamma": "0.5,0.6,0.7"}}
	refused(three, "gamma: has 3 numbers, k has 2 heads")
	m, err := New("retention", three)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.NewState(attention.Shape{B: 1, H: 2, Hkv: 2, D: 4, Dv: 2}); err == nil {
		t.Error("a state of 2 heads takes 3 numbers")
	}
}
