//go:build !float64

package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/rng"
)

// TestSincosIsAccurate allows the rounding of the result, half of a unit, and a tenth of that
// for what comes before it, beside which the smallest sines are measured from 0.
func TestSincosIsAccurate(t *testing.T) {
	x := []float32{0, 1e-30, -1e-5, 0.785, -0.786, 1.5707964, 3.1415927, -3, 7.5, 100.25, -4096.5, 3e5, 1e7, -1e20}
	key := rng.New(8)
	for i := range uint64(1 << 14) {
		x = append(x, float32(math.Exp2(8*key.Normal(i))*(1-2*float64(key.Uint64(i)&1))))
	}
	sin, cos := make([]float32, len(x)), make([]float32, len(x))
	sincos(sin, cos, x)
	for i, v := range x {
		s, c := math.Sincos(float64(v))
		for _, y := range [][2]float64{{float64(sin[i]), s}, {float64(cos[i]), c}} {
			if err := math.Abs(y[0] - y[1]); err > 0.55*0x1p-23*math.Max(math.Abs(y[1]), 0x1p-20) {
				t.Errorf("of %v: %v, want %v", v, y[0], y[1])
			}
		}
	}
	in := []float32{float32(math.Inf(1)), float32(math.NaN())}
	if sincos(in, in, in); in[0] == in[0] || in[1] == in[1] {
		t.Errorf("of Inf and NaN: %v", in)
	}
}

// With gates of 1 no key has entered, and with one of 0 nothing before it is left.
func TestGateOfZeroForgetsEarlierTokens(t *testing.T) {
	m, err := New("rfa", Options{Width: 8, Set: map[string]string{"gate": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	sh := shape{b: 1, h: 1, hkv: 1, n: 6, m: 6, d: 8, dv: 3, causal: true, decay: 1}
	oc, do := sh.call(70)
	copy(oc.LogG.Data, []float64{0, 0, -0.5, 0, -1000, -0.25})
	for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 2}, {attention.Step, 2}} {
		c := callIn(oc)
		c.Form, c.Chunk = f.form, f.chunk
		o := output(c)
		if err := m.Forward(o, c, nil); err != nil {
			t.Fatal(err)
		}
		row := func(i int) []float32 { return o.Head(0, 0).Row(i) }
		v := c.V.Head(0, 0)
		for e := range sh.dv {
			if row(0)[e] != 0 || row(1)[e] != 0 {
				t.Errorf("%v: what nothing has entered answers %v, %v", f, row(0), row(1))
			}
			for i, j := range map[int]int{2: 2, 3: 2, 4: 4} { // one key alone
				if x := row(i)[e] - v.Row(j)[e]; x > 1e-6 || x < -1e-6 {
					t.Errorf("%v: query %d is answered with %v, not value %d, %v", f, i, row(i), j, v.Row(j))
				}
			}
		}
		if f.form == attention.Step {
			continue
		}
		r := both(t, m, c, in(do))
		if r.keep.WeakCount != 2 || r.keep.WeakAt != [3]int{} {
			t.Errorf("%v: %d weak rows, the first %v", f, r.keep.WeakCount, r.keep.WeakAt)
		}
		for _, x := range [][]float32{r.g.DQ.Data, r.g.DK.Data, r.g.DV.Data, r.g.DLogG.Data, r.tau} {
			for _, y := range x {
				if math.IsNaN(float64(y)) || math.IsInf(float64(y), 0) {
					t.Fatalf("%v: a gradient is %v", f, y)
				}
			}
		}
	}
}

// Rows that are divided by their length give the same, however large they are.
func TestRFAOfLargeRowsIsOfTheirDirections(t *testing.T) {
	m, err := New("rfa", Options{Width: 8, Set: map[string]string{"form": "code"}})
	if err != nil {
		t.Fatal(err)
	}
	run := func(size float64) (o, dq []float32) {
		oc, do := shape{b: 1, h: 1, hkv: 1, n: 12, m: 12, d: 8, dv: 3, causal: true}.call(109)
		for i := range oc.Q.Data {
			oc.Q.Data[i], oc.K.Data[i] = oc.Q.Data[i]*size, oc.K.Data[i]*size
		}
		r := both(t, m, callIn(oc), in(do))
		for i := range r.g.DQ.Data {
			r.g.DQ.Data[i] *= float32(size)
		}
		return r.o.Data, r.g.DQ.Data
	}
	o, dq := run(1e12)
	for _, size := range []float64{1e18, 1e20, 1e35} {
		large, dlarge := run(size)
		for i := range o {
			if d := math.Abs(float64(large[i] - o[i])); !(d <= 1e-5) {
				t.Fatalf("rows of %g: output %d is %v, want %v", size, i, large[i], o[i])
			}
		}
		for i := range dq {
			if d := math.Abs(float64(dlarge[i] - dq[i])); !(d <= 1e-4*check.MaxAbs(dq)) {
				t.Fatalf("rows of %g: gradient %d is %v, want %v", size, i, dlarge[i], dq[i])
			}
		}
	}
}
