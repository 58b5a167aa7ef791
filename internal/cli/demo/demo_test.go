package demo

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
)

func TestAgreements(t *testing.T) {
	list, err := agreements(150)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 6 {
		t.Errorf("%d forms", len(list))
	}
	for _, a := range list {
		if !(a.digits > 5.5 && a.digits < 10) {
			t.Errorf("%s: %.2f digits", a.form, a.digits)
		}
	}
	if last := list[len(list)-1].form; !strings.HasSuffix(last, "(the same bits)") {
		t.Errorf("%s: other bits than without", last)
	}
}

func TestDigits(t *testing.T) {
	if d := digits([]float32{1, 2}, []float64{1, 2.002}); math.Abs(d-3) > 1e-3 {
		t.Errorf("an error of one in a thousand leaves %g digits", d)
	}
}

func TestScaling(t *testing.T) {
	var out bytes.Buffer
	e := &env.Env{Context: context.Background(), Stdout: &out, Stderr: &out}
	s, err := showScaling(e, 2000)
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{100, 200, 500, 1000, 2000}; !slices.Equal(s.n, want) {
		t.Errorf("measured at %v, want %v", s.n, want)
	}
	if slices.Min(s.state) != slices.Max(s.state) {
		t.Errorf("the state has %v bytes", s.state)
	}
	for _, want := range []string{"100", "2 k", "tokens", "faster than softmax from N = "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not printed:\n%s", want, out.String())
		}
	}
}

// extrapolated is a scaling whose softmax was measured up to 1000 tokens.
func extrapolated() *scaling {
	return &scaling{
		n: []float64{100, 1000, 10000}, linear: []float64{1e-3, 1e-2, 1e-1},
		softmax: []float64{1e-4, 1e-2}, direct: []float64{1e-4, 2e-2},
		state: []int64{5, 5, 5}, cache: 8,
	}
}

func TestExtrapolation(t *testing.T) {
	s := extrapolated()
	if seconds, measured := s.softmaxAt(1); seconds != 1e-2 || !measured {
		t.Errorf("at 1000: %g, %t", seconds, measured)
	}
	if seconds, measured := s.softmaxAt(2); math.Abs(seconds-1) > 1e-9 || measured {
		t.Errorf("at 10000: %g, %t", seconds, measured)
	}
	var b strings.Builder
	if err := s.table(&b); err != nil {
		t.Fatal(err)
	}
	if want := "| 10000 | 100 ms | 1 s (extrapolated) | 5 B | 78.1 KiB |"; !strings.Contains(b.String(), want) {
		t.Errorf("no line %q in\n%s", want, b.String())
	}
	var plot bytes.Buffer
	s.plot(&plot)
	for _, mark := range []string{"·", "o", "─"} {
		if !strings.Contains(plot.String(), mark) {
			t.Errorf("no %q in\n%s", mark, plot.String())
		}
	}
}

func TestCrossovers(t *testing.T) {
	s := extrapolated()
	s.softmax[1] = 4e-2
	softmax, direct := s.crossovers()
	if softmax < 100 || softmax > 1000 || direct < softmax || direct > 1000 {
		t.Errorf("crossovers %g, %g", softmax, direct)
	}
	for n, want := range map[float64]string{0: "(not met)", 437: "440", 1234: "1200", 52: "52"} {
		if got := display.FormatCrossover(n); got != want {
			t.Errorf("%g is written %s, want %s", n, got, want)
		}
	}
}

func TestScalingIsSaved(t *testing.T) {
	dir := t.TempDir()
	if err := extrapolated().save(dir, bench.DescribeMachine(0)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"scaling.svg": "softmax, extrapolated", "scaling.md": "| 1000 | 10 ms | 10 ms |"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(content, []byte(want)) {
			t.Errorf("%s has no %q", name, want)
		}
	}
}
