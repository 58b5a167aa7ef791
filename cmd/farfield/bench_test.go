package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/bench"
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
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "fastmax 2 linear, D 5, backward: faster than softmax direct, D 5, backward ") {
		t.Errorf("last line: %s", last)
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
			var got bench.Line
			d := json.NewDecoder(strings.NewReader(line))
			d.DisallowUnknownFields()
			if err := d.Decode(&got); err != nil {
				t.Errorf("%s: %v in %s", c.args, err, line)
			}
			if !(got.Ms > 0 && got.Share > 0) || got.ISA == "" || got.Threads != 1 {
				t.Errorf("%s: %s", c.args, line)
			}
			said := c.want[i]
			said.Threads, said.ISA, said.Ms, said.Spread, said.GFLOPS, said.Peak, said.Share, said.ExtraBytes, said.Joules =
				got.Threads, got.ISA, got.Ms, got.Spread, got.GFLOPS, got.Peak, got.Share, got.ExtraBytes, got.Joules
			if got != said {
				t.Errorf("%s: %+v, want %+v", c.args, got, said)
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
	if want := "softmax direct forward, N 1000000000000000, M 1000000000000000, D 4 does not fit: it needs "; !strings.Contains(errs, want) {
		t.Errorf("no %q in\n%s", want, errs)
	}
	figure, err := os.ReadFile(plot)
	if err != nil || !bytes.Contains(figure, []byte("softmax auto, D 4")) {
		t.Errorf("figure of %d bytes, %v", len(figure), err)
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

func TestBenchFigure(t *testing.T) {
	cases := []*bench.Case{
		{Asked: "direct", X: 10, FLOPs: 100, Line: bench.Line{Mechanism: "a", N: 10, Ms: 1, GFLOPS: 1e-4}},
		{Asked: "direct", X: 20, FLOPs: 400, Line: bench.Line{Mechanism: "a", N: 20}},
		{Asked: "direct", X: 20, FLOPs: 400, Line: bench.Line{Mechanism: "b", N: 20}}, // never measured
	}
	f := (&sweep{}).figure(bench.Gather(cases))
	if len(f.Series) != 2 || f.Series[0].Crosses || !f.Series[1].Crosses {
		t.Fatalf("series %+v", f.Series)
	}
	if at := f.Series[1]; at.X[0] != 20 || math.Abs(at.Y[0]-4e-3) > 1e-12 {
		t.Errorf("cross at %g, %g", at.X[0], at.Y[0])
	}
}

func TestBenchRefuses(t *testing.T) {
	for _, c := range []struct{ want, args string }{
		{`expected one of "attention", "decode", "gemm", "train"`, ""},
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
		{`"12PiB": needs a number above 0`, "attention --memory 12PiB"},
		{"--time: 0s is not above 0", "gemm --time 0s"},
		{`needs .svg or .png`, "gemm --plot a.gif"},
		{"no such file", "gemm --plot no/such/folder/a.svg"},
		{"heads of width 2 or more", "train -d 1"},
	} {
		refuses(t, c.want, strings.Fields("bench "+c.args)...)
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

func TestBenchIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	plot := filepath.Join(t.TempDir(), "plot.svg")
	status := run([]string{"bench", "gemm", "-n", "4", "-d", "4", "--json", "--plot", plot}, &env{ctx: ctx, stdin: strings.NewReader(""), stdout: &out, stderr: &errs})
	if status != statusInterrupted || out.Len() != 0 || !strings.HasSuffix(errs.String(), "farfield: interrupted\n") {
		t.Errorf("status %d, %q, %q", status, out.String(), errs.String())
	}
	if _, err := os.Stat(plot); err == nil {
		t.Error("a figure of nothing was written")
	}
}
