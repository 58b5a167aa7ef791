package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/train"
)

func TestReport(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	works(t, littleRun(textFile(t), run)...)
	page := func() string {
		t.Helper()
		works(t, "report", "--sample-tokens", "20", run)
		text, err := os.ReadFile(filepath.Join(run, "report.html"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	own, err := os.ReadFile(filepath.Join(run, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"8 of 8 updates", ">Loss<", "Sample"} {
		if !strings.Contains(string(own), want) {
			t.Errorf("the page that train wrote has no %s", want)
		}
	}
	whole := page()
	for _, want := range []string{"8 of 8 updates", ">Loss<", ">validation<", "Learning rate", ">valid, whole<", "Sample", "Configuration", "model.width", "machine", "counts after two tokens"} {
		if !strings.Contains(whole, want) {
			t.Errorf("the page has no %s", want)
		}
	}

	// A run that was killed has half a row at the end, and perhaps no checkpoint.
	path := filepath.Join(run, "metrics.jsonl")
	rows, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, rows[:len(rows)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(run, "ckpt")); err != nil {
		t.Fatal(err)
	}
	if half := page(); strings.Contains(half, "8 of 8") || strings.Contains(half, "Sample") || !strings.Contains(half, ">Loss<") {
		t.Error("the page of half a run is not of half a run")
	}
	refuses(t, "config.json", "report", t.TempDir())
}

// A run of another task has scores by its metric, and no text.
func TestReportOfTask(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	works(t, littleTask(run)...)
	own, err := os.ReadFile(filepath.Join(run, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"induction by fastmax", ">accuracy<", ">valid<", ">test, part<", "commonest label", ">recall<", ">By class<"} {
		if !strings.Contains(string(own), want) {
			t.Errorf("the page has no %s", want)
		}
	}
	out := works(t, "eval", "--model", run)
	_, verdict, _ := strings.Cut(string(own), `<p class="verdict">`)
	verdict, rest, _ := strings.Cut(verdict, "</p>")
	if !strings.Contains(verdict, "baseline") || strings.Contains(verdict, "<") || !strings.Contains(rest, "<table") {
		t.Errorf("the page begins with %q", verdict)
	}
	if !strings.HasPrefix(out, "verdict     ") || !strings.Contains(out, "baseline") {
		t.Errorf("eval begins with %.60q", out)
	}
	works(t, "report", run)
	if again, err := os.ReadFile(filepath.Join(run, "report.html")); err != nil || strings.Contains(string(again), ">Sample<") {
		t.Errorf("a run without a text has a sample, or %v", err)
	}
}

func TestVerdictSaysWhichIsBetter(t *testing.T) {
	accuracy := func(x float64, n int64) train.Score {
		return train.Score{Metric: task.Accuracy, Value: x, Tokens: n}
	}
	baselines := []task.Baseline{{Name: "commonest class", Score: 0.2}, {Name: "naive Bayes", Score: 0.77}}
	for _, c := range []struct {
		score     train.Score
		baselines []task.Baseline
		want      string
	}{
		{accuracy(0.801, 10000), baselines, "Better than the baseline naive Bayes by 3.1 points: accuracy 80.1 % against 77.0 %."},
		{accuracy(0.47, 1000), baselines, "The baseline naive Bayes is better by 30.0 points: accuracy 47.0 % against 77.0 %. Use it, or train longer."},
		{accuracy(0.78, 1000), baselines, "No better than the baseline naive Bayes: accuracy 78.0 % against 77.0 %, less than two standard errors (3.7 points) apart on 1000 targets."},
		{train.Score{Metric: task.MSE, Value: 0.5}, []task.Baseline{{Name: "mean", Score: 0.75}}, "Better than the baseline mean by 0.25 mean squared error: 0.5 against 0.75."},
		{train.Score{Metric: task.Nats, Value: 1.4, Bits: 2.1}, tableBaselines([3]float64{4, 3, 2}), "The baseline counts after two tokens is better by 0.1 bits per byte: 2.1 against 2. Use it, or train longer."},
	} {
		if v := judge(c.score, c.baselines); v.Text != c.want {
			t.Errorf("%q, want %q", v.Text, c.want)
		}
	}
	if judge(accuracy(1, 1), nil) != nil {
		t.Error("a verdict without a baseline")
	}
}

// TestResultIsRefusedWhereItIsDamaged: what a folder from elsewhere says is checked.
func TestResultIsRefusedWhereItIsDamaged(t *testing.T) {
	for text, want := range map[string]string{
		"{":                                     "unexpected end of JSON input",
		`{"version":2}`:                         "version is 2, this program reads 1",
		`{"version":1,"confusion":[[1,2],[3]]}`: "row 1 of confusion has 1 columns, needs 2",
		`{"version":1,"classes":["a"]}`:         "classes are 1, rows of confusion 0",
		`{"version":1,"table_bits_per_byte":["x"]}`: "cannot unmarshal",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, resultFile), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := readResult(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
