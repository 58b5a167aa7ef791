package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/eval"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/task"
)

// labelled trains a model of records for a moment, and returns its folder and the file
// of the records.
func labelled(t *testing.T, target string, record func(i int) (text string, label any)) (run, data string) {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	for i := range 60 {
		text, label := record(i)
		line, err := json.Marshal(map[string]any{"text": text, "label": label})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	data = filepath.Join(dir, "data.jsonl")
	if err := os.WriteFile(data, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	run = filepath.Join(dir, "run")
	works(t, "train", "--task", "file", "--data", data, "--task-set", "target="+target, "--task-set", "length=8", "--out", run,
		"--width", "8", "--heads", "2", "--layers", "1", "--batch", "8", "--steps", "80", "--warmup", "50", "--lr", "0.03", "--quiet")
	return run, data
}

func textsOf(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "texts")
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// letters has texts of one letter, whose class is the letter at every length.
func letters(i int) (string, any) {
	letter := []string{"a", "b"}[i%2]
	return strings.Repeat(letter, 3+i/2%4), "all " + letter
}

func TestPredict(t *testing.T) {
	t.Parallel()
	run, data := labelled(t, "class", letters)
	if err := os.Remove(data); err != nil { // a model does not need what it learned from
		t.Fatal(err)
	}
	lines := strings.Split(works(t, "predict", "--model", run, textsOf(t, "aaaa\n\nbbbb\r\nbbbbbbbbbbbaaaa")), "\n")
	if len(lines) != 5 || lines[1] != "\t\t" || lines[4] != "" {
		t.Fatalf("printed %q", lines)
	}
	for i, want := range map[int][2]string{0: {"all a", "aaaa"}, 2: {"all b", "bbbb"}, 3: {"all b", "bbbbbbbbbbbaaaa"}} {
		var p float64
		f := strings.Split(lines[i], "\t")
		if len(f) != 3 || f[0] != want[0] || f[2] != want[1] {
			t.Errorf("line %d is %q", i, lines[i])
		} else if _, err := fmt.Sscan(f[1], &p); err != nil || p < 0.5 || p > 1 || len(f[1]) != 6 {
			t.Errorf("probability is %q", f[1])
		}
	}
	records := textsOf(t, `{"text":"aaa","id":1}`+"\n"+`{"text":"bbb"}`+"\n")
	var r struct {
		ID            int
		Label         string
		Probability   float64
		Probabilities map[string]float64
	}
	out := works(t, "predict", "--model", run, "--jsonl", records)
	if err := json.Unmarshal([]byte(out[:strings.Index(out, "\n")]), &r); err != nil {
		t.Fatal(err)
	}
	if r.ID != 1 || r.Label != "all a" || r.Probability != r.Probabilities["all a"] || math.Abs(r.Probabilities["all a"]+r.Probabilities["all b"]-1) > 2e-6 {
		t.Errorf("record is %+v", r)
	}
	if rest := works(t, "predict", "--model", run, "--jsonl", "--skip", "1", records); !strings.HasSuffix(out, rest) || strings.Count(rest, "\n") != 1 {
		t.Errorf("after --skip 1: %q", rest)
	}
	refuses(t, "line 1: the text is empty", "predict", "--model", run, "--jsonl", textsOf(t, `{"text":""}`))
	refuses(t, "need --jsonl", "predict", "--model", run, "--skip", "1", records)
	refuses(t, "line 1: is longer than", "predict", "--model", run, textsOf(t, strings.Repeat("a", texts.LongestLine+1)))

	// Records of several files are counted and continued as one input, for this model alone.
	more, answers := textsOf(t, `{"text":"aa"}`+"\n"+`{"text":"bbb"}`+"\n"+`{"text":"abba"}`), filepath.Join(t.TempDir(), "answers")
	out = works(t, "predict", "--model", run, "--jsonl", records, more)
	if strings.Count(out, "\n") != 5 {
		t.Errorf("two files: %q", out)
	}
	if rest := works(t, "predict", "--model", run, "--jsonl", "--skip", "3", records, more); !strings.HasSuffix(out, rest) || strings.Count(rest, "\n") != 2 {
		t.Errorf("two files after --skip 3: %q", rest)
	}
	for n := range 2 {
		works(t, "predict", "--model", run, "--jsonl", "--out", answers, records, more)
		if got := has(t, answers); got != out {
			t.Errorf("run %d of two files: %q", n, got)
		}
	}
	other, _ := labelled(t, "class", func(i int) (string, any) { return letters(i + 1) })
	refuses(t, "was made with --model ", "predict", "--model", other, "--jsonl", "--out", answers, records, more)
	second := textsOf(t, "aa\n"+strings.Repeat("a", texts.LongestLine+1))
	refusesAfter(t, second+": line 2: is longer than", "predict", "--model", run, textsOf(t, "bb\n"), second)
	status, printed, notes := command(t, "predict", "--model", run, "--json", textsOf(t, strings.Repeat("a", 999)+"\nbb\n"))
	if status != 0 || strings.Count(printed, `"truncated":true`) != 1 || !strings.Contains(notes, "1 input longer than the model reads") {
		t.Errorf("a cut line: status %d, %s, %s", status, printed, notes)
	}

	names := filepath.Join(run, "classes.txt")
	for _, c := range []struct{ content, want string }{
		{"\"all a\"\n", "has 1 names, the model 2 classes"},
		{"\"all a\"\n\"all b\"\n\"c\"\n", "has more names"},
		{"\"all a\"\nall b\n", "line 2"},
	} {
		if err := os.WriteFile(names, []byte(c.content), 0o666); err != nil {
			t.Fatal(err)
		}
		refuses(t, c.want, "predict", "--model", run, records)
	}
	if err := os.Remove(names); err != nil {
		t.Fatal(err)
	}
	refuses(t, "farfield train --resume --out "+run, "predict", "--model", run, records)
}

// TestPredictIsWhatEvalJudges counts what predict says of the texts that eval judges a
// model by, of records whose labels often are not what their texts say.
func TestPredictIsWhatEvalJudges(t *testing.T) {
	t.Parallel()
	run, data := labelled(t, "class", func(i int) (string, any) {
		text, _ := letters(i)
		return text, []string{"all a", "all b"}[i*7%5%2]
	})
	var judged eval.Report
	if err := json.Unmarshal([]byte(works(t, "eval", "--model", run, "--json")), &judged); err != nil {
		t.Fatal(err)
	}
	src, err := task.OpenOwnTexts(data, task.Class, "text", "label", 8, 1)
	if err != nil {
		t.Fatal(err)
	}
	classes := src.ClassNames()
	if !slices.Equal(judged.Classes, classes) {
		t.Errorf("eval names %q, the task %q", judged.Classes, classes)
	}
	confusion := [][]int64{{0, 0}, {0, 0}}
	var s task.Sample
	for i := range src.Spec().Count[task.Test] {
		if err := src.Sample(&s, task.Test, i); err != nil {
			t.Fatal(err)
		}
		var text []byte
		for _, token := range s.Tokens {
			text = append(text, byte(token-1))
		}
		said, _, _ := strings.Cut(works(t, "predict", "--model", run, textsOf(t, string(text))), "\t")
		confusion[s.Class][slices.Index(classes, said)]++
	}
	if !reflect.DeepEqual(confusion, judged.Confusion) || judged.Value == 1 {
		t.Errorf("predict counts %v, eval %v", confusion, judged.Confusion)
	}
}

func TestPredictNumbersAndLabels(t *testing.T) {
	t.Parallel()
	run, _ := labelled(t, "number", func(i int) (string, any) { text, _ := letters(i); return text, i % 2 * 4 })
	var a, b float64
	if _, err := fmt.Sscanf(works(t, "predict", "--model", run, textsOf(t, "aaa\nbbbb\n")), "%g\taaa\n%g\tbbbb\n", &a, &b); err != nil || a > 2 || b < 2 {
		t.Errorf("numbers are %v and %v, error %v", a, b, err)
	}
	run, _ = labelled(t, "bytes", func(i int) (string, any) {
		text := strings.Repeat("ab", i%3+1)
		return text, strings.ToUpper(text)
	})
	if out := works(t, "predict", "--model", run, textsOf(t, "abba\n\nbbbbbbbbbbb\n")); out != "ABBA\tabba\n\t\nBBBBBBBB\tbbbbbbbbbbb\n" {
		t.Errorf("labels are %q", out)
	}
	if out := works(t, "predict", "--model", run, "--jsonl", textsOf(t, `{"text":"ba"}`)); out != `{"text":"ba","labels":"BA"}`+"\n" {
		t.Errorf("record is %q", out)
	}
}

// refusesAfter is refuses of a command that answers some inputs.
func refusesAfter(t *testing.T, want string, args ...string) {
	t.Helper()
	if status, _, errs := command(t, args...); status != env.StatusInput || !strings.Contains(errs, want) {
		t.Errorf("status %d, %s; want %q", status, errs, want)
	}
}

// Classes whose names are not UTF-8 stay apart in JSON.
func TestPredictKeepsNamesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, run := filepath.Join(dir, "data.csv"), filepath.Join(dir, "run")
	wrote(t, data, "text,label\n"+strings.Repeat("aaa,caf\xe9\nbbb,caf\xe8\n", 30))
	works(t, "train", "--task", "file", "--data", data, "--task-set", "length=8", "--out", run, "--width", "8", "--heads", "2", "--layers", "1", "--batch", "8", "--steps", "2", "--quiet")
	out := works(t, "predict", "--model", run, "--json", textsOf(t, "aaa\n"))
	for _, want := range []string{`"\"caf\\xe8\"":0.`, `"\"caf\\xe9\"":0.`} {
		if !strings.Contains(out, want) {
			t.Errorf("printed %s, want %s", out, want)
		}
	}
}

// TestPredictQuotesNames has a name that would be two fields.
func TestPredictQuotesNames(t *testing.T) {
	t.Parallel()
	run, _ := labelled(t, "class", func(i int) (string, any) {
		text, label := letters(i)
		return text, fmt.Sprint(label, "\t!")
	})
	if out := works(t, "predict", "--model", run, textsOf(t, "aaaa\n")); !strings.HasPrefix(out, "\"all a\\t!\"\t") {
		t.Errorf("printed %q", out)
	}
}

// TestPredictQuotesLabelsOfRows has labels that would be two labels or two lines.
func TestPredictQuotesLabelsOfRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, run := filepath.Join(dir, "data"), filepath.Join(dir, "run")
	if err := os.Mkdir(data, 0o777); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		wrote(t, filepath.Join(data, fmt.Sprintf("%02d.csv", i)), "x,label\n1,\"a,b\"\n1,\"a,b\"\n-1,\"c\nd\"\n-1,\"c\nd\"\n")
	}
	works(t, "train", "--task", "series", "--data", data, "--task-set", "ask=each", "--out", run, "--width", "8", "--heads", "2", "--layers", "1", "--batch", "8", "--steps", "80", "--warmup", "20", "--lr", "0.03", "--quiet")
	path := filepath.Join(dir, "new.csv")
	wrote(t, path, "x\n1\n-1\n1\n")
	if out := works(t, "predict", "--model", run, path); out != `"a,b","c\nd","a,b"`+"\t"+path+"\n" {
		t.Errorf("printed %q", out)
	}
}

func TestPredictRefusesOtherTasks(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	works(t, "train", "--data", textsOf(t, strings.Repeat("to be or not\n", 90)), "--out", dir, "--preset", "tiny", "--steps", "1", "--context", "16", "--batch", "1", "--sample-tokens", "0", "--quiet")
	refuses(t, "task bytelm: its models go on with a text: farfield generate writes, farfield score", "predict", "--model", dir, textsOf(t, "a\n"))
}

// A model of tokens says what comes next at each of them; JSON lines have keys of one style.
func TestPredictTokens(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	works(t, littleTask(dir)...)
	out := works(t, "predict", "--model", dir, textsOf(t, "0 1 2\n\n3\n"))
	lines := strings.Split(out, "\n")
	if len(lines) != 4 || strings.Count(lines[0], ",") != 2 || !strings.HasSuffix(lines[0], "\t0 1 2") || lines[1] != "\t" {
		t.Errorf("printed %q", out)
	}
	var r struct {
		Text   string
		Labels []string
	}
	if err := json.Unmarshal([]byte(works(t, "predict", "--model", dir, "--json", textsOf(t, "0 1 2\n"))), &r); err != nil || r.Text != "0 1 2" || len(r.Labels) != 3 {
		t.Errorf("as JSON: %+v, %v", r, err)
	}
	refuses(t, `line 1: "9" is no token, 0 to 3 are`, "predict", "--model", dir, textsOf(t, "9\n"))
	refuses(t, "--json: given beside --jsonl", "predict", "--model", dir, "--json", "--jsonl", textsOf(t, "{}"))
}

// TestPredictFiles asks a model of files about new ones: as arguments, as a list on standard
// input, and as records. What it says of the files that eval judges it by is what eval counts.
func TestPredictFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	for i := range 60 {
		var b strings.Builder
		for k := range 12 + i%5 {
			fmt.Fprintf(&b, "%.4f\n", math.Sin(float64(k)*[]float64{0.3, 0.45}[i%2]+float64(i)))
		}
		path := filepath.Join(data, []string{"slow", "fast\t"}[i*7%5%2], fmt.Sprintf("%02d.csv", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	model := filepath.Join(dir, "run")
	works(t, "train", "--task", "series", "--data", data, "--task-set", "length=14", "--out", model, "--width", "8", "--heads", "2", "--layers", "1", "--batch", "8", "--steps", "40", "--quiet")
	var judged eval.Report
	if err := json.Unmarshal([]byte(works(t, "eval", "--model", model, "--json")), &judged); err != nil {
		t.Fatal(err)
	}
	src, err := task.OpenOwnSeries(data, task.SeriesOptions{Ask: task.Class, Length: 14, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	confusion := [][]int64{{0, 0}, {0, 0}}
	var s task.Sample
	for i := range src.Spec().Count[task.Test] {
		if err := src.Sample(&s, task.Test, i); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, x := range s.Values {
			fmt.Fprintln(&b, x)
		}
		path := textsOf(t, b.String())
		if err := os.Rename(path, path+".csv"); err != nil {
			t.Fatal(err)
		}
		var r struct {
			File          string             `json:"file"`
			Label         string             `json:"label"`
			Probability   float64            `json:"probability"`
			Probabilities map[string]float64 `json:"probabilities"`
		}
		out := works(t, "predict", "--model", model, "--json", path+".csv")
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.File != path+".csv" || r.Probability < 0.5 || len(r.Probabilities) != 2 || strings.Count(out, "\n") != 1 {
			t.Fatalf("%q: %v", out, err)
		}
		confusion[s.Class][slices.Index(src.ClassNames(), r.Label)]++
		if i > 0 {
			continue
		}
		line := works(t, "predict", "--model", model, path+".csv")
		if !strings.HasPrefix(line, display.Field(r.Label)+"\t0.") && !strings.HasPrefix(line, display.Field(r.Label)+"\t1.") || !strings.HasSuffix(line, "\t"+path+".csv\n") {
			t.Errorf("printed %q", line)
		}
		var listed, errs bytes.Buffer
		in := strings.NewReader(path + ".csv\n\n" + path + ".csv\n")
		if status := farfield().RunVerb([]string{"predict", "--model", model}, &env.Env{Context: context.Background(), Stdin: in, Stdout: &listed, Stderr: &errs}); status != 0 || listed.String() != line+line {
			t.Errorf("a list gives status %d, %q, %s", status, listed.String(), errs.String())
		}
		record := works(t, "predict", "--model", model, "--jsonl", textsOf(t, fmt.Sprintf(`{"id":1,"file":%q}`, path+".csv")))
		if !strings.HasPrefix(record, `{"id":1,"file":`) || !strings.Contains(record, `"probability":`) {
			t.Errorf("a record is %q", record)
		}
	}
	if !reflect.DeepEqual(confusion, judged.Confusion) {
		t.Errorf("predict counts %v, eval %v", confusion, judged.Confusion)
	}
	refuses(t, "none.csv: no such file", "predict", "--model", model, filepath.Join(dir, "none.csv"))
	refuses(t, `its name ends in ".txt"`, "predict", "--model", model, filepath.Join(dir, "none.txt"))
}

func TestPredictKeepsDigitsOfNumbersFarFromZero(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	list := "file,label\n"
	for i := range 40 {
		name := fmt.Sprintf("%02d.csv", i)
		if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, "%d\n1\n%d\n", i, i%7), 0o666); err != nil {
			t.Fatal(err)
		}
		list += fmt.Sprintf("%s,%d\n", name, 1700000000+i)
	}
	data, run := filepath.Join(dir, "list.csv"), filepath.Join(dir, "run")
	if err := os.WriteFile(data, []byte(list), 0o666); err != nil {
		t.Fatal(err)
	}
	works(t, "train", "--task", "series", "--data", data, "--task-set", "ask=number", "--out", run, "--width", "8", "--heads", "2", "--layers", "1", "--batch", "8", "--steps", "20", "--quiet")
	var printed [2]float64
	for i, name := range []string{"00.csv", "39.csv"} {
		path := filepath.Join(dir, name)
		var r struct{ Number float64 }
		if err := json.Unmarshal([]byte(works(t, "predict", "--model", run, "--json", path)), &r); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(works(t, "predict", "--model", run, path), &printed[i]); err != nil || math.Abs(printed[i]-r.Number) > 1e-4 {
			t.Errorf("number is %v, in JSON %v, error %v", printed[i], r.Number, err)
		}
	}
	if printed[0] == printed[1] {
		t.Errorf("two files have the number %v", printed[0])
	}
}

// A file of several records has an answer for each, with its name.
func TestPredictRecordsOfAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, ">r%d kind=%s\n%s\n", i, []string{"a", "b"}[i%2], strings.Repeat([]string{"AC", "GT"}[i%2], 3+i%4))
	}
	data := filepath.Join(dir, "all.fa")
	if err := os.WriteFile(data, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(dir, "run")
	works(t, "train", "--task", "fasta", "--data", data, "--task-set", "label=key:kind", "--task-set", "length=12", "--out", model, "--width", "8", "--heads", "2", "--layers", "1", "--batch", "8", "--steps", "60", "--lr", "0.03", "--quiet")
	path := textsOf(t, ">one x\nACACAC\n>two\nGTGTGT\n")
	out := works(t, "predict", "--model", model, path)
	if lines := strings.Split(out, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "a\t") || !strings.HasSuffix(lines[0], path+"\tone") || !strings.HasPrefix(lines[1], "b\t") || !strings.HasSuffix(lines[1], path+"\ttwo") {
		t.Errorf("printed %q", out)
	}
	if out := works(t, "predict", "--model", model, "--json", path); strings.Count(out, `"name":"`) != 2 {
		t.Errorf("printed %q", out)
	}
	refuses(t, "it has several inputs, a record one; leave out --jsonl", "predict", "--model", model, "--jsonl", textsOf(t, fmt.Sprintf(`{"file":%q}`, path)))
}
