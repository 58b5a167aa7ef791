package mechanism

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
)

// mechanismOf returns the mechanism of a row with settings.
func mechanismOf(t *testing.T, name string, heads int, settings ...string) attention.Mechanism {
	t.Helper()
	o := Options{Heads: heads, Width: 32, Set: map[string]string{}}
	for i := 0; i < len(settings); i += 2 {
		o.Set[settings[i]] = settings[i+1]
	}
	m, err := New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Patterns plan and keep in proportion to their pairs: no more than 2.1 times as
// much for twice the tokens, and nothing of size N·M.
func TestPatternsAreNotQuadratic(t *testing.T) {
	for _, x := range []struct {
		name     string
		settings []string
		most     float64
	}{
		{"local", nil, 2.1}, {"local", []string{"form", "block"}, 2.1}, {"longformer", nil, 2.1},
		{"longnet", []string{"segments", "128,512,2048", "ratios", "1,4,16"}, 2.1}, {"adaptive-span", nil, 2.1}, {"transformer-xl", nil, 2.1},
		{"sparse-strided", []string{"stride", "64"}, 3.9}, {"sparse-fixed", nil, 3.9},
	} {
		for _, causal := range []bool{false, true} {
			m := mechanismOf(t, x.name, 1, x.settings...)
			s := attention.Shape{B: 1, H: 1, Hkv: 1, N: 4096, M: 4096, D: 32, Dv: 32, Causal: causal}
			one := m.Plan(s)
			s.N, s.M = 8192, 8192
			if two := m.Plan(s); two.FLOPs > x.most*one.FLOPs || two.Bytes > 2.1*one.Bytes {
				t.Errorf("%s causal %t: %.3g operations and %.3g bytes for 4096 tokens, %.3g and %.3g for 8192", x.name, causal, one.FLOPs, one.Bytes, two.FLOPs, two.Bytes)
			}
		}
		const n = 2048
		m := mechanismOf(t, x.name, 1, x.settings...)
		oc, do := shape{b: 1, h: 1, hkv: 1, n: n, m: n, d: 16, dv: 16, causal: true}.call(93)
		c, doT := callIn(oc), in(do)
		arena.HighWater()
		both(t, m, c, doT)
		if most := arena.HighWater(); most > n*n {
			t.Errorf("%s: %d bytes of scratch for %d tokens", x.name, most, n)
		}
	}
}

// Nothing is allocated for the tokens of a call.
func TestPatternsDoNotAllocate(t *testing.T) {
	defer par.SetThreads(0)
	par.SetThreads(1)
	for _, name := range []string{"local", "longformer", "longnet", "sparse-strided", "sparse-fixed", "adaptive-span", "transformer-xl"} {
		m := mechanismOf(t, name, 2)
		few := func(n int) float64 {
			oc, do := shape{b: 1, h: 2, hkv: 2, n: n, m: n, d: 16, dv: 16, causal: true}.call(94)
			c, doT := callIn(oc), in(do)
			r := both(t, m, c, doT)
			return testing.AllocsPerRun(4, func() {
				if err := m.Forward(r.o, c, &r.keep); err != nil {
					t.Fatal(err)
				}
				if err := m.Backward(&r.g, doT, r.o, c, &r.keep); err != nil {
					t.Fatal(err)
				}
			})
		}
		if one, two := few(96), few(960); two > one+8 {
			t.Errorf("%s allocates %v times for 96 tokens, %v times for 960", name, one, two)
		} else if one > 8 {
			t.Errorf("%s allocates %v times", name, one)
		}
	}
}

// Rows that are wider than the parameters are refused, in states too.
func TestTransformerXLRefusesWiderRows(t *testing.T) {
	m, err := New("transformer-xl", Options{Heads: 2, Width: 4})
	if err != nil {
		t.Fatal(err)
	}
	oc, _ := shape{b: 1, h: 2, hkv: 1, n: 3, m: 3, d: 5, dv: 2, causal: true}.call(96)
	c := callIn(oc)
	const want = "q: D is 5, r has 4"
	if err := m.Forward(output(c), c, nil); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := m.NewState(c.Shape()); err == nil || err.Error() != want {
		t.Errorf("a state: %v, want %s", err, want)
	}
}

// The span's loss is its length, and reaches the gradient by DAux.
func TestAdaptiveSpanHasALossOfItsOwn(t *testing.T) {
	m := mechanismOf(t, "adaptive-span", 2, "penalty", "0.25", "limit", "16")
	span, err := m.Params().Get("span")
	if err != nil {
		t.Fatal(err)
	}
	span.Data[0], span.Data[1] = 5.5, 20 // which counts as 16
	oc, do := shape{b: 3, h: 2, hkv: 1, n: 9, m: 9, d: 3, dv: 2, causal: true}.call(95)
	c := callIn(oc)
	r := both(t, m, c, in(do))
	if want := 3 * 0.25 * (5.5 + 16); math.Abs(r.keep.Aux-want) > 1e-12 {
		t.Errorf("the loss is %v, want %v", r.keep.Aux, want)
	}
	before := slices.Clone(span.Grad)
	m.Params().ZeroGrad()
	r.g.DAux = 2
	if err := m.Backward(&r.g, in(do), r.o, c, &r.keep); err != nil {
		t.Fatal(err)
	}
	// Two roundings of the sum.
	if off := math.Abs(float64(span.Grad[0]-before[0]) - 2*3*0.25); off > 2*check.UnitRoundoff[float]()*(1.5+math.Abs(float64(before[0]))) || span.Grad[1] != 0 {
		t.Errorf("gradients are %v, without the loss %v", span.Grad, before)
	}
}

// A query whose window is masked as a whole gives 0, is counted and has no gradient.
// Programs that mask with large negative numbers average the masked values.
func TestAnEmptyWindowIsZero(t *testing.T) {
	for _, name := range []string{"local", "longformer", "sparse-fixed", "longnet", "adaptive-span"} {
		t.Run(name, func(t *testing.T) {
			settings := map[string][]string{
				"local":         {"window", "3"},
				"longformer":    {"window", "3", "global", "none"},
				"sparse-fixed":  {"stride", "4", "c", "0"},
				"longnet":       {"segments", "4", "ratios", "1"},
				"adaptive-span": {"span", "0", "ramp", "2", "limit", "1"},
			}[name]
			m := mechanismOf(t, name, 1, settings...)
			sh := shape{b: 1, h: 1, hkv: 1, n: 12, m: 12, d: 4, dv: 3}
			oc, do := sh.call(90)
			c := callIn(oc)
			c.KeyMask = make([]bool, 12)
			c.KeyMask[0], c.KeyMask[11] = true, true
			r := both(t, m, c, in(do))
			// The window of token 5 has tokens 4 to 7 and fewer.
			for _, x := range [][]float{r.o.Head(0, 0).Row(5), r.g.DQ.Head(0, 0).Row(5)} {
				if check.MaxAbs(x) != 0 {
					t.Errorf("a query without keys has %v", x)
				}
			}
			if r.keep.UnseenCount < 4 || r.keep.UnseenCount > 10 {
				t.Errorf("%d queries see nothing", r.keep.UnseenCount)
			}
		})
	}
}
