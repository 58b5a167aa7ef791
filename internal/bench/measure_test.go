package bench

import (
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
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

// measured measures a case in the least rounds there may be.
func measured(c *Case) error {
	return Measure([]*Case{c}, time.Nanosecond, at, nil)
}

// at makes a call at once.
func at(f func() error) error { return f() }

// fake is a case that calls f.
func fake(f func() error) *Case {
	return &Case{FLOPs: 1, Line: Line{Threads: 1}, open: func() (*work, error) {
		return &work{prepare: func() error { return nil }, call: f}, nil
	}}
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
		if err := measured(c); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		l := c.Line
		if l.Rounds < 3 || !(l.BestMs > 0 && l.BestMs <= l.Ms) || l.Machine == "" {
			t.Errorf("%s: %+v", name, l)
		}
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
	c := &Case{FLOPs: 1, Line: Line{Threads: 1}, open: func() (*work, error) {
		return &work{held: 1 << 20, prepare: func() error { return nil }, call: func() error {
			kept = make([]byte, 1<<16)
			return nil
		}}, nil
	}}
	if err := measured(c); err != nil {
		t.Fatal(err)
	}
	if extra := c.Line.ExtraBytes; extra < 1<<20+1<<16 || extra > 1<<20+1<<17 || len(kept) == 0 {
		t.Errorf("%d bytes, of which 1 MiB is held and 64 KiB allocated", extra)
	}
}

// The heap tells what a call takes: everything that it allocates, the scratch of
// its worker first of all, when nothing was there before.
func TestExtraBytesAgreeWithTheHeap(t *testing.T) {
	if raced {
		t.Skip("the race detector makes pools lose what they have")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // scratch is kept for each
	defer par.SetThreads(0)
	par.SetThreads(1)
	for _, c := range []struct {
		mechanism string
		form      attention.Form
		backward  bool
	}{
		{"fastmax", attention.Linear, false},
		{"fastmax", attention.Linear, true},
		{"softmax", attention.Direct, false},
		{"softmax", attention.Direct, true},
	} {
		a := Attention{Mechanism: c.mechanism, Backward: c.backward,
			Shape: attention.Shape{B: 1, H: 2, Hkv: 2, N: 300, M: 300, D: 16, Dv: 16, Form: c.form}}
		one := must(t)(a.Case())
		if err := measured(one); err != nil {
			t.Fatal(err)
		}
		w, err := one.open()
		if err != nil {
			t.Fatal(err)
		}
		before := liveBytes()
		for range 3 {
			if err := w.call(); err != nil {
				t.Fatal(err)
			}
		}
		// What is kept for reuse outlives one collection but not two.
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		scratch := int64(m.HeapAlloc) - before
		said := one.ExtraBytes - w.held
		// Scratch is a quarter larger than what was taken of it.
		if float64(said) < 0.6*float64(scratch) || float64(said) > 1.1*float64(scratch) {
			t.Errorf("%+v: %d extra bytes, the heap has %d more", c, said, scratch)
		}
		if c.backward && w.held < 4*2*300 {
			t.Errorf("%+v: %d bytes are said to be kept, of which the denominators are %d", c, w.held, 4*2*300)
		}
	}
}

func TestRoundsTakeTurns(t *testing.T) {
	var order strings.Builder
	var cases []*Case
	for _, name := range []string{"a", "b"} {
		cases = append(cases, fake(func() error {
			order.WriteString(name)
			time.Sleep(time.Millisecond) // more than the budget
			return nil
		}))
	}
	if err := Measure(cases, time.Nanosecond, at, nil); err != nil {
		t.Fatal(err)
	}
	if order.String() != "ababab" {
		t.Errorf("called in the order %s", order.String())
	}
	if cases[0].Rounds != 3 || cases[1].Rounds != 3 {
		t.Errorf("%d and %d rounds", cases[0].Rounds, cases[1].Rounds)
	}
}

func TestRoundsAreSpread(t *testing.T) {
	few, many := &turn{new(Session), 3}, &turn{new(Session), 30}
	for range 33 {
		next := few
		if many.progress() < few.progress() {
			next = many
		}
		next.rounds = append(next.rounds, Round{})
		if d := len(many.rounds) - 10*len(few.rounds); d < -10 || d > 10 {
			t.Errorf("%d rounds of 30 beside %d of 3", len(many.rounds), len(few.rounds))
		}
	}
	if few.progress() != 1 || many.progress() != 1 {
		t.Errorf("progress %g and %g at the end", few.progress(), many.progress())
	}
}

func TestCasesThatFitTogether(t *testing.T) {
	list := []*Case{{Need: 5}, {Need: 3}, {Need: 2}, {Need: 9}}
	for memory, want := range map[float64]int{1: 1, 7: 1, 8: 2, 10: 3, 100: 4} {
		if got := countFitting(list, memory); got != want {
			t.Errorf("%d cases fit in %g, want %d", got, memory, want)
		}
	}
}

func TestMeasureStops(t *testing.T) {
	stop := errors.New("stop")
	calls := 0
	do := func(f func() error) error {
		if calls == 5 {
			return stop
		}
		return f()
	}
	call := func() error {
		calls++
		return nil
	}
	a, b, late := fake(call), fake(call), Case{Need: 1e30}
	if err := Measure([]*Case{a, b, &late}, time.Hour, do, nil); err != stop || calls != 5 {
		t.Errorf("%v after %d calls", err, calls)
	}
	if a.Rounds != 2 || b.Rounds != 1 || !(a.Ms > 0 && b.Ms > 0) || late.Rounds != 0 {
		t.Errorf("%d, %d and %d rounds before", a.Rounds, b.Rounds, late.Rounds)
	}
}

func TestMeasureReportsFailure(t *testing.T) {
	failed := errors.New("failed")
	if err := measured(fake(func() error { return failed })); err != failed {
		t.Errorf("error %v", err)
	}
}

func TestMeasureTellsProgress(t *testing.T) {
	var told []Progress
	c := fake(func() error { return nil })
	if err := Measure([]*Case{c}, time.Nanosecond, at, func(p Progress) { told = append(told, p) }); err != nil {
		t.Fatal(err)
	}
	for i, p := range told {
		if p.Case != c || p.Elapsed < 0 || p.Elapsed > p.Total || i > 0 && p.Elapsed < told[i-1].Elapsed {
			t.Errorf("%d: %v of %v", i, p.Elapsed, p.Total)
		}
	}
	if len(told) < 3 {
		t.Errorf("told %d times", len(told))
	}
}

func TestThreadsOfACase(t *testing.T) {
	defer par.SetThreads(0)
	var had []int
	cases := []*Case{fake(nil), fake(nil)}
	for i, c := range cases {
		c.Threads = i + 1
		c.open = func() (*work, error) {
			return &work{prepare: func() error { return nil }, call: func() error {
				had = append(had, par.Threads())
				return nil
			}}, nil
		}
	}
	par.SetThreads(3)
	if err := Measure(cases, time.Nanosecond, at, nil); err != nil {
		t.Fatal(err)
	}
	if want := []int{1, 2, 1, 2, 1, 2}; !slices.Equal(had, want) || par.Threads() != 3 {
		t.Errorf("called with %v threads, want %v; then there are %d", had, want, par.Threads())
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
	want := strings.Split("impl, mechanism, order, form, causal, direction, n, m, d, dv, heads, threads, isa, ms, spread, gflops, peak_gflops, share, extra_bytes", ", ")
	text, err := json.Marshal(Case{Line: Line{Joules: 1, GFLOPS: 1, Share: 1}, FLOPs: 1})
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, "best_ms", "rounds", "machine", "joules", "asked", "flops")
	var keys []string
	d := json.NewDecoder(strings.NewReader(string(text)))
	for {
		token, err := d.Token()
		if err != nil {
			break
		}
		if key, is := token.(string); is && key != "" {
			keys = append(keys, key)
		}
	}
	if !slices.Equal(keys, want) {
		t.Errorf("keys are %v, want %v", keys, want)
	}
	text, _ = json.Marshal(Case{})
	for _, key := range []string{"joules", `"gflops`, "share", "flops\""} {
		if strings.Contains(strings.ReplaceAll(string(text), "peak_gflops", ""), key) {
			t.Errorf("%s is there where nothing tells it: %s", key, text)
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
		if got := quartileSpread(slices.Clone(c.x)); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("spread of %v is %g, want %g", c.x, got, c.want)
		}
	}
}
