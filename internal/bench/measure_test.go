package bench

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/attention"
)

// must returns the case of a suite that there is.
func must(t *testing.T) func(*Case, error) *Case {
	return func(c *Case, err error) *Case {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func TestEverySuiteMeasures(t *testing.T) {
	of := func(mechanism string, form attention.Form, backward bool) Attention {
		return Attention{Mechanism: mechanism, Backward: backward,
			Shape: attention.Shape{B: 1, H: 2, Hkv: 2, N: 37, M: 37, D: 5, Dv: 3, Causal: true, Form: form}}
	}
	for name, c := range map[string]*Case{
		"linear":          must(t)(of("fastmax", attention.Linear, false).Case()),
		"linear backward": must(t)(of("taylorshift", attention.Linear, true).Case()),
		"direct backward": must(t)(of("softmax", attention.Direct, true).Case()),
		"step":            must(t)(of("linear", attention.Step, false).Case()),
		"decode":          must(t)(of("fastmax", attention.Auto, false).Decode()),
		"decode, cache":   must(t)(of("softmax", attention.Auto, false).Decode()),
		"gemm nn":         Gemm{N: 33, M: 17, D: 9}.Case(),
		"gemm tt":         Gemm{N: 33, M: 17, D: 9, TransA: true, TransB: true}.Case(),
		"train":           must(t)(Training{Mechanism: "fastmax", Layers: 1, Heads: 2, D: 4, Context: 16, Batch: 1}.Case()),
	} {
		if err := c.Measure(t.Context(), time.Nanosecond); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		l := c.Line
		if !(l.Ms > 0 && l.Spread >= 0 && l.GFLOPS > 0 && l.Peak > 0) || l.ExtraBytes <= 0 || l.ISA == "" || l.Threads < 1 {
			t.Errorf("%s: %+v", name, l)
		}
		if math.Abs(l.GFLOPS*l.Ms*1e6/c.FLOPs-1) > 1e-9 || math.Abs(l.Share*l.Peak/l.GFLOPS-1) > 1e-9 {
			t.Errorf("%s: the figures do not fit each other: %+v", name, l)
		}
		if c.Need < 1 {
			t.Errorf("%s: needs %g bytes", name, c.Need)
		}
	}
}

func TestExtraBytesAreMeasured(t *testing.T) {
	var kept []byte
	c := &Case{FLOPs: 1, open: func() (*work, error) {
		return &work{held: 1 << 20, ready: func() error { return nil }, call: func() error {
			kept = make([]byte, 1<<16)
			return nil
		}}, nil
	}}
	if err := c.Measure(t.Context(), time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	if extra := c.Line.ExtraBytes; extra < 1<<20+1<<16 || extra > 1<<20+1<<17 || len(kept) == 0 {
		t.Errorf("%d bytes, of which 1 MiB is held and 64 KiB allocated", extra)
	}
}

func TestMeasureStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	c := &Case{FLOPs: 1, open: func() (*work, error) {
		return &work{ready: func() error { return nil }, call: func() error {
			if calls++; calls == 2 {
				cancel()
			}
			return nil
		}}, nil
	}}
	if err := c.Measure(ctx, time.Hour); !errors.Is(err, context.Canceled) || calls != 2 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestMeasureReportsFailure(t *testing.T) {
	failed := errors.New("failed")
	c := &Case{open: func() (*work, error) {
		return &work{call: func() error { return failed }}, nil
	}}
	if err := c.Measure(t.Context(), time.Second); err != failed {
		t.Errorf("error %v", err)
	}
}

func TestWhatMechanismsLack(t *testing.T) {
	shape := attention.Shape{B: 1, H: 1, Hkv: 1, N: 9, M: 9, D: 4, Dv: 4}
	for _, c := range []struct {
		a    Attention
		form attention.Form
		want string
	}{
		{Attention{Mechanism: "softmax"}, attention.Linear, "softmax has no linear form"},
		{Attention{Mechanism: "fastmax", Backward: true}, attention.Step, "fastmax has no backward pass of the step form"},
	} {
		c.a.Shape = shape
		c.a.Shape.Form = c.form
		_, err := c.a.Case()
		var lack *LackError
		if !errors.As(err, &lack) || err.Error() != c.want {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

func TestKeysOfALine(t *testing.T) {
	keys := strings.Split("impl, mechanism, order, form, causal, direction, n, m, d, dv, heads, threads, isa, ms, spread, gflops, peak_gflops, share, extra_bytes", ", ")
	for _, joules := range []float64{0, 1} {
		text, err := json.Marshal(Line{Joules: joules})
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for d := json.NewDecoder(strings.NewReader(string(text))); ; {
			token, err := d.Token()
			if err != nil {
				break
			}
			if key, is := token.(string); is && key != "" {
				list = append(list, key)
			}
		}
		want := keys
		if joules > 0 {
			want = append(slices.Clone(keys), "joules")
		}
		if !slices.Equal(list, want) {
			t.Errorf("keys are %v, want %v", list, want)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{
		{[]float64{4}, 0},
		{[]float64{3, 1, 2}, 1},
		{[]float64{1, 2, 3, 4}, 2 / 2.5},
		{[]float64{5, 4, 3, 2, 1}, 1},
	} {
		if got := spread(slices.Clone(c.x)); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("spread of %v is %g, want %g", c.x, got, c.want)
		}
	}
}

func TestKibibytes(t *testing.T) {
	text := []byte("MemTotal:       8000 kB\nMemAvailable:    4321 kB\n")
	if n, ok := kibibytes(text, "MemAvailable:"); n != 4321<<10 || !ok {
		t.Errorf("%d bytes, %t", n, ok)
	}
	if _, ok := kibibytes(text, "VmHWM:"); ok {
		t.Error("found what is not there")
	}
}
