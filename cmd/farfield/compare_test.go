package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/compare"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// madeRun writes the folder of a run that has ended with a score, of two updates.
func madeRun(t *testing.T, dir string, c train.Config, v train.Eval) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	preset, err := train.LookupPreset("induction")
	if err != nil {
		t.Fatal(err)
	}
	config := preset.Config
	config.Seed, config.Steps = c.Seed, 2
	if c.Task != "" {
		config.Task = c.Task
	}
	if c.Model.Mechanism != "" {
		config.SetMechanism(c.Model.Mechanism)
	}
	if c.DataSeed != 0 {
		config.DataSeed = c.DataSeed
	}
	if c.FinalSamples != 0 {
		config.FinalSamples = c.FinalSamples
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o666); err != nil {
		t.Fatal(err)
	}
	rows := []any{train.Step{Step: 1, Loss: 2, Elapsed: 1}, train.Eval{Step: 1, Eval: train.EvalLook, Split: "valid", Score: v.Score, Elapsed: 2}, train.Step{Step: 2, Loss: 1, Elapsed: 3}}
	if v.Eval != "" {
		rows = append(rows, v)
	}
	var lines strings.Builder
	for _, row := range rows {
		text, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%s\n", text)
	}
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(lines.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func ended(metric task.Metric, score float64) train.Eval {
	return train.Eval{Step: 2, Eval: train.EvalWhole, Split: "test", Elapsed: 4,
		Score: train.Score{Loss: 1 - score, Metric: metric, Value: score, Samples: 100000, Tokens: 100000}}
}

func TestCompareTellsWhatIsBest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		metric task.Metric
		scores map[string][]float64
		want   string
	}{
		{"apart", task.Accuracy, map[string][]float64{"softmax": {0.80, 0.81, 0.82}, "linear": {0.60, 0.61, 0.62}},
			"softmax is best: accuracy 81.0 ± 1.0 % against 61.0 ± 1.0 % of linear."},
		{"close", task.Accuracy, map[string][]float64{"softmax": {0.70, 0.80, 0.90}, "linear": {0.69, 0.79, 0.89}},
			"No difference between softmax and linear: accuracy 80.0 ± 10.0 % and 79.0 ± 10.0 %, less than 2.78 standard errors apart."},
		{"one seed", task.Accuracy, map[string][]float64{"softmax": {0.8}, "linear": {0.6}},
			"softmax has the best score, of one seed: accuracy 80.0 % against 60.0 % of linear. Another seed may turn that around."},
		{"one seed is worse", task.MSE, map[string][]float64{"softmax": {0.8}, "linear": {0.6, 0.61}},
			"linear has the best score: mean squared error 0.605 ± 0.0071 against 0.8 of softmax, of one seed. Another seed may turn that around."},
		{"close, and one seed far away", task.Accuracy, map[string][]float64{"softmax": {0.70, 0.80, 0.90}, "linear": {0.69, 0.79, 0.89}, "fastmax": {0.1}},
			"No difference between softmax and linear: accuracy 80.0 ± 10.0 % and 79.0 ± 10.0 %, less than 3.5 standard errors apart."},
		{"less is better", task.MSE, map[string][]float64{"softmax": {0.8, 0.81}, "linear": {0.6, 0.61}},
			"linear is best: mean squared error 0.605 ± 0.0071 against 0.805 ± 0.0071 of softmax."},
		{"two seeds, 2.4 standard errors apart", task.Accuracy, map[string][]float64{"softmax": {0.80, 0.82}, "linear": {0.76, 0.77}},
			"No difference between softmax and linear: accuracy 81.0 ± 1.4 % and 76.5 ± 0.7 %, less than 12.7 standard errors apart."},
		{"alone", task.MSE, map[string][]float64{"softmax": {0.5, 0.7}}, "softmax: mean squared error 0.6 ± 0.14 over 2 seeds."},
	} {
		dir := t.TempDir()
		for mechanism, scores := range c.scores {
			for i, score := range scores {
				of := train.Config{Seed: uint64(i + 1)}
				of.Model.Mechanism = mechanism
				madeRun(t, filepath.Join(dir, mechanism, fmt.Sprint(i)), of, ended(c.metric, score))
			}
		}
		var x compare.Comparison
		if err := json.Unmarshal([]byte(works(t, "compare", "--json", "-o", filepath.Join(dir, "p.html"), dir)), &x); err != nil {
			t.Fatal(err)
		}
		if x.Verdict != c.want {
			t.Errorf("%s: %q, want %q", c.name, x.Verdict, c.want)
		}
		if len(x.Groups) != len(c.scores) {
			t.Errorf("%s: %d groups, want %d", c.name, len(x.Groups), len(c.scores))
		}
		for _, g := range x.Groups {
			mean, deviation := compare.MeanDeviation(c.scores[g.Name])
			if g.Settings == nil || g.Seeds != len(c.scores[g.Name]) || math.Abs(g.Mean-mean) > 1e-12 || math.Abs(g.Deviation-deviation) > 1e-12 {
				t.Errorf("%s: %s is %+v", c.name, g.Name, g)
			}
		}
	}
}

func TestCompareShowsOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var of train.Config
	of.Model.Mechanism, of.Seed = "softmax", 1
	a := madeRun(t, filepath.Join(dir, "a"), of, ended(task.Accuracy, 0.5))
	again := madeRun(t, filepath.Join(dir, "again"), of, ended(task.Accuracy, 0.5)) // the same seed: no deviation
	open := madeRun(t, filepath.Join(dir, "open"), train.Config{Seed: 3}, train.Eval{Score: ended(task.Accuracy, 0.4).Score})
	page := filepath.Join(dir, "page.html")
	out := works(t, "compare", "-o", page, a, again, open, a)
	for _, want := range []string{"verdict     softmax: accuracy 50.0 % over 1 seed.", "not finished", "page        " + page} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Validation loss over updates", "Validation loss over seconds", "Validation accuracy over updates", "3 runs of the task induction in 2 settings"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if _, differs, _ := strings.Cut(out, "what differs"); strings.Contains(differs, "width") {
		t.Errorf("a setting that does not differ is shown:\n%s", out)
	}
}

func TestCompareShowsSmallSquaredErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := ended(task.MSE, 0.00002)
	v.Loss = 0.00001
	page := filepath.Join(dir, "page.html")
	out := works(t, "compare", "-o", page, madeRun(t, filepath.Join(dir, "a"), train.Config{}, v))
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "1e-05") || strings.Count(string(html), ">1e-05<") != 2 {
		t.Errorf("the loss is missing on the page or in\n%s", out)
	}
}

func TestCompareRefusesWhatCannotBeCompared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := madeRun(t, filepath.Join(dir, "a"), train.Config{}, ended(task.Accuracy, 0.5))
	b := madeRun(t, filepath.Join(dir, "b"), train.Config{Task: "copy"}, ended(task.Accuracy, 0.5))
	c := madeRun(t, filepath.Join(dir, "c"), train.Config{Seed: 5}, ended(task.MSE, 0.5))
	d := madeRun(t, filepath.Join(dir, "d"), train.Config{DataSeed: 9}, ended(task.Accuracy, 0.5))
	page := filepath.Join(dir, "page.html")
	refuses(t, b+": task is copy, that of "+a+" is induction; their scores cannot be compared", "compare", "-o", page, a, b)
	refuses(t, c+": metric is mean squared error, that of "+a+" is accuracy", "compare", "-o", page, a, c)
	refuses(t, "holds no run", "compare", "-o", page, t.TempDir())
	refuses(t, a+"/config.json: is a file; runs are folders, and "+a+" stands for all runs in it", "compare", "-o", page, a+"/config.json")
	refuses(t, "--out: ", "compare", "-o", filepath.Join(dir, "nowhere", "page.html"), a)
	if _, err := os.Stat(page); err == nil {
		t.Error("a page was written")
	}
	if out := works(t, "compare", "-o", page, a, d); !strings.Contains(out, "note        The runs differ in data_seed") {
		t.Errorf("runs of other samples are compared without a word:\n%s", out)
	}
	few := ended(task.Accuracy, 0.5)
	few.Samples = 50
	const note = "note        The runs differ in final_samples"
	e := madeRun(t, filepath.Join(dir, "e"), train.Config{FinalSamples: 50}, few)
	if out := works(t, "compare", "-o", page, a, e); !strings.Contains(out, note) {
		t.Errorf("runs of fewer samples are compared without a word:\n%s", out)
	}
	all := madeRun(t, filepath.Join(dir, "all"), train.Config{FinalSamples: 100000}, ended(task.Accuracy, 0.5))
	if out := works(t, "compare", "-o", page, a, all); strings.Contains(out, note) {
		t.Errorf("the samples of both runs are the same:\n%s", out)
	}
	changed := madeRun(t, filepath.Join(dir, "changed"), train.Config{Seed: 2}, ended(task.Accuracy, 0.5))
	wrote(t, filepath.Join(changed, "start.json"), `{"version":1,"data_sha256":"0123456789abcdef"}`)
	if out := works(t, "compare", "-o", page, a, changed); !strings.Contains(out, "over 2 seeds") {
		t.Errorf("nothing is known of the data of one run:\n%s", out)
	}
	wrote(t, filepath.Join(a, "start.json"), `{"version":1,"data_sha256":"fedcba9876543210"}`)
	if out := works(t, "compare", "-o", page, a, changed); !strings.Contains(out, "note        The runs differ in data") || !strings.Contains(out, "data=0123456789ab…") {
		t.Errorf("runs of other data are compared without a word:\n%s", out)
	}
}

func TestCompareLeavesOutBaselinesThatDiffer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := filepath.Join(dir, "page.html")
	var list []string
	for i, score := range []string{"0.25", "0.5"} {
		run := madeRun(t, filepath.Join(dir, fmt.Sprint(i)), train.Config{Seed: uint64(i + 1)}, ended(task.Accuracy, 0.75))
		wrote(t, filepath.Join(run, "result.json"), `{"version":1,"steps":2,"baselines":[{"name":"rule","score":`+score+`}]}`)
		list = append(list, run)
	}
	if out := works(t, "compare", "-o", page, list[0]); !strings.Contains(out, "Better than the baseline rule") {
		t.Errorf("no baseline in\n%s", out)
	}
	for _, x := range [][]string{{list[0], list[1]}, {list[1], list[0]}} {
		if out := works(t, "compare", "-o", page, x[0], x[1]); strings.Contains(out, "baseline rule") || !strings.Contains(out, "note        The runs differ in their baselines") {
			t.Errorf("baselines that differ are compared:\n%s", out)
		}
	}
}

// TestReportTakesTheFolderOfSeeds: train --seeds writes the page of all, and report does.
func TestReportTakesTheFolderOfSeeds(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "runs")
	other := madeRun(t, filepath.Join(dir, "001"), train.Config{Task: "copy"}, ended(task.Accuracy, 0.5)) // no run of a seed
	out := works(t, littleTask(dir, "--seeds", "2")...)
	if err := os.RemoveAll(other); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(dir, "report.html")
	own, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "verdict     ") || !strings.Contains(string(own), "over 2 seeds") || !strings.Contains(string(own), "commonest label") {
		t.Errorf("no verdict on both seeds:\n%s", out)
	}
	works(t, "report", dir)
	if again, err := os.ReadFile(page); err != nil || string(again) != string(own) {
		t.Errorf("report makes another page than train, %v", err)
	}
}
