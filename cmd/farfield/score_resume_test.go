package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/array"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/score"
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

func logLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d of a log %d\n", i, i*i)
	}
	return b.String()
}

// What was written behind the last saved state is cut off, so that a file gets each line
// once. Without a state that knows of it a file is not touched.
func TestScoreWritesEachLineOnce(t *testing.T) {
	dir, model := t.TempDir(), scorerOf(t, "fastmax")
	log, state, out := filepath.Join(dir, "log"), filepath.Join(dir, "state"), filepath.Join(dir, "out")
	args := []string{"score", "--model", model, "--lines", "--json", "--state", state, "--out", out, log}
	wrote(t, log, "")
	works(t, args...)
	begun := has(t, state)
	wrote(t, log, logLines(20))
	works(t, args...)
	before := has(t, state)
	wrote(t, log, logLines(50))
	works(t, args...)
	want := has(t, out)
	if n := strings.Count(want, "\n"); n != 50 {
		t.Fatalf("%d lines: %s", n, want)
	}
	for _, saved := range []string{begun, before} { // killed with all lines written, and half a line
		wrote(t, state, saved)
		wrote(t, out, want+"{\"line\":")
		works(t, args...)
		if got := has(t, out); got != want {
			t.Errorf("after a kill the file has\n%swant\n%s", got, want)
		}
	}
	refuses(t, "--json: is false, "+out+" was made with true", "score", "--model", model, "--lines", "--state", state, "--out", out, log)
	refuses(t, "--above: is 2, "+out+" was made with 0", append(args, "--above", "2")...)
	foreign := strings.Repeat("a file of somebody else\n", len(want))
	wrote(t, out, foreign)
	refuses(t, "--out: "+out+" is another file than "+state+" knows", args...)
	if got := has(t, out); got != foreign {
		t.Errorf("a refused file has %.80q", got)
	}
	wrote(t, state, before)
	wrote(t, out, "short")
	refuses(t, "has 5 bytes", args...)
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	refuses(t, "of no run that", args...)
	if got := has(t, out); got != "short" {
		t.Errorf("the file has %q", got)
	}
}

func TestScoreStateKeepsToItsOutput(t *testing.T) {
	dir, model := t.TempDir(), scorerOf(t, "fastmax")
	log, state := filepath.Join(dir, "log"), filepath.Join(dir, "state")
	args := []string{"score", "--model", model, "--state", state, log}
	wrote(t, log, logLines(5))
	works(t, append(args, "--lines", "--out", filepath.Join(dir, "out"))...)
	wrote(t, log, logLines(9))
	for _, more := range []string{"--json", "--lines"} {
		refuses(t, "--out: is not given, the lines of "+state+" go to out; name it, or another --state", append(args, more)...)
	}
	wrote(t, log, "another log\n"+logLines(9)) // begins anew
	if out := works(t, append(args, "--lines")...); strings.Count(out, " a byte ") != 20 {
		t.Errorf("printed %s", out)
	}
}

func TestScoreStateKeepsTheLinesOfItsTop(t *testing.T) {
	dir, model := t.TempDir(), scorerOf(t, "fastmax")
	log, state := filepath.Join(dir, "log"), filepath.Join(dir, "state")
	args := []string{"score", "--model", model, "--json", "--state", state, log, "--top"}
	var last score.Report
	for _, c := range []struct {
		lines int
		top   string
	}{{2, "2"}, {2, "4"}, {9, "4"}, {9, "3"}} {
		wrote(t, log, logLines(c.lines))
		want := scored(t, works(t, "score", "--model", model, "--json", "--top", c.top, log))
		if last = scored(t, works(t, append(args, c.top)...)); !slices.Equal(last.Top, want.Top) {
			t.Errorf("%d lines, --top %s: %+v, want %+v", c.lines, c.top, last.Top, want.Top)
		}
	}
	refuses(t, "--top: is 4, "+state+" keeps the 3 most surprising of 9 lines", append(args, "4")...)
}

// brokenPipe accepts a number of lines and then fails.
type brokenPipe struct {
	strings.Builder
	left int
}

func (b *brokenPipe) Write(p []byte) (int, error) {
	n := strings.Count(string(p), "\n")
	if n > b.left {
		return 0, errors.New("broken pipe")
	}
	b.left -= n
	return b.Builder.Write(p)
}

// Where lines go to standard output, those that a run before may have printed are
// marked, and no others come twice.
func TestScoreMarksLinesThatMayRepeat(t *testing.T) {
	dir, model := t.TempDir(), scorerOf(t, "fastmax")
	log, state := filepath.Join(dir, "log"), filepath.Join(dir, "state")
	wrote(t, log, logLines(3000))
	args := []string{"score", "--model", model, "--lines", "--json", "--state", state, log}
	out, errs := &brokenPipe{left: 1500}, new(strings.Builder)
	if status := farfield().RunVerb(args, &env.Env{Context: context.Background(), Stdin: strings.NewReader(""), Stdout: out, Stderr: errs}); status != env.StatusFailure {
		t.Fatalf("status %d, %s", status, errs)
	}
	seen := map[int64]int{}
	read := func(text string) (marked int) {
		for line := range strings.Lines(text) {
			var x score.ScoredLine
			if err := json.Unmarshal([]byte(line), &x); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if x.Text == "" { // the report
				continue
			}
			if seen[x.Number]++; x.MayRepeat {
				marked++
			} else if seen[x.Number] > 1 {
				t.Errorf("line %d comes twice without a mark", x.Number)
			}
		}
		return marked
	}
	first := read(out.String())
	status, rest, notes := command(t, args...)
	marked := read(rest)
	if status != 0 || first != 0 || marked == 0 || len(seen) != 3000 || !strings.Contains(notes, fmt.Sprintf("the next %d printed lines may repeat", marked)) {
		t.Errorf("status %d, %d lines seen, %d and %d marked, %s", status, len(seen), first, marked, notes)
	}
	if _, again, notes := command(t, args...); strings.Count(again, "\n") != 1 || strings.Contains(notes, "may repeat") {
		t.Errorf("after a whole run: %s, %s", again, notes)
	}
}

func TestSecondScorerOfAFileIsRefused(t *testing.T) {
	dir, model := t.TempDir(), scorerOf(t, "fastmax")
	log, state, out := filepath.Join(dir, "log"), filepath.Join(dir, "state"), filepath.Join(dir, "out")
	wrote(t, log, "one\n")
	for _, path := range []string{state, out} {
		l, err := lock.LockFile(path)
		if err != nil {
			t.Fatal(err)
		}
		refuses(t, "is in use by", "score", "--model", model, "--lines", "--state", state, "--out", out, log)
		l.Release()
	}
	works(t, "score", "--model", model, "--lines", "--state", state, "--out", out, log)
	refuses(t, "--rank: is total, "+state+" ranks by byte", "score", "--model", model, "--rank", "total", "--state", state, log)
}

// A log is followed by its name: through a rotation with a line without its end, through
// truncation, and while it is missing.
func TestScoreFollowsTheName(t *testing.T) {
	dir, model := t.TempDir(), scorerOf(t, "linear")
	log := filepath.Join(dir, "log")
	var out, errs syncBuffer
	follow := func() (stop func() int) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan int)
		go func() {
			done <- farfield().RunVerb([]string{"score", "--model", model, "--follow", "--json", log}, &env.Env{Context: ctx, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
		}()
		return func() int { cancel(); return <-done }
	}
	texts := func() (all []string) {
		for line := range strings.Lines(out.String()) {
			var x score.ScoredLine
			if json.Unmarshal([]byte(line), &x); x.Text != "" {
				all = append(all, x.Text)
			}
		}
		return all
	}
	waits := func(want ...string) {
		t.Helper()
		for range 4000 {
			if slices.Equal(texts(), want) {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Fatalf("printed %q, want %q; %s", texts(), want, errs.String())
	}
	appends := func(text string) {
		t.Helper()
		f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o666)
		if err == nil {
			_, err = f.WriteString(text)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rotate := func() {
		t.Helper()
		if err := os.Rename(log, log+".1"); err != nil {
			t.Fatal(err)
		}
	}
	stop := follow()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(errs.String(), "is missing; waits for it") && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	appends("a\nb\n")
	waits("a", "b")
	appends("no end")
	rotate()
	appends("c\nd and more than before\n")
	waits("a", "b", "no end", "c", "d and more than before")
	wrote(t, log, "e\n") // truncated
	waits("a", "b", "no end", "c", "d and more than before", "e")
	appends("f\n")
	waits("a", "b", "no end", "c", "d and more than before", "e", "f")
	rotate()
	if status := stop(); status != env.StatusInterrupted {
		t.Errorf("status %d", status)
	}
	// The file was rotated while no process followed it: the rest lies in log.1.
	f, err := os.OpenFile(log+".1", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("g\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	stop = follow()
	waits("a", "b", "no end", "c", "d and more than before", "e", "f", "g")
	appends("h\n")
	waits("a", "b", "no end", "c", "d and more than before", "e", "f", "g", "h")
	if status := stop(); status != env.StatusInterrupted || !strings.Contains(errs.String(), "is gone; waits for it") {
		t.Errorf("status %d, %s", status, errs.String())
	}
}

// Lines are objects of one line each, with their whole text; a terminal gets as much as
// it is wide.
func TestScoreLinesAsJSON(t *testing.T) {
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
	out = filepath.Join(t.TempDir(), "out")
	works(t, "score", "--model", model, "--lines", "--state", out+".state", "--out", out, log)
	for _, text := range []string{works(t, "score", "--model", model, log), has(t, out)} {
		if !strings.HasSuffix(text, " "+bytes+"\n") {
			t.Errorf("a file has %q", text)
		}
	}
}

// A state is of whole lines. The next run scores an incomplete last line with its end.
func TestScoreStateLeavesTheIncompleteLine(t *testing.T) {
	dir, model := t.TempDir(), scorerOf(t, "fastmax")
	log, state, out := filepath.Join(dir, "log"), filepath.Join(dir, "state"), filepath.Join(dir, "out")
	wrote(t, log, "one\ntwo\n")
	whole := works(t, "score", "--model", model, "--lines", "--json", "--top", "0", log)
	lines := strings.SplitAfter(whole, "\n")
	wrote(t, log, "one\ntw")
	args := []string{"score", "--model", model, "--lines", "--json", "--top", "0", "--state"}
	if report := works(t, append(args, state, "--out", out, log)...); !strings.HasPrefix(report, `{"lines":2,`) || strings.Count(has(t, out), "\n") != 2 {
		t.Errorf("half a line: %s%s", has(t, out), report)
	}
	works(t, append(args, state+"2", log)...)
	wrote(t, log, "one\ntwo\n")
	if report := works(t, append(args, state, "--out", out, log)...); has(t, out)+report != whole {
		t.Errorf("continued: %s%s, want %s", has(t, out), report, whole)
	}
	marked := strings.Replace(lines[1], "}", `,"may_repeat":true}`, 1)
	if _, text, notes := command(t, append(args, state+"2", log)...); text != marked+lines[2] || !strings.Contains(notes, "the next 1 printed line may repeat the last of the run before") {
		t.Errorf("on standard output: %s%s", text, notes)
	}
}

// The incomplete last line of a text that is gone stays in the output.
func TestScoreKeepsTheIncompleteLineOfAnotherFile(t *testing.T) {
	dir, model := t.TempDir(), scorerOf(t, "fastmax")
	log, state, out := filepath.Join(dir, "log"), filepath.Join(dir, "state"), filepath.Join(dir, "out")
	args := []string{"score", "--model", model, "--lines", "--json", "--state", state, "--out", out, log}
	before := ""
	for _, text := range []string{"one\ntwo", "solo", "three\n", "four"} {
		wrote(t, log, text)
		works(t, args...)
		now := has(t, out)
		if !strings.HasPrefix(now, before) || strings.Count(now, "\n") != strings.Count(before, "\n")+len(strings.Fields(text)) {
			t.Errorf("behind %s%q gives %s", before, text, now)
		}
		before = now
	}
}

// A run that is killed after its first lines goes on behind them, though its log was rotated.
func TestScoreFindsARotatedLogAfterItsFirstLines(t *testing.T) {
	dir, model := t.TempDir(), scorerOf(t, "linear")
	log, state, out := filepath.Join(dir, "log"), filepath.Join(dir, "state"), filepath.Join(dir, "out")
	follow := func(lines int, saved string) (notes string) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		var printed, errs syncBuffer
		done := make(chan int)
		go func() {
			done <- farfield().RunVerb([]string{"score", "--model", model, "--follow", "--state", state, "--out", out, log}, &env.Env{Context: ctx, Stdin: strings.NewReader(""), Stdout: &printed, Stderr: &errs})
		}()
		known := false
		for range 1000 {
			written, _ := os.ReadFile(out)
			text, _ := os.ReadFile(state)
			if known = strings.Count(string(written), "\n") == lines && strings.Contains(string(text), saved); known {
				defer wrote(t, state, string(text)) // killed
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		cancel()
		if <-done; !known {
			t.Errorf("no state has %s", saved)
		}
		return errs.String()
	}
	wrote(t, log, logLines(20))
	follow(20, `"lines":20,`)
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	wrote(t, log, "new\n")
	notes := follow(21, `"lines":21,`)
	if got := has(t, out); strings.Count(got, "\n") != 21 || !strings.Contains(got, " 1: line 0 of") || !strings.Contains(got, " 21: new\n") {
		t.Errorf("after a rotation the file has\n%s%s", got, notes)
	}
	// A state from before the first lines knows no file.
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	wrote(t, out, "")
	wrote(t, log, "")
	follow(0, `"lines":0,`)
	wrote(t, log, "later\n")
	wrote(t, out, "lines of a killed run\n")
	if notes := follow(1, `"lines":1,`); !strings.Contains(notes, "the last 22 bytes of "+out+" are cut off; after a rotation their lines are in "+log+".1") {
		t.Errorf("notes are %s", notes)
	}
}

// A filter goes on behind the last whole record of its file, whose records must be of the same
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
