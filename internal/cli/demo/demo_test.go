package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/safetensors"
)

func TestAgreements(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	if d := digits([]float32{1, 2}, []float64{1, 2.002}); math.Abs(d-3) > 1e-3 {
		t.Errorf("an error of one in a thousand leaves %g digits", d)
	}
}

// What make demo-model wrote: the weights, and the bits a byte of the model on the first bytes of the text that
// it did not learn.
const (
	carriedSum   = "2f79e6ff8b4c277f7dbdc32e44445e1fb602e6abe95e926a330150386f571964"
	carriedBits  = 2.0969
	carriedBytes = 4096
)

func TestCarriedModelIsTheOneThatWasMade(t *testing.T) {
	t.Parallel()
	data, err := carried.ReadFile("model/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != carriedSum {
		t.Errorf("the weights have SHA-256 %x, want %s", sum, carriedSum)
	}
	f, err := safetensors.New(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range f.Names() {
		if d, _, err := f.ReadHeader(name); err != nil || d != array.BF16 {
			t.Errorf("%s: type %v, %v; want 16 bits", name, d, err)
		}
	}
	dir := t.TempDir()
	if err := writeCarried(dir); err != nil {
		t.Fatal(err)
	}
	m, err := inference.Open(dir, inference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := unseenText()
	if err != nil {
		t.Fatal(err)
	}
	r, err := measureReading(t.Context(), []*reader{{name: "softmax", model: m.Model()}}, text, carriedBytes/2, carriedBytes, time.Hour, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if bits := r.meanBits(0); math.Abs(bits-carriedBits) > 1e-3 {
		t.Errorf("%.4f bits a byte, want %.4f", bits, carriedBits)
	}
}

func TestDemoShowsAllActs(t *testing.T) {
	exchange.MostTimed = 512
	var out, errs bytes.Buffer
	e := &env.Env{Context: context.Background(), Stdout: &out, Stderr: &errs}
	dir := t.TempDir()
	few := extent{written: 40, calibration: 4096, window: 512, cells: 16, least: 128, most: 512, longest: time.Second, begun: 300}
	if err := show(e, filepath.Join(dir, "work"), dir, few); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1. A small language model writes", "ROMEO:", "2. Its attention is exchanged", "3. Both read a text", "Memory: after 128 bytes",
		"Quality: a byte costs ", "4. A session goes on", "These are the bytes", "5. With your own", "farfield exchange --model DIR"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not printed:\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 80 && !strings.HasPrefix(line, "farfield on ") {
			t.Errorf("%d characters in a line of a terminal: %s", n, line)
		}
	}
	for name, want := range map[string]string{"demo.svg": "multipole", "demo.png": "PNG", "demo.md": "| 512 | "} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Contains(content, []byte(want)) {
			t.Errorf("%s has no %q: %v", name, want, err)
		}
	}
	if errs.Len() > 0 {
		t.Errorf("stderr: %s", errs.String())
	}
}

// made is a reading whose softmax stopped early.
func made() *reading {
	return &reading{lengths: []float64{512, 1024, 2048, 4096}, readers: []*reader{
		{name: "softmax", seconds: []float64{0.1, 0.3, 1.0}, memory: []float64{100, 200, 400}, bits: []float64{2, 2, 2}},
		{name: "window alone", seconds: []float64{0.1, 0.2, 0.4, 0.8}, memory: []float64{9, 9, 9, 9}, bits: []float64{2.5, 2.5, 2.5, 2.5}},
		{name: "multipole", seconds: []float64{0.2, 0.4, 0.8, 1.6}, memory: []float64{50, 50, 50, 50}, bits: []float64{2.1, 2.1, 2.1, 2.1}},
	}}
}

func TestReadingIsExtrapolatedByItsLastLengths(t *testing.T) {
	t.Parallel()
	r := made()
	seconds, memory, measured := r.at(softmaxReader, 3)
	// t/n grows by 1.0/2048 - 0.3/1024 from 1024 to 2048 bytes, and by twice that to 4096.
	if want := 4096 * (1.0/2048 + 2*(1.0/2048-0.3/1024)); math.Abs(seconds-want) > 1e-9 || memory != 800 || measured {
		t.Errorf("%g s, want %g; %g bytes, want 800; measured %t", seconds, want, memory, measured)
	}
	if seconds, memory, measured := r.at(softmaxReader, 1); seconds != 0.3 || memory != 200 || !measured {
		t.Errorf("measured: %g s, %g bytes, %t", seconds, memory, measured)
	}
}

// The words say what the numbers say, for softmax and for the window as well.
func TestVerdictsFollowTheNumbers(t *testing.T) {
	t.Parallel()
	r := made()
	says := func(want ...string) {
		t.Helper()
		all := strings.Join(r.verdicts(), "\n")
		for _, w := range want {
			if !strings.Contains(all, w) {
				t.Errorf("%q is not said:\n%s", w, all)
			}
		}
	}
	r.wide = 2.2
	says("1.2 times as long", "Below about ", "softmax would take about", "the same 50 B", "multipole keeps 80 %", "The window alone is the fastest")
	r.wide = 2.1
	says("A window of 64 bytes would do as well, with 2.100")
	r.readers[softmaxReader].seconds[2] = 0.7
	says("softmax is as fast or faster at every length up to 2,048 bytes")
	copy(r.readers[windowReader].bits, []float64{2.1, 2.1, 2.1})
	says("The window alone does as well here")
	r.readers[windowReader].seconds[3] = 10
	says("The window alone is slower than multipole here: 10 s for all 4,096 bytes")
	r.readers[multipoleReader].memory[3] = 70
	says("multipole keeps 50 B after 512 bytes and 70 B after 4,096")
}

func TestChartIsAligned(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := made()
	r.chart(&out)
	lines := strings.Split(out.String(), "\n")
	for _, line := range lines[1 : panelRows+1] {
		if strings.Count(line, "┤") != 3 {
			t.Errorf("a line has no three axes: %q", line)
		}
		at := strings.Index(line, "┤")
		if utf8.RuneCountInString(line[:at]) != 2+labelWidth {
			t.Errorf("an axis is out of line: %q", line)
		}
	}
	for _, want := range []string{"s softmax", "· softmax, extrapolated", "4k", "2.5"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	var page strings.Builder
	if err := r.page(&page, bench.DescribeMachine(0)); err != nil {
		t.Fatal(err)
	}
	if want := "| 4096 | 3.6 s (extrapolated) | 800 ms | 1.6 s | 800 B (extrapolated) | 9 B | 50 B | – | 2.50 | 2.10 |"; !strings.Contains(page.String(), want) {
		t.Errorf("no line %q in\n%s", want, page.String())
	}
}
