package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/lock"
)

func wrote(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Lines are objects of one line each, with their whole text; a terminal gets as much as
// it is wide.
func TestScoreLinesAsJSON(t *testing.T) {
	t.Parallel()
	model, log := scorerOf(t, "fastmax"), filepath.Join(t.TempDir(), "log")
	long := strings.Repeat("long ", 2000)
	wrote(t, log, "one\n"+long+"\nthree")
	out := works(t, "score", "--model", model, "--lines", "--json", log)
	var texts []string
	for line := range strings.Lines(out) {
		var x map[string]any
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if text, ok := x["text"].(string); ok {
			texts = append(texts, text)
		} else if x["bits_per_byte"] == nil || x["most_surprising"] == nil || x["rank"] != "byte" {
			t.Errorf("report %v", x)
		}
	}
	if !slices.Equal(texts, []string{"one", long, "three"}) {
		t.Errorf("texts %.80q", texts)
	}
	if text := works(t, "score", "--model", model, "--lines", "--top", "0", log); !strings.Contains(text, long+"\n") {
		t.Errorf("a file has a part of a line: %.200s", text)
	}
	if got := display.Shown("four\tfive\x1b", 7); got != "four f…" {
		t.Errorf("a terminal has %q", got)
	}
	if got := display.Shown("\u00e9\u00e9\x1b", 3); got != "\u00e9\u00e9\ufffd" {
		t.Errorf("a line that fits is %q", got)
	}
	if got := display.Beginning("\xff\u00e9\xff\u00e9", 5); got != "\xff\u00e9\xff…" {
		t.Errorf("the beginning is %q", got)
	}
	bytes := "a\tb\x01\xff\u00a0c\r\x1b"
	wrote(t, log, bytes+"\n")
	for _, text := range []string{works(t, "score", "--model", model, log), works(t, "score", "--model", model, "--lines", "--top", "0", log)} {
		if !strings.Contains(text, " "+bytes+"\n") {
			t.Errorf("a file has %q", text)
		}
	}
}

// A filter goes on after the last whole record of its file, whose records must be of the same
// input, model and settings. Threads change no byte.
func TestFiltersContinueTheirFile(t *testing.T) {
	dir, model, other := t.TempDir(), scorerOf(t, "fastmax"), scorerOf(t, "softmax")
	in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, "{\"id\":%d,\"text\":\"%s\"}\n", i, strings.Repeat("text of a record ", i%9+1))
	}
	wrote(t, in, b.String())
	for _, verb := range []string{"score", "embed"} {
		want := works(t, "--threads", "1", verb, "--model", model, "--jsonl", in)
		args := []string{"--threads", "3", verb, "--model", model, "--jsonl", "--out", out, in}
		works(t, args...)
		if got := has(t, out); got != want {
			t.Errorf("%s: three threads write other bytes than one", verb)
		}
		wrote(t, out, want[:len(want)*2/3])
		works(t, args...)
		if got := has(t, out); got != want {
			t.Errorf("%s: the file is not continued", verb)
		}
		wrote(t, out, strings.Replace(want, "{\"id\":59", "{\"id\":60", 1))
		refuses(t, "line 60 is not of the record in "+in+": line 60", args...)
		wrote(t, out, want+want)
		refuses(t, "has 120 records, the input 60", args...)
		wrote(t, out, want)
		refuses(t, "was made with --model ", verb, "--model", other, "--jsonl", "--out", out, in)
		refuses(t, `was made with --shard "", this command has --shard "0/2"`, append(args, "--shard", "0/2")...)
		if got := has(t, out); got != want {
			t.Errorf("%s: a refused file is changed", verb)
		}
		l, err := lock.LockFile(out)
		if err != nil {
			t.Fatal(err)
		}
		refuses(t, "is in use by", args...)
		l.Release()
		if err := os.Remove(out); err != nil {
			t.Fatal(err)
		}
	}
}

// An interrupt ends a filter that waits for its input.
func TestFilterHearsInterruptWhileItWaits(t *testing.T) {
	t.Parallel()
	model := scorerOf(t, "fastmax")
	for _, verb := range []string{"score", "embed"} {
		r, w := io.Pipe()
		ctx, cancel := context.WithCancel(context.Background())
		var out, errs syncBuffer
		done := make(chan int)
		go func() {
			done <- farfield().RunVerb([]string{verb, "--model", model, "--jsonl"}, &env.Env{Context: ctx, Stdin: r, Stdout: &out, Stderr: &errs})
		}()
		if _, err := io.WriteString(w, "{\"text\":\"a\"}\n"); err != nil {
			t.Fatal(err)
		}
		for out.String() == "" {
			time.Sleep(time.Millisecond)
		}
		cancel()
		if status := <-done; status != env.StatusInterrupted || !strings.Contains(errs.String(), "stopped after 1 records; --skip 1 goes on") {
			t.Errorf("%s: status %d, %s", verb, status, errs.String())
		}
		w.Close()
	}
}

// An array of vectors is written at the end: what was done of it does not go on.
func TestInterruptedArrayBeginsAnew(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var out, errs syncBuffer
	args := []string{"embed", "--model", scorerOf(t, "fastmax"), "--jsonl", "--out", filepath.Join(t.TempDir(), "v.npy")}
	done := make(chan int)
	go func() {
		done <- farfield().RunVerb(args, &env.Env{Context: ctx, Stdin: r, Stdout: &out, Stderr: &errs})
	}()
	if _, err := io.WriteString(w, "{\"text\":\"a\"}\n"); err != nil {
		t.Fatal(err)
	}
	cancel()
	if status := <-done; status != env.StatusInterrupted || !strings.Contains(errs.String(), "records; nothing is written, the same command begins anew") {
		t.Errorf("status %d, %s", status, errs.String())
	}
}

// Texts are lines of any files, or records where the first line is one. Every text has
// an answer.
func TestEmbedTexts(t *testing.T) {
	t.Parallel()
	dir, model := t.TempDir(), scorerOf(t, "fastmax")
	a, b, records := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	wrote(t, a, "one <text>\n\nthree")
	wrote(t, b, "four {\"text\":1}\r\n")
	wrote(t, records, "{\"id\":1,\"text\":\"one <text>\"}\n")
	status, out, notes := command(t, "embed", "--model", model, "--max-tokens", "5", a, b)
	if status != 0 || !strings.Contains(notes, "2 texts longer than 5 tokens: vectors are of 5 tokens of each\n") || !strings.Contains(notes, "1 text empty: the vector null") {
		t.Errorf("status %d, %s", status, notes)
	}
	type answer struct {
		Text      string
		Vector    []float32
		Truncated bool
	}
	var answers []answer
	for line := range strings.Lines(out) {
		var x answer
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		answers = append(answers, x)
	}
	want := []answer{{"one <text>", nil, true}, {"", nil, false}, {"three", nil, false}, {"four {\"text\":1}", nil, true}}
	if len(answers) != len(want) {
		t.Fatalf("%d answers: %s", len(answers), out)
	}
	for i, x := range answers {
		if x.Text != want[i].Text || x.Truncated != want[i].Truncated || (len(x.Vector) == 16) != (x.Text != "") {
			t.Errorf("answer %d is %+v", i, x)
		}
	}
	var record answer
	if err := json.Unmarshal([]byte(works(t, "embed", "--model", model, "--max-tokens", "5", records)), &record); err != nil || !slices.Equal(record.Vector, answers[0].Vector) {
		t.Errorf("a record is %+v, %v", record, err)
	}
	if out := works(t, "embed", "--model", model, "--no-jsonl", records); !strings.HasPrefix(out, `{"text":"{\"id\":1,`) {
		t.Errorf("a record as a text is %s", out)
	}
	latin := filepath.Join(dir, "latin")
	wrote(t, latin, "caf\xe9\n")
	refuses(t, latin+`: line 1: is not UTF-8: "caf\xe9"`, "embed", "--model", model, latin)
	wrote(t, latin, "\x1f\x8b\x08\x00\x00\x00")
	refuses(t, latin+": unexpected EOF", "embed", "--model", model, latin)
	wrote(t, latin, "\ufeff{\"id\":1,\"text\":\"one <text>\"}\n")
	if out := works(t, "embed", "--model", model, latin); !strings.HasPrefix(out, `{"id":1,`) {
		t.Errorf("a record after a byte order mark is %s", out)
	}
	npy := filepath.Join(dir, "v.npy")
	works(t, "embed", "--model", model, "--max-tokens", "5", "--out", npy, a, b)
	f, err := os.Open(npy)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v, err := array.ReadNPY(f)
	if err != nil || !slices.Equal(v.Shape, []int{4, 16}) {
		t.Fatalf("%v, %v", v, err)
	}
	data, err := v.Float32()
	if err != nil || !slices.Equal(data[:16], answers[0].Vector) || slices.ContainsFunc(data[16:32], func(x float32) bool { return x != 0 }) || !slices.Equal(data[48:], answers[3].Vector) {
		t.Errorf("rows are %v, %v", data, err)
	}
}
