package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/eval"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/train"
)

// littleTask returns the words of a training of a task of a fraction of a second.
func littleTask(dir string, more ...string) []string {
	return append([]string{"train", "--task", "induction", "--task-set", "length=8", "--task-set", "symbols=3", "--out", dir,
		"--width", "8", "--heads", "2", "--batch", "4", "--steps", "8", "--save-every", "3", "--eval-every", "2",
		"--eval-samples", "9", "--final-samples", "30"}, more...)
}

func TestVocabularyBesideOtherTokensIsRefused(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "t.tsv")
	refuses(t, "--vocabulary: nonsense, the model of --init has tokens", "train", "--init", tinyModel, "--task", "file", "--data", data, "--task-set", "vocabulary=nonsense")
	refuses(t, "--vocabulary: bpe, target=bytes has bytes", "train", "--task", "file", "--data", data, "--task-set", "target=bytes", "--vocabulary", "bpe")
}

// A configuration of a run has its tokens, which another vocabulary replaces.
func TestVocabularyReplacesTheTokensOfTheConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, first, second := filepath.Join(dir, "t.tsv"), filepath.Join(dir, "1"), filepath.Join(dir, "2")
	wrote(t, data, "text\tlabel\n"+strings.Repeat("one two\ta\nthree four\tb\n", 40))
	works(t, "train", "--quiet", "--task", "file", "--data", data, "--vocabulary", "bpe=262", "--width", "8", "--heads", "2", "--steps", "1", "--batch", "2", "--out", first)
	works(t, "train", "--quiet", "--config", filepath.Join(first, "config.json"), "--vocabulary", "bpe=259", "--out", second)
	for run, want := range map[string]int{first: 262, second: 259} {
		if c, err := runs.ReadRunConfig(run); err != nil || c.Model.Vocab != want {
			t.Errorf("%s: %d tokens, %v, want %d", run, c.Model.Vocab, err, want)
		}
	}
}

func TestTrainTask(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	status, out, errs := command(t, littleTask(dir)...)
	if status != 0 {
		t.Fatal(errs)
	}
	for _, want := range []string{
		"induction --task-set length=8 --task-set symbols=3: any number to learn from", "judged by accuracy",
		"updates 1 to 8 of 4 samples of up to 8 positions", "over 30 samples, of update", "baseline    accuracy", "commonest label", "farfield eval --model " + dir,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for _, want := range []string{"step 8 of 8  loss", "validation (look)", "test (part)"} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is not in\n%s", want, errs)
		}
	}
	var again runs.Report
	if err := json.Unmarshal([]byte(works(t, "train", "--config", filepath.Join(dir, "config.json"), "--out", dir+"2", "--json")), &again); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(metrics(t, dir), metrics(t, dir+"2")) {
		t.Error("the recorded configuration does not repeat the run")
	}
	var r eval.Report
	if err := json.Unmarshal([]byte(works(t, "eval", "--model", dir, "--limit", "30", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Score != again.Score || r.Verdict != nil || r.Split != "test" || len(r.Confusion) != 4 {
		t.Errorf("evaluated %+v, trained %+v", r, again.Score)
	}
	if out := works(t, "eval", "--model", dir, "--split", "valid", "--limit", "9"); !strings.Contains(out, "over 9 targets of 9 samples") || !strings.Contains(out, "class  right") {
		t.Errorf("eval prints\n%s", out)
	}
	refuses(t, `--split: "train" is none of`, "eval", "--model", dir, "--split", "train")
	refuses(t, "reads no data of yours", "eval", "--model", dir, "--data", dir)
	refuses(t, "did not learn a text", "generate", "--model", dir)
	refuses(t, "--seed: given beside --seeds", littleTask(dir+"3", "--seeds", "2", "--seed", "1")...)
	refuses(t, `--seeds: "1,1" is neither`, littleTask(dir+"3", "--seeds", "1,1")...)
	refuses(t, "--seeds: 0 runs", littleTask(dir+"3", "--seeds", "0")...)
	refuses(t, `setting "lenth": unknown; there are: symbols, length`, littleTask(dir+"3", "--task-set", "lenth=3")...)
	refuses(t, "farfield data fetches", "train", "--task", "mnist", "--folder", t.TempDir(), "--out", dir+"3")
	if _, err := os.Stat(dir + "3"); err == nil {
		t.Error("a folder was made")
	}
}

// A model that a simple means is ahead of is said to be, with both scores, by train and
// eval alike; one that is not is left in peace.
func TestBaselineThatIsBetterIsSaid(t *testing.T) {
	t.Parallel()
	data := textsOf(t, "text\tlabel\n"+strings.Repeat("one two\ta\nthree four\tb\n", 40))
	if err := os.Rename(data, data+".tsv"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	// At a rate of 0 the model stays as it was drawn: it says one class of all.
	args := []string{"train", "--task", "file", "--data", data + ".tsv", "--task-set", "length=12", "--width", "8", "--heads", "2", "--steps", "1", "--batch", "2", "--seed", "2", "--out", dir}
	out := works(t, append(args, "--lr", "0")...)
	const verdict = "verdict     The baseline naive Bayes over words is better by "
	if !strings.Contains(out, verdict) || !strings.Contains(out, "Use it, or fine-tune a trained model with --init.\n") ||
		!strings.Contains(out, "baseline    accuracy 1.0000: naive Bayes over words, learned from 64 samples\n") {
		t.Errorf("printed\n%s", out)
	}
	if out := works(t, "eval", "--model", dir); !strings.Contains(out, verdict) {
		t.Errorf("eval printed\n%s", out)
	}
	args[len(args)-1] = dir + "2"
	if out := works(t, append(args, "--steps", "60", "--lr", "0.03")...); strings.Contains(out, " is better by ") {
		t.Errorf("a model that is right has one ahead\n%s", out)
	}
}

// TestEvalRefusesChangedData renames a class in the data of a run. The run is not scored on its
// data, and on other data its classes are found by name. A text may not change either.
func TestEvalRefusesChangedData(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	data, dir := filepath.Join(folder, "data.csv"), filepath.Join(folder, "run")
	rows := "text,label\n" + strings.Repeat("wrong password,login\ndisk is full,storage\n", 40)
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(data, rows)
	works(t, "train", "--quiet", "--task", "file", "--data", data, "--task-set", "length=12", "--width", "8", "--heads", "2", "--steps", "2", "--batch", "2", "--out", dir)
	score := func(args ...string) (r eval.Report) {
		t.Helper()
		if err := json.Unmarshal([]byte(works(t, append([]string{"eval", "--model", dir, "--json"}, args...)...)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	want := score("--data", data, "--all")
	if want.Samples != 80 || want.Verdict == nil || len(want.Baselines) != 3 || want.Baselines[1].Learned != 64 || !slices.Equal(want.Classes, []string{"login", "storage"}) || score().Verdict == nil {
		t.Errorf("%+v", want)
	}
	write(data, strings.ReplaceAll(rows, ",login", ",zlogin"))
	refuses(t, dir+": "+data+`: is not the data that the run began with: it has a class "zlogin", and no class "login"; with --data`, "eval", "--model", dir)
	refuses(t, `--data: `+data+`: label: "zlogin" is none of the 2 classes that the model learned: ["login" "storage"]`, "eval", "--model", dir, "--data", data)
	refuses(t, "--data names other data", "eval", "--model", dir, "--all")
	refuses(t, "is not the data that the run began with", "maps", "--model", dir, "--sample", "0", "--out", filepath.Join(folder, "maps.html"))
	other := filepath.Join(folder, "other.jsonl")
	write(other, strings.Repeat(`{"label":"storage","text":"disk is full"}`+"\n"+`{"label":"login","text":"wrong password"}`+"\n", 40))
	if got := score("--data", other, "--all"); !reflect.DeepEqual(got.Confusion, want.Confusion) {
		t.Errorf("%v in another order, was %v", got.Confusion, want.Confusion)
	}
	works(t, "predict", "--model", dir, textsOf(t, "disk is full\n")) // these read no data of the run
	works(t, "report", dir)
	works(t, "inspect", dir)

	text, lm := filepath.Join(folder, "text.txt"), filepath.Join(folder, "lm")
	write(text, strings.Repeat("one two three. ", 60))
	works(t, "train", "--quiet", "--data", text, "--context", "8", "--width", "8", "--heads", "2", "--layers", "1", "--steps", "2", "--batch", "2", "--out", lm)
	write(text, strings.Repeat("one two three. ", 61))
	refuses(t, lm+": "+text+": is not the data that the run began with: its SHA-256 is ", "eval", "--model", lm)
	works(t, "eval", "--model", lm, "--data", text)
}

// Where a model learns no more than a baseline of long samples, the verdict asks for short
// ones at first, unless the run had them.
func TestVerdictNamesGrowthOnce(t *testing.T) {
	t.Parallel()
	const advice = "train longer, with samples that begin short (train --first-context)"
	words := []string{"train", "-q", "--task", "listops", "--task-set", "above=20", "--task-set", "below=40", "--width", "8", "--heads", "2",
		"--batch", "2", "--steps", "2", "--eval-samples", "9", "--final-samples", "100"}
	dir := t.TempDir()
	if out := works(t, append(words, "--first-context", "0", "--out", filepath.Join(dir, "whole"))...); !strings.Contains(out, advice) {
		t.Errorf("growth is not named in\n%s", out)
	}
	if out := works(t, append(words, "--first-context", "16", "--out", filepath.Join(dir, "grown"))...); strings.Contains(out, "begin short") || !strings.Contains(out, "train longer") {
		t.Errorf("growth is named in\n%s", out)
	}
}

// Several seeds are runs of their own, which an interrupt leaves to be resumed.
func TestTrainSeeds(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	whole, parts := filepath.Join(root, "whole"), filepath.Join(root, "parts")
	var all train.SeedsReport
	if err := json.Unmarshal([]byte(works(t, littleTask(whole, "--seeds", "10,2,3", "--json")...)), &all); err != nil {
		t.Fatal(err)
	}
	var mean, squares float64
	for i, seed := range []int{2, 3, 10} {
		if all.Runs[i].Run != filepath.Join(whole, fmt.Sprintf("seed-%d", seed)) {
			t.Errorf("run %d is in %s", i, all.Runs[i].Run)
		}
		mean += all.Runs[i].Value / 3
	}
	for _, r := range all.Runs {
		squares += (r.Value - mean) * (r.Value - mean)
	}
	if math.Abs(all.Mean-mean) > 1e-15 || math.Abs(all.Deviation-math.Sqrt(squares/2)) > 1e-15 {
		t.Errorf("mean %v and deviation %v, want %v and %v", all.Mean, all.Deviation, mean, math.Sqrt(squares/2))
	}
	one := filepath.Join(root, "one")
	works(t, littleTask(one, "--seed", "3")...)
	if !reflect.DeepEqual(metrics(t, one), metrics(t, filepath.Join(whole, "seed-3"))) {
		t.Error("a seed beside others gives another run than alone")
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	errs := &stopper{text: "step 4 of 8", stop: cancel}
	status := farfield().RunVerb(littleTask(parts, "--seeds", "10,2,3"), &env.Env{Context: ctx, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: errs})
	if status != env.StatusInterrupted || !strings.HasSuffix(errs.String(), "--resume --out "+parts+" continues\n") {
		t.Fatalf("status %d, stderr\n%s", status, errs)
	}
	// A kill may come before all runs are there.
	if err := os.RemoveAll(filepath.Join(parts, "seed-10")); err != nil {
		t.Fatal(err)
	}
	out := works(t, "train", "--resume", "--out", parts)
	if want := fmt.Sprintf("accuracy %.4f ± %.4f, mean and deviation of 3 seeds", all.Mean, all.Deviation); !strings.Contains(out, want) {
		t.Errorf("%q is not in\n%s", want, out)
	}
	for _, seed := range []string{"seed-2", "seed-3", "seed-10"} {
		if !reflect.DeepEqual(metrics(t, filepath.Join(whole, seed)), metrics(t, filepath.Join(parts, seed))) {
			t.Errorf("the metrics of %s differ", seed)
		}
	}
}

// TestSeedsOfAnotherConfigurationAreRefused: runs of a folder of seeds differ in their seeds
// alone, and change with --resume alone.
func TestSeedsOfAnotherConfigurationAreRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "seeds")
	works(t, littleTask(dir, "--seeds", "2")...)
	config := filepath.Join(dir, "seed-1", "config.json")
	before, text := below(t, dir), contents(t, config)
	for want, more := range map[string][]string{
		"seed-1: is a run of another configuration: its lr is ":          {"--seeds", "3,4", "--lr", "1e-5"},
		"seed-1: is a run of another configuration: its steps is 8, the": {"--seeds", "3,4", "--steps", "9"},
		"seed-1: is a run of another configuration: its model.width is ": {"--seeds", "3,4", "--width", "32"},
		"seed-2: holds a run already":                                    {"--seeds", "1000,2"},
	} {
		refuses(t, want, littleTask(dir, more...)...)
		if after := below(t, dir); !reflect.DeepEqual(after, before) || contents(t, config) != text {
			t.Errorf("%q: the folder is changed", more)
		}
	}
	start := filepath.Join(dir, "seed-1", "start.json")
	began := contents(t, start)
	wrote(t, start, `{"version":1,"data_sha256":"0123456789abcdef"}`)
	const changed = "seed-1: began with other data: its SHA-256 was 0123456789ab…, is "
	refuses(t, changed, littleTask(dir, "--seeds", "3,4")...)
	refuses(t, changed, "train", "--resume", "--out", dir)
	if after := below(t, dir); !reflect.DeepEqual(after, before) {
		t.Errorf("other data changed %v to %v", before, after)
	}
	wrote(t, start, began)
	if err := os.CopyFS(filepath.Join(dir, "seed-1.bak"), os.DirFS(filepath.Join(dir, "seed-1"))); err != nil {
		t.Fatal(err)
	}
	if out := works(t, littleTask(dir, "--seeds", "1000,5")...); !strings.Contains(out, "mean and deviation of 4 seeds") {
		t.Errorf("it prints\n%s", out)
	}
}

// contents returns the text of a file.
func contents(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestConfigurationKeepsAdapters: the configuration of a run with adapters repeats it.
func TestConfigurationKeepsAdapters(t *testing.T) {
	t.Parallel()
	base := trained(t)
	root := t.TempDir()
	tuned, again := filepath.Join(root, "tuned"), filepath.Join(root, "again")
	works(t, "train", "-q", "--init", base, "--adapters", "2", "--steps", "3", "--batch", "2", "--sample-tokens", "0", "--out", tuned)
	config := filepath.Join(tuned, "config.json")
	works(t, "train", "-q", "--config", config, "--sample-tokens", "0", "--out", again)
	if a, b := contents(t, config), contents(t, filepath.Join(again, "config.json")); a != b {
		t.Errorf("configuration\n%s\nwant\n%s", b, a)
	}
	if !reflect.DeepEqual(metrics(t, tuned), metrics(t, again)) {
		t.Error("the metrics differ")
	}
	bad := filepath.Join(root, "bad.json")
	if err := os.WriteFile(bad, []byte(strings.Replace(contents(t, config), `"adapters": 2`, `"adapters": -1`, 1)), 0o666); err != nil {
		t.Fatal(err)
	}
	refuses(t, "adapters: -1 is not from 0 to 4096", "train", "--config", bad, "--out", filepath.Join(root, "none"))
	works(t, "train", "-q", "--config", config, "--adapters", "0", "--sample-tokens", "0", "--out", filepath.Join(root, "whole"))
	if strings.Contains(contents(t, filepath.Join(root, "whole", "config.json")), "adapters") {
		t.Error("--adapters 0 is not heeded")
	}
}

// TestInspectRefusesDamagedCheckpoints: a checkpoint is read by its checksums.
func TestInspectRefusesDamagedCheckpoints(t *testing.T) {
	t.Parallel()
	list, err := filepath.Glob(filepath.Join(trained(t), "ckpt", "step-*"))
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	works(t, "inspect", list[0])
	path := filepath.Join(list[0], "model.safetensors")
	text := []byte(contents(t, path))
	text[len(text)-1] ^= 1
	if err := os.WriteFile(path, text, 0o666); err != nil {
		t.Fatal(err)
	}
	refuses(t, "damaged", "inspect", list[0])
}

func TestTrainingEndsWithCurves(t *testing.T) {
	t.Parallel()
	var out, notes bytes.Buffer
	e := &env.Env{Context: t.Context(), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &notes, IsTerminal: true}
	status := farfield().RunVerb(littleTask(filepath.Join(t.TempDir(), "run")), e)
	for _, want := range []string{"loss by update", "validation", "learning rate"} {
		if status != 0 || !strings.Contains(notes.String(), want) {
			t.Errorf("status %d: %q is not in\n%s", status, want, &notes)
		}
	}
}
