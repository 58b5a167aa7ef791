package bench

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
)

func TestUsefulFLOPs(t *testing.T) {
	heads := func(h, n, m, d, dv int, causal bool) attention.Shape {
		return attention.Shape{B: 1, H: h, Hkv: h, N: n, M: m, D: d, Dv: dv, Causal: causal}
	}
	for _, c := range []struct {
		name string
		got  float64
		want float64
	}{
		{"linear", LinearFLOPs(heads(1, 100, 100, 3, 5, false), 10), 4 * 100 * 10 * (5 + 1)},
		{"linear, causal too", LinearFLOPs(heads(1, 100, 100, 3, 5, true), 10), 4 * 100 * 10 * (5 + 1)},
		{"linear, three heads", LinearFLOPs(heads(3, 100, 100, 3, 5, false), 10), 3 * 4 * 100 * 10 * (5 + 1)},
		{"linear, more keys", LinearFLOPs(heads(1, 100, 300, 3, 5, false), 10), 2 * 400 * 10 * (5 + 1)},
		{"direct", DirectFLOPs(heads(1, 100, 100, 3, 5, false)), 2 * 100 * 100 * (3 + 5)},
		{"direct, causal", DirectFLOPs(heads(1, 100, 100, 3, 5, true)), 100 * 100 * (3 + 5)},
		{"direct, three heads", DirectFLOPs(heads(3, 100, 100, 3, 5, false)), 3 * 2 * 100 * 100 * (3 + 5)},
		{"direct, more keys", DirectFLOPs(heads(1, 100, 300, 3, 5, false)), 2 * 100 * 300 * (3 + 5)},
		{"direct, causal, more keys", DirectFLOPs(heads(1, 100, 300, 3, 5, true)), 2 * (100*200 + 100*100/2) * (3 + 5)},
		{"direct, causal, fewer keys", DirectFLOPs(heads(1, 300, 100, 3, 5, true)), 2 * (100 * 100 / 2) * (3 + 5)},
		{"gemm", gemmFLOPs(7, 5, 3), 2 * 7 * 5 * 3},
	} {
		if c.got != c.want {
			t.Errorf("%s: %g operations, want %g", c.name, c.got, c.want)
		}
	}
}

func TestCasesCountTheFormThatRuns(t *testing.T) {
	const n, d = 300, 6
	const f = (d + 1) * (d + 2) / 2
	linear, direct := 4.0*n*f*(d+1), 2.0*n*n*2*d
	for _, c := range []struct {
		mechanism string
		form      attention.Form
		causal    bool
		backward  bool
		ran       string
		want      float64
	}{
		{"fastmax", attention.Linear, false, false, "linear", linear},
		{"fastmax", attention.Auto, true, false, "linear", linear},
		{"fastmax", attention.Step, true, false, "step", linear},
		{"fastmax", attention.Linear, true, true, "linear", 2.5 * linear},
		{"fastmax", attention.Direct, false, false, "direct", direct},
		{"softmax", attention.Auto, true, false, "direct", direct / 2},
		{"softmax", attention.Step, true, false, "step", direct / 2},
		{"softmax", attention.Auto, false, true, "direct", 2.5 * direct},
		{"linear", attention.Linear, false, false, "linear", 4 * n * d * (d + 1)},
	} {
		got, err := Attention{Mechanism: c.mechanism, Backward: c.backward, Shape: attention.Shape{
			B: 1, H: 1, Hkv: 1, N: n, M: n, D: d, Dv: d, Causal: c.causal, Form: c.form}}.Case()
		if err != nil {
			t.Fatal(err)
		}
		if got.Line.Form != c.ran || got.FLOPs != c.want {
			t.Errorf("%+v: %s with %g operations", c, got.Line.Form, got.FLOPs)
		}
	}
}

func TestDecodeCountsOneToken(t *testing.T) {
	const m, d = 700, 6
	shape := attention.Shape{B: 1, H: 2, Hkv: 2, M: m, D: d, Dv: d}
	const sums = 2 * 4 * (d + 1) * (d + 2) / 2 * (d + 1)
	for _, x := range []struct {
		name, window string
		want         float64
	}{
		{"fastmax", "", sums},
		{"fastmax", "64", sums + 2*2*64*(2*d+3)},
		{"fastmax", "1024", sums + 2*2*(m+1)*(2*d+3)}, // it is not full
		{"softmax", "", 2 * 2 * m * 2 * d},
		{"local", "", 0}, // not counted
	} {
		o := mechanism.Options{Heads: 2, Width: d}
		if x.window != "" {
			o.Set = map[string]string{"window": x.window}
		}
		c, err := Attention{Mechanism: x.name, Options: o, Shape: shape}.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if c.FLOPs != x.want || c.Line.N != 1 || c.Line.M != m {
			t.Errorf("%s, window %q: %g operations, want %g; N %d, M %d", x.name, x.window, c.FLOPs, x.want, c.Line.N, c.Line.M)
		}
	}
}

func TestTrainingCounts(t *testing.T) {
	c, err := Training{Mechanism: "softmax", Layers: 2, Heads: 3, D: 4, Context: 10, Batch: 5}.Case()
	if err != nil {
		t.Fatal(err)
	}
	const w, tokens = 12, 50
	products := 6.0 * tokens * (2*12*w*w + 256*w)
	pairs := 2.0 * 3.5 * 5 * 3 * 10 * 10 * (4 + 4) // layers, directions, sequences, heads
	if c.FLOPs != products+pairs {
		t.Errorf("%g operations, want %g", c.FLOPs, products+pairs)
	}
}
