package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/report"
)

func TestBenchFigure(t *testing.T) {
	at := func(mechanism, form string, grows bool, n int, ms float64) *bench.Case {
		return &bench.Case{AskedForm: form, Grows: grows, X: float64(n), FLOPs: float64(n * n),
			Line: bench.Line{Mechanism: mechanism, D: 8, N: n, Ms: ms, GFLOPS: float64(n*n) / (ms * 1e6)}}
	}
	cases := []*bench.Case{
		at("a", "direct", false, 10, 1), at("a", "direct", false, 20, 4), at("a", "direct", false, 40, 0),
		at("b", "direct", false, 20, 0), // never measured
		at("b", "linear", true, 10, 1.5), at("b", "linear", true, 20, 3),
	}
	series := bench.GroupSeries(cases)
	f := (&sweep{}).figure(series, bench.FindCrossings(series))
	var drawn []string
	for _, s := range f.Series {
		drawn = append(drawn, fmt.Sprint(s.Style, s.Name, len(s.X)))
	}
	want := []string{
		fmt.Sprint(report.SolidLine, "a direct, D 8", 2), fmt.Sprint(report.Crosses, "does not fit", 1),
		fmt.Sprint(report.SolidLine, "b linear, D 8", 2), fmt.Sprint(report.Rings, "linear form faster from here", 1),
	}
	if !slices.Equal(drawn, want) {
		t.Fatalf("series %q, want %q", drawn, want)
	}
	if x := f.Series[1]; x.X[0] != 40 || math.Abs(x.Y[0]-16e-3) > 1e-12 {
		t.Errorf("cross at %g, %g", x.X[0], x.Y[0])
	}
	// t = n²/100 and 0.15n meet at 15.
	if x := f.Series[3]; math.Abs(x.X[0]-15) > 1e-9 || math.Abs(x.Y[0]-2.25e-3) > 1e-12 {
		t.Errorf("ring at %g, %g", x.X[0], x.Y[0])
	}
	if a, b := f.Series[0], f.Series[2]; a.Colour == b.Colour || a.Mark != b.Mark {
		t.Errorf("drawn as %s %s and %s %s", a.Colour, a.Mark, b.Colour, b.Mark)
	}
}

func TestMemorySizes(t *testing.T) {
	for text, want := range map[string]memory{"48GiB": 48 << 30, "1.5 KiB": 1536, "2MiB": 2 << 20, "1TiB": 1 << 40, "1000": 1000} {
		var m memory
		if err := m.UnmarshalText([]byte(text)); err != nil || m != want {
			t.Errorf("%s is %g, %v", text, float64(m), err)
		}
	}
	for _, text := range []string{"", "GiB", "-1GiB", "NaN", "Inf", "1GB"} {
		if err := new(memory).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestSweepProgress(t *testing.T) {
	var b strings.Builder
	at := bench.Progress{Case: &bench.Case{Line: bench.Line{Mechanism: "softmax", N: 7}}, Elapsed: time.Second, Total: 4 * time.Second}
	p := newSweepProgress(&env.Env{Stderr: &b})
	p.next(at)
	if b.Len() != 0 {
		t.Errorf("said at once: %s", b.String())
	}
	p.spoke = p.spoke.Add(-progress.LinePeriod)
	p.next(at)
	if !strings.HasPrefix(b.String(), "25%  3s left  softmax") {
		t.Errorf("said %s", b.String())
	}
	b.Reset()
	p = newSweepProgress(&env.Env{Stderr: &b, IsTerminal: true})
	p.next(at)
	p.next(bench.Progress{Case: at.Case, Elapsed: 2 * time.Second, Total: 4 * time.Second})
	if !strings.Contains(b.String(), "softmax") || !strings.Contains(b.String(), "%") {
		t.Errorf("drawn %q", b.String())
	}
}

func TestOperationsThatAreNotCountedAreNotPrinted(t *testing.T) {
	c := &bench.Case{Line: bench.Line{Mechanism: "local", Form: "step", Ms: 1, Peak: 100}}
	if row := benchRow(c); strings.Count(row, " – ") != 3 || strings.Contains(row, "FLOP") {
		t.Errorf("written as %s", row)
	}
	text, err := json.Marshal(c)
	if err != nil || strings.Contains(string(text), "flops\":0") || strings.Contains(string(text), "share") {
		t.Errorf("%s, %v", text, err)
	}
}
