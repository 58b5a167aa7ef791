package runs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

func TestVerdictSaysWhichIsBetter(t *testing.T) {
	accuracy := func(x float64, n int64) train.Score {
		return train.Score{Metric: task.Accuracy, Value: x, Samples: n, Tokens: n}
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
		{accuracy(0.78, 1000), []task.Baseline{{Name: "naive Bayes", Score: 0.77, Advice: "fine-tune a trained model with --init"}}, "No better than the baseline naive Bayes: accuracy 78.0 % against 77.0 %, less than two standard errors (3.7 points) apart on 1000 targets. To go beyond it, fine-tune a trained model with --init."},
		{accuracy(1, 100), []task.Baseline{{Name: "naive Bayes", Score: 1, Advice: "fine-tune a trained model with --init"}}, "No better than the baseline naive Bayes: accuracy 100.0 % against 100.0 % on 100 targets."},
		{accuracy(1, 100), []task.Baseline{{Name: "naive Bayes", Score: 0.95}}, "No better than the baseline naive Bayes: accuracy 100.0 % against 95.0 %, less than two standard errors (5.7 points) apart on 100 targets."},
		{train.Score{Metric: task.Accuracy, Value: 0.78, Samples: 63, Tokens: 64512}, baselines, "No better than the baseline naive Bayes: accuracy 78.0 % against 77.0 %, less than two standard errors (15.2 points) apart on 64512 targets of 63 samples."},
		{train.Score{Metric: task.Accuracy, Value: 0.79, Samples: 63, Tokens: 64512, Error: 0.005}, baselines, "Better than the baseline naive Bayes by 2.0 points: accuracy 79.0 % against 77.0 %."},
		{train.Score{Metric: task.Accuracy, Value: 0.78, Samples: 63, Tokens: 64512, Error: 0.005}, baselines, "No better than the baseline naive Bayes: accuracy 78.0 % against 77.0 %, less than two standard errors (1.4 points) apart on 64512 targets of 63 samples."},
		{train.Score{Metric: task.MSE, Value: 0.5}, []task.Baseline{{Name: "mean", Score: 0.75}}, "Better than the baseline mean by 0.25 mean squared error: 0.5 against 0.75."},
		{train.Score{Metric: task.MSE, Value: 0.7, Samples: 100, Tokens: 100, Error: 0.03}, []task.Baseline{{Name: "mean", Score: 0.75, Error: 0.04}},
			"No better than the baseline mean: mean squared error 0.7 against 0.75, less than two standard errors (0.1 mean squared error) apart on 100 targets."},
		{train.Score{Metric: task.MSE, Value: 0.5, Samples: 100, Tokens: 100, Error: 0.03}, []task.Baseline{{Name: "mean", Score: 0.75, Error: 0.04}}, "Better than the baseline mean by 0.25 mean squared error: 0.5 against 0.75."},
		{train.Score{Metric: task.Nats, Bytes: 9}, TableBaselines([3]float64{4, 3, 2}), "Better than the baseline counts after two tokens by 2 bits per byte: 0 against 2."},
		{train.Score{Metric: task.Nats, Value: 1.4, Bits: 2.1}, TableBaselines([3]float64{4, 3, 2}), "The baseline counts after two tokens is better by 0.1 bits per byte: 2.1 against 2. Use it, or train longer."},
	} {
		if v := JudgeScore(c.score, c.baselines); v.Text != c.want {
			t.Errorf("%q, want %q", v.Text, c.want)
		}
	}
	if JudgeScore(accuracy(1, 1), nil) != nil {
		t.Error("a verdict without a baseline")
	}
	if v := JudgeScore(train.Score{Metric: task.MSE, Value: 0.5, Samples: 9}, []task.Baseline{{Name: "mean", Score: 0.75, Judged: 10}}); v != nil {
		t.Errorf("%q of 9 samples, against a baseline of 10", v.Text)
	}
}

// The evaluation at a former end is no result of the lengthened run.
func TestLengthenedRunHasNoResultYet(t *testing.T) {
	preset, err := train.LookupPreset("induction")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		steps, patience int
		lengthened      []int
		want            bool
	}{{2, 0, nil, true}, {9, 0, []int{2}, false}, {9, 1, []int{2}, false}, {9, 1, nil, true}, {2, 0, []int{1}, true}} {
		dir, config := t.TempDir(), preset.Config
		config.Steps, config.Patience, config.Lengthened = c.steps, c.patience, c.lengthened
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"config.json": string(text), "metrics.jsonl": "{\"step\":2,\"loss\":1}\n{\"step\":2,\"eval\":\"whole\",\"split\":\"test\"}\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := ReadRun(dir); err != nil || (r.Final != nil) != c.want {
			t.Errorf("%+v: the result is %v, %v", c, r.Final, err)
		}
	}
}

func TestModelFilesAreThoseOfARun(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"columns.txt", "classes.txt", "vectors.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{filepath.Join(dir, "classes.txt"), filepath.Join(dir, "columns.txt")}
	if got := ModelFiles(dir); !slices.Equal(got, want) {
		t.Errorf("files are %q, want %q", got, want)
	}
}

func TestCopiesAreNoRunsOfSeeds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs[1]") // no pattern
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"seed-1.bak", "seed-10", "seed-2", "seed-02", "seed-", "seed-+3", "seed--4", "seed-0", "seed-18446744073709551616"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "config.json"), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{filepath.Join(dir, "seed-0"), filepath.Join(dir, "seed-2"), filepath.Join(dir, "seed-10")}
	if got := SeedRuns(dir); !slices.Equal(got, want) {
		t.Errorf("runs are %q, want %q", got, want)
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
		if err := os.WriteFile(filepath.Join(dir, ResultFile), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadResult(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestSmallSquaredErrorsArePrinted(t *testing.T) {
	r := &Report{Split: "test", Baselines: []task.Baseline{{Name: "mean", Score: 0.00003}}}
	r.Metric, r.Value, r.Loss = task.MSE, 0.00002, 0.00001
	var out bytes.Buffer
	const want = "test        mean squared error 2e-05, loss 1e-05 over 0 samples\nbaseline    mean squared error 3e-05: mean\n"
	if err := r.Print(&env.Env{Stdout: &out, IsQuiet: true}); err != nil || out.String() != want {
		t.Errorf("%v, the result is\n%s", err, out.String())
	}
	trained := &TrainedRun{History: &train.History{Evals: []train.Eval{{Step: 1, Eval: train.EvalLook, Split: "valid", Score: r.Score}}}}
	for _, s := range trained.page().Sections {
		if s.Title == "Evaluations" && !slices.Equal(s.Table.Rows[0][2:4], []string{"1e-05", "2e-05"}) {
			t.Errorf("the evaluation is %v", s.Table.Rows[0])
		}
	}
}

func TestFinalScoreOfBestWeightsIsNoValidation(t *testing.T) {
	best := &Report{Split: "valid", Steps: 3, Best: 1, Table: &[3]float64{4, 3, 2}}
	best.Metric = task.Nats
	r := &TrainedRun{Result: best, History: &train.History{}}
	for step, eval := range []string{train.EvalLook, train.EvalLook, train.EvalWhole} {
		r.History.Evals = append(r.History.Evals, train.Eval{Step: step + 1, Eval: eval, Split: best.Split, Score: best.Score})
	}
	r.Final = &r.History.Evals[2]
	for _, s := range r.page().Sections {
		if s.Figure != nil && !slices.Equal(s.Figure.Series[0].X, []float64{1, 2}) {
			t.Errorf("%s: the curve has updates %v", s.Figure.Title, s.Figure.Series[0].X)
		}
		if s.Title == "Evaluations" && s.Table.Rows[2][1] != "valid, whole, of update 1" {
			t.Errorf("the last row is %q", s.Table.Rows[2])
		}
	}
	var out bytes.Buffer
	if err := best.Print(&env.Env{Stdout: &out}); err != nil || !strings.Contains(out.String(), "bytes, of update 1\n") {
		t.Errorf("%v, the result is\n%s", err, out.String())
	}
}
