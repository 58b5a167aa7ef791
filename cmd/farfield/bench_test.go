package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/mechanism"
)

func TestBenchTable(t *testing.T) {
	out := works(t, strings.Fields("--threads 1 bench attention --mechanism fastmax,softmax --order 2 --form direct,linear --causal -n 33,65 -d 4,5 --direction forward,backward --time 1ns")...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	// Machine, header, 2 directions × 2 widths × 3 forms × 2 lengths, and 2 × 2 × 2 crossings.
	if want := 1 + 1 + 24 + 8; len(lines) != want {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), want, out)
	}
	for i, want := range []string{"threads 1", "useful", "fastmax 2", "forward causal"} {
		if !strings.Contains(lines[min(i, 2)], want) {
			t.Errorf("line %d has no %q: %s", min(i, 2), want, lines[min(i, 2)])
		}
	}
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "D 5, backward: fastmax 2 linear is faster than softmax direct ") {
		t.Errorf("last line: %s", last)
	}
}

func TestBenchTakesLists(t *testing.T) {
	out := works(t, strings.Fields("bench attention --mechanism fastmax --order 1,2 --form auto,direct -n 17 -d 4,5 --heads 1,2 --threads 2,1,2 --direction backward,forward --time 1ns --json")...)
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		var l struct {
			bench.Line
			Asked string
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Form == "auto" || l.Asked == "direct" && l.Form != "direct" {
			t.Errorf("asked for %s, got %s", l.Asked, l.Form)
		}
		seen[fmt.Sprint(l.Order, l.Asked, l.D, l.Heads, l.Threads, l.Direction)] = true
	}
	if n := strings.Count(out, "\n"); n != 64 || len(seen) != 64 {
		t.Errorf("%d lines, of which %d are different, want 64", n, len(seen))
	}
}

func TestBenchJSON(t *testing.T) {
	for _, c := range []struct {
		args string
		want []bench.Line // what is not measured
	}{
		{"attention --mechanism linear,fastmax --order 1 -n 9 -m 11 -d 3 --dv 2 --heads 2 --form linear", []bench.Line{
			{Impl: "farfield", Mechanism: "linear", Form: "linear", Direction: "forward", N: 9, M: 11, D: 3, Dv: 2, Heads: 2},
			{Impl: "farfield", Mechanism: "fastmax", Order: 1, Form: "linear", Direction: "forward", N: 9, M: 11, D: 3, Dv: 2, Heads: 2},
		}},
		{"decode --mechanism softmax -n 20 -d 3", []bench.Line{
			{Impl: "farfield", Mechanism: "softmax", Form: "step", Causal: true, Direction: "forward", N: 1, M: 20, D: 3, Dv: 3, Heads: 1},
		}},
		{"gemm -n 20,10,20 -d 3 --transpose nt", []bench.Line{
			{Impl: "farfield", Mechanism: "gemm", Form: "nt", Direction: "forward", N: 10, M: 10, D: 3},
			{Impl: "farfield", Mechanism: "gemm", Form: "nt", Direction: "forward", N: 20, M: 20, D: 3},
		}},
		{"train --mechanism softmax -n 8 -d 4 --heads 2 --layers 1 --batch 1", []bench.Line{
			{Impl: "farfield", Mechanism: "softmax", Form: "direct", Causal: true, Direction: "update", N: 8, M: 8, D: 4, Dv: 4, Heads: 2},
		}},
	} {
		out := works(t, append([]string{"--threads", "1", "bench"}, strings.Fields(c.args+" --json --time 1ns")...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != len(c.want) {
			t.Errorf("%s: %d lines:\n%s", c.args, len(lines), out)
			continue
		}
		for i, line := range lines {
			var got struct {
				bench.Line
				Asked string
				FLOPs float64
			}
			d := json.NewDecoder(strings.NewReader(line))
			d.DisallowUnknownFields()
			if err := d.Decode(&got); err != nil {
				t.Errorf("%s: %v in %s", c.args, err, line)
			}
			if !(got.Ms > 0 && got.BestMs > 0 && got.Share > 0 && got.FLOPs > 0) || got.Rounds < 3 ||
				got.ISA == "" || got.Machine == "" || got.Threads != 1 || got.Asked == "" {
				t.Errorf("%s: %s", c.args, line)
			}
			if !strings.HasPrefix(line, `{"impl":"farfield","mechanism":"`) {
				t.Errorf("%s begins with %.40s", c.args, line)
			}
			said := c.want[i]
			had := bench.Line{Impl: got.Impl, Mechanism: got.Mechanism, Order: got.Order, Form: got.Form, Causal: got.Causal,
				Direction: got.Direction, N: got.N, M: got.M, D: got.D, Dv: got.Dv, Heads: got.Heads}
			if had != said {
				t.Errorf("%s: %+v, want %+v", c.args, had, said)
			}
		}
	}
}

func TestBenchMarksWhatDoesNotFit(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "plot.svg")
	status, out, errs := command(t, strings.Fields("bench attention --mechanism softmax -n 16,1e15 -d 4 --memory 1MiB --json --time 1ns --plot "+plot)...)
	if status != 0 || strings.Count(out, "\n") != 1 || !strings.Contains(out, `"n":16,`) {
		t.Errorf("status %d:\n%s", status, out)
	}
	for _, want := range []string{"softmax direct forward, N 1000000000000000, M 1000000000000000, D 4 does not fit: it needs ", "more than 1 MiB\n"} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in\n%s", want, errs)
		}
	}
	figure, err := os.ReadFile(plot)
	if err != nil || !bytes.Contains(figure, []byte("softmax auto, D 4")) || !bytes.Contains(figure, []byte("does not fit")) {
		t.Errorf("figure of %d bytes, %v", len(figure), err)
	}
}

func TestBenchRunsNothingThatIsNotFree(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not report free memory")
	}
	out := works(t, strings.Fields("bench attention --mechanism softmax -n 1e12 -d 4 --memory 900TiB")...)
	if !strings.Contains(out, "does not fit: it needs ") || !strings.Contains(out, " are free\n") {
		t.Errorf("printed\n%s", out)
	}
}

func TestBenchPlotFormats(t *testing.T) {
	for ext, start := range map[string]string{".svg": "<?xml", ".png": "\x89PNG"} {
		plot := filepath.Join(t.TempDir(), "plot"+ext)
		works(t, "bench", "gemm", "-n", "4,8", "-d", "4", "--time", "1ns", "--plot", plot)
		figure, err := os.ReadFile(plot)
		if err != nil || !strings.HasPrefix(string(figure), start) {
			t.Errorf("%s begins with %.8q, %v", ext, figure, err)
		}
	}
}

func TestBenchPlotIsWholeOrOld(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "plot.svg")
	if err := os.WriteFile(plot, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	status, _, errs := command(t, strings.Fields("bench gemm -n 1e12 -d 4 --plot "+plot)...)
	if status != env.StatusFailure || !strings.Contains(errs, "nothing was measured") {
		t.Errorf("a figure of nothing: status %d, %s", status, errs)
	}
	if content, _ := os.ReadFile(plot); string(content) != "old" {
		t.Errorf("the figure of before is now %.20q", content)
	}
	works(t, "bench", "gemm", "-n", "4", "-d", "4", "--time", "1ns", "--plot", plot)
	if list, _ := os.ReadDir(filepath.Dir(plot)); len(list) != 1 {
		t.Errorf("%d files", len(list))
	}
}

func TestBenchRefuses(t *testing.T) {
	for _, c := range []struct{ want, args string }{
		{`expected one of "attention", "decode", "zoo", "gemm", "train"`, ""},
		{"unexpected argument conv", "conv"},
		{"(see farfield bench attention --help)", "attention --wrong"},
		{"--form must be one of", "attention --form best"},
		{"--direction must be one of", "attention --direction sideways"},
		{"--transpose must be one of", "gemm --transpose n"},
		{"softmax has no linear form", "attention --mechanism softmax --form linear"},
		{"fastmax has no backward pass of the step form", "attention --mechanism fastmax --form step --direction backward"},
		{"softmax: order 2: it has no order", "attention --mechanism softmax --order 2"},
		{"--order: 0 is less than 1", "decode --order 2,0"},
		{"fastmax: setting nothing=1: unknown", "train --set nothing=1"},
		{`mechanism "fastmx": unknown`, "decode --mechanism fastmx"},
		{`"0": needs a whole number`, "attention -n 0"},
		{"a flag has an empty list: there is nothing to measure", "attention --n="},
		{"a flag has an empty list: there is nothing to measure", "zoo --n="},
		{"a flag has an empty list: there is nothing to measure", "zoo --n=16 --measure="},
		{`"12PiB": needs a number above 0`, "attention --memory 12PiB"},
		{"--time: 0s is not above 0", "gemm --time 0s"},
		{`needs .svg or .png`, "gemm --plot a.gif"},
		{"--plot: ", "gemm --plot no/such/folder/a.svg"},
		{"--threads: -1 is negative", "gemm --threads=1,-1"},
		{"heads of width 2 or more", "train -d 1"},
	} {
		refuses(t, c.want, strings.Fields("bench "+c.args)...)
	}
}

// endsAfter is a context that ends after a number of calls of Done.
type endsAfter struct {
	context.Context
	calls int
}

func (c *endsAfter) Done() <-chan struct{} {
	c.calls--
	done := make(chan struct{})
	if c.Err() != nil {
		close(done)
	}
	return done
}

func (c *endsAfter) Err() error {
	if c.calls < 0 {
		return context.Canceled
	}
	return nil
}

func TestBenchIsInterrupted(t *testing.T) {
	for _, c := range []struct{ calls, lines int }{{0, 0}, {2, 0}, {3, 1}, {4, 2}, {9, 2}} {
		var out, errs bytes.Buffer
		plot := filepath.Join(t.TempDir(), "plot.svg")
		// Two cases are prepared, then the first has a round, then the second.
		status := farfield().RunVerb([]string{"bench", "gemm", "-n", "4,5", "-d", "4", "--time", "1h", "--json", "--plot", plot},
			&env.Env{Context: &endsAfter{context.Background(), c.calls}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
		if status != env.StatusInterrupted || strings.Count(out.String(), "\n") != c.lines || !strings.HasSuffix(errs.String(), "farfield: interrupted\n") {
			t.Errorf("after %d calls: status %d, %q, %q", c.calls, status, out.String(), errs.String())
		}
		if c.lines > 0 && !strings.Contains(out.String(), `"n":4`) {
			t.Errorf("after %d calls: %q", c.calls, out.String())
		}
		if _, err := os.Stat(plot); err == nil {
			t.Error("a figure of a part was written")
		}
	}
}

func TestThreadLists(t *testing.T) {
	refuses(t, "--threads: a list, [1 2], is for bench alone", "--threads", "1,2", "plan")
	works(t, "--threads", "1,1", "plan", "--n", "10", "--d", "4")
}

func TestBenchZoo(t *testing.T) {
	out := works(t, strings.Fields("--threads 1 bench zoo -n 24 -d 4 --heads 2 --time 1ns")...)
	for _, name := range mechanism.Names() {
		if !strings.Contains(out, "\n"+name+" ") {
			t.Errorf("%s is not in\n%s", name, out)
		}
	}
	if last := out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]; !strings.Contains(last, "claim") {
		t.Errorf("the last line is %s", last)
	}
}

func TestBenchZooJSON(t *testing.T) {
	out := works(t, strings.Fields("--threads 1 bench zoo --mechanism fastmax,luna -n 9,17 -d 4 --heads 2 --measure forward,decode --time 1ns --json")...)
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		var l bench.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		seen[fmt.Sprint(l.Mechanism, " ", l.N, " of ", l.M)] = true
	}
	for _, want := range []string{"fastmax 9 of 9", "fastmax 17 of 17", "fastmax 1 of 9", "fastmax 1 of 17", "luna 9 of 9", "luna 17 of 17"} {
		if !seen[want] {
			t.Errorf("no line of %s in\n%s", want, out)
		}
	}
	if len(seen) != 6 {
		t.Errorf("%d lines, want 6", len(seen))
	}
	refuses(t, "ring", strings.Fields("bench zoo --mechanism ring")...)
	refuses(t, "linformer has no causal form", strings.Fields("bench zoo --mechanism linformer --causal")...)
}
