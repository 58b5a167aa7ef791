package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/eval"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// textFile writes an invented text that a model learns quickly.
func textFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, task.InventText(1, 4000).Text[:4000], 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// littleRun returns the words of a training of a fraction of a second.
func littleRun(data, dir string, more ...string) []string {
	return append([]string{"train", "--data", data, "--out", dir, "--preset", "tiny", "--steps", "8",
		"--context", "20", "--save-every", "3", "--eval-every", "2", "--sample-tokens", "30"}, more...)
}

// metrics reads the metrics of a run, without what depends on the time.
func metrics(t *testing.T, dir string) (rows []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		delete(row, "tokens_per_s")
		delete(row, "elapsed_s")
		delete(row, "crc32c")
		rows = append(rows, row)
	}
	return rows
}

func TestTrainPrintsWhatItDid(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	data := textFile(t)
	status, out, errs := command(t, littleRun(data, dir)...)
	if status != 0 {
		t.Fatal(errs)
	}
	for _, want := range []string{
		data, "3600 bytes to learn from, 400 to validate", "fastmax --order 4 --set scale=1/sqrt(D) --set tau=1 --set window=64 --attention-norm --far-every 3",
		"updates 1 to 8 of 4×20 tokens", "bits per byte over 399 bytes", "(order 2)", "sample", "generate --model " + dir,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for _, want := range []string{"step 8 of 8  loss", "validation (look)", "validation (whole)"} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is not in\n%s", want, errs)
		}
	}
}

func TestTrainEvaluateAndRepeat(t *testing.T) {
	t.Parallel()
	root, data := t.TempDir(), textFile(t)
	first, second := filepath.Join(root, "first"), filepath.Join(root, "second")
	var trained runs.Report
	if err := json.Unmarshal([]byte(works(t, littleRun(data, first, "--json")...)), &trained); err != nil {
		t.Fatal(err)
	}
	if trained.Run != first || trained.Steps != 8 || trained.Table[2] <= 0 || trained.Table[2] >= trained.Table[0] || trained.Sample == "" {
		t.Errorf("the report is %+v", trained)
	}

	for _, model := range []string{first, filepath.Join(first, "ckpt", "step-00000008")} {
		var evaluated eval.Report
		if err := json.Unmarshal([]byte(works(t, "eval", "--model", model, "--json")), &evaluated); err != nil {
			t.Fatal(err)
		}
		if evaluated.Score != trained.Score || len(evaluated.Positions) != 5 {
			t.Errorf("%s: evaluated %+v, trained %+v", model, evaluated, trained.Score)
		}
	}
	var all eval.Report
	if err := json.Unmarshal([]byte(works(t, "eval", "--model", first, "--data", data, "--all", "--json")), &all); err != nil {
		t.Fatal(err)
	}
	if all.Tokens != 3999 {
		t.Errorf("all of the text has %d tokens", all.Tokens)
	}
	for stride, same := range map[string]bool{"20": true, "5": false} {
		var strided eval.Report
		if err := json.Unmarshal([]byte(works(t, "eval", "--model", first, "--stride", stride, "--json")), &strided); err != nil {
			t.Fatal(err)
		}
		if (strided.Score == trained.Score) != same || strided.Tokens != trained.Score.Tokens || fmt.Sprint(strided.Stride) != stride || strided.Verdict == nil {
			t.Errorf("stride %s: evaluated %+v, trained %+v", stride, strided, trained.Score)
		}
	}
	refuses(t, "--stride: 21 tokens, a window has 20", "eval", "--model", first, "--stride", "21")
	refuses(t, "--stride: 0 is below 1", "eval", "--model", first, "--stride", "0")
	short := filepath.Join(root, "short")
	wrote(t, short, "short text")
	if out := works(t, "eval", "--model", first, "--data", short, "--all"); !strings.Contains(out, "over 9 tokens, 9 bytes") {
		t.Errorf("of a short text eval prints\n%s", out)
	}
	if out := works(t, "eval", "--model", first, "--limit", "2"); !strings.Contains(out, "over 40 tokens") || !strings.Contains(out, "15–19") {
		t.Errorf("eval prints\n%s", out)
	}

	works(t, "train", "--config", filepath.Join(first, "config.json"), "--out", second)
	if !reflect.DeepEqual(metrics(t, first), metrics(t, second)) {
		t.Error("the recorded configuration does not repeat the run")
	}
}

func TestVerdictOfPartIsOnItsSamples(t *testing.T) {
	t.Parallel()
	dir, data := filepath.Join(t.TempDir(), "run"), textFile(t)
	if out := works(t, littleRun(data, dir, "--final-samples", "3")...); !strings.Contains(out, "bits per byte over 60 bytes") || !strings.Contains(out, "of none, on the same bytes\n") {
		t.Errorf("train prints\n%s", out)
	}
	r, err := runs.ReadResult(dir)
	if err != nil || r.WholeTable == nil || r.Verdict.Difference != r.Table[2]-r.Bits {
		t.Fatalf("the result is %+v, %v", r, err)
	}
	var evaluated eval.Report
	if err := json.Unmarshal([]byte(works(t, "eval", "--model", dir, "--json")), &evaluated); err != nil {
		t.Fatal(err)
	}
	if evaluated.Verdict == nil || evaluated.Verdict.Difference != r.WholeTable[2]-evaluated.Bits {
		t.Errorf("eval has the verdict %+v on tables of %v", evaluated.Verdict, r.WholeTable)
	}
}

// stopper ends a context when a text appears on a writer.
type stopper struct {
	text string
	stop context.CancelFunc
	bytes.Buffer
}

func (s *stopper) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		s.stop()
	}
	return s.Buffer.Write(p)
}

func TestInterruptedTrainingResumes(t *testing.T) {
	t.Parallel()
	root, data := t.TempDir(), textFile(t)
	whole, parts := filepath.Join(root, "whole"), filepath.Join(root, "parts")
	want := works(t, littleRun(data, whole)...)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	errs := &stopper{text: "step 4 of 8", stop: cancel}
	status := farfield().RunVerb(littleRun(data, parts), &env.Env{Context: ctx, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: errs})
	line := fmt.Sprintf("farfield: stopped after update 4 of 8; farfield train --resume --out %s continues\n", parts)
	if status != env.StatusInterrupted || !strings.HasSuffix(errs.String(), line) {
		t.Fatalf("status %d, stderr\n%s", status, errs)
	}
	got := works(t, "train", "--resume", "--out", parts, "--sample-tokens", "30")
	if !reflect.DeepEqual(metrics(t, whole), metrics(t, parts)) {
		t.Error("the metrics differ")
	}
	result := func(out string) string {
		_, text, _ := strings.Cut(out, "validation")
		return strings.ReplaceAll(strings.ReplaceAll(text, whole, ""), parts, "")
	}
	if result(got) != result(want) {
		t.Errorf("the result is\n%s\nnot interrupted\n%s", got, want)
	}
	if out := works(t, "train", "--resume", "--out", whole, "--sample-tokens", "0"); !strings.Contains(out, "finished, 8 updates of 4×20 tokens") {
		t.Errorf("a finished run prints\n%s", out)
	}
}

// Data that are another file now continue the run if they are the same.
func TestResumedRunTakesMovedData(t *testing.T) {
	t.Parallel()
	data, dir := textFile(t), filepath.Join(t.TempDir(), "run")
	works(t, littleRun(data, dir)...)
	moved := data + " moved"
	if err := os.Rename(data, moved); err != nil {
		t.Fatal(err)
	}
	works(t, "train", "--resume", "--out", dir, "--data", moved, "--steps", "9")
	wrote(t, moved, has(t, moved)[1:])
	refuses(t, "is not the data that the run began with", "train", "--resume", "--out", dir, "--data", moved, "--steps", "10")
}

// Files of a run are no data of it.
func TestRunLiesOutsideItsData(t *testing.T) {
	root := t.TempDir()
	data, link := filepath.Join(root, "data"), filepath.Join(root, "link")
	if err := errors.Join(os.Mkdir(data, 0o777), os.Symlink(data, link)); err != nil {
		t.Skip(err)
	}
	wrote(t, filepath.Join(data, "text"), string(task.InventText(1, 4000).Text))
	t.Chdir(data)
	const want = "; name a folder outside"
	for _, out := range []string{".", "a/b", filepath.Join(link, "new"), data} {
		refuses(t, "--out: "+out+" lies in the folder of --data "+data+want, "train", "--data", ".", "--out", out)
	}
	refuses(t, "--out: "+filepath.Join("run", "001")+" lies in the folder of --data "+link+want, "train", "--data", link)
	refuses(t, want, "train", "--data", data, "--seeds", "2", "--out", "seeds")
	for _, out := range []string{"../data2", ".runs/a"} { // a name with a dot is no data
		refuses(t, "batch: 0", "train", "--data", data, "--batch", "0", "--out", out)
	}
}

func TestTrainHelpNamesThePresets(t *testing.T) {
	t.Parallel()
	out := works(t, "train", "--help")
	for _, p := range train.Presets() {
		if !strings.Contains(out, p.Name) {
			t.Errorf("the help does not name preset %s", p.Name)
		}
	}
}

func TestFlagsChangeTheConfiguration(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	works(t, littleRun(textFile(t), dir, "--mechanism", "taylorshift", "--order", "4", "--set", "tau=2",
		"--layers", "1", "--heads", "2", "--kv-heads", "1", "--width", "12", "--activation", "relu", "--post-norm", "--attention-norm", "--positions", "learned", "--task", "charlm",
		"--batch", "2", "--lr", "0.01", "--warmup", "3", "--weight-decay", "0.2", "--beta2", "0.95", "--clip", "2",
		"--seed", "9", "--final-samples", "5", "--eval-samples", "3", "--patience", "4", "--optimizer", "radam", "--schedule", "linear", "--accumulate", "2",
		"--dropout", "0.1", "--hidden", "20")...)
	got, err := train.RunConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := got.Model
	if m.Mechanism != "taylorshift" || m.Order != 4 || m.Set["tau"] != "2" || m.Layers != 1 || m.Heads != 2 ||
		m.KVHeads != 1 || m.Activation != "relu" || !m.PostNorm || !m.AttentionNorm || m.Width != 12 || m.Positions != "learned" || m.Context != 20 || m.Vocab > 100 {
		t.Errorf("the model is %+v", m)
	}
	if got.Task != "charlm" || got.Batch != 2 || got.Rate != 0.01 || got.MinRate != 0.001 || got.WarmUp != 3 || got.Decay != 0.2 ||
		got.Beta2 != 0.95 || got.Clip != 2 || got.Seed != 9 || got.FinalSamples != 5 || got.Steps != 8 || !filepath.IsAbs(got.TaskSet["data"]) ||
		got.EvalSamples != 3 || got.Patience != 4 || got.Optimizer != "radam" || got.Schedule != "linear" || got.Accumulate != 2 ||
		m.Dropout != 0.1 || m.Hidden != 20 {
		t.Errorf("the configuration is %+v", got)
	}
}

// A model without sessions draws no sample; its run is scored and filed.
func TestTrainingWithoutSampleIsFiled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	works(t, littleRun(textFile(t), dir, "--no-tied", "--head-hidden", "6")...)
	if result, err := runs.ReadResult(dir); err != nil || result == nil || result.Samples == 0 || result.Sample != "" {
		t.Errorf("the result is %+v, %v", result, err)
	}
	works(t, "report", dir)
}

func TestBadTrainings(t *testing.T) {
	t.Parallel()
	root, data := t.TempDir(), textFile(t)
	dir := trained(t)
	binary := filepath.Join(root, "binary")
	if err := os.WriteFile(binary, []byte("\xff\xfe text"), 0o666); err != nil {
		t.Fatal(err)
	}
	free, short := filepath.Join(root, "free"), filepath.Join(root, "short")
	wrote(t, short, "16 bytes of text")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"the folder holds no text", littleRun(t.TempDir(), free)},
		{"no such file", littleRun(filepath.Join(root, "none"), free)},
		{"0xff at offset 0 is not UTF-8", littleRun(binary, free, "--task", "charlm")},
		{`task "words": unknown; there are: shapes,`, littleRun(data, free, "--task", "words")},
		{`mechanism "fastmx": unknown; nearest: fastmax`, littleRun(data, free, "--mechanism", "fastmx")},
		{"setting scle=1: unknown; allowed: scale", littleRun(data, free, "--set", "scle=1")},
		{`activation: "tanh" is none of gelu-tanh, gelu, relu, silu, swiglu, geglu`, littleRun(data, free, "--activation", "tanh")},
		{`norm: "batch" is none of layer, rms`, littleRun(data, free, "--norm", "batch")},
		{"5 do not divide width 32", littleRun(data, free, "--heads", "5")},
		{"14 tokens to learn from and 2 to be judged by are too few", littleRun(short, free, "--context", "8")},
		{"do not fit the 3600", littleRun(data, free, "--context", "4000")},
		{"batch: 0", littleRun(data, free, "--batch", "0")},
		{"--sample-tokens: -1", littleRun(data, free, "--sample-tokens=-1")},
		{"--data: is " + data + ", but --task-set data=" + binary + " is given, too", littleRun(data, free, "--task-set", "data="+binary)},
		{"--vocabulary: is bpe=300, but --task-set vocabulary=bpe=400 is given, too", littleRun(data, free, "--vocabulary", "bpe=300", "--task-set", "vocabulary=bpe=400")},
		{"--first-batch: is 8, but --first-context is 0: all", littleRun(data, free, "--first-batch", "8")},
		{"--first-batch: is 8, but --first-context is 20: all", littleRun(data, free, "--first-batch", "8", "--first-context", "20")},
		{"--first-context: is 21, but --context is 20: all", littleRun(data, free, "--first-context", "21")},
		{"--data-seed: is 3, but no sample of task bytelm", littleRun(data, free, "--data-seed", "3")},
		{"lra_quirk: the windows of task bytelm have no padding", littleRun(data, free, "--lra-quirk")},
		{"--min-lr: is 0.001, but --schedule constant stays at --lr 0.004", littleRun(data, free, "--schedule", "constant", "--min-lr", "1e-3")},
		{`preset "huge": unknown`, []string{"train", "--preset", "huge"}},
		{"no such file", []string{"train", "--config", filepath.Join(root, "none")}},
		{"holds a run already", littleRun(data, dir)},
		{"not a ", littleRun(data, data)}, // folder
		{"--out has to name", []string{"train", "--resume"}},
		{"holds no run", []string{"train", "--resume", "--out", free}},
		{"leave out --width", []string{"train", "--resume", "--out", dir, "--steps", "9", "--width", "9"}},
	} {
		refuses(t, c.want, c.args...)
		if _, err := os.Stat(free); err == nil {
			t.Fatalf("%s: a folder was made", c.want)
		}
	}
}

func TestDamagedModels(t *testing.T) {
	t.Parallel()
	root, data := t.TempDir(), textFile(t)
	dir := filepath.Join(root, "run")
	works(t, littleRun(data, dir)...)
	checkpoint := filepath.Join(dir, "ckpt", "step-00000008")
	for _, c := range []struct {
		file, want string
		change     func([]byte) []byte
	}{
		{"checkpoint.json", "version is 3, this program reads 2", func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"version": 2`), []byte(`"version": 3`), 1)
		}},
		{"model.safetensors", "damaged", func(b []byte) []byte { b[len(b)-3] ^= 1; return b }},
		{"optim.safetensors", "optim.safetensors: damaged: it has 99 bytes", func(b []byte) []byte { return b[:99] }},
	} {
		path := filepath.Join(checkpoint, c.file)
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, c.change(bytes.Clone(old)), 0o666); err != nil {
			t.Fatal(err)
		}
		refuses(t, c.want, "eval", "--model", dir)
		refuses(t, c.want, "generate", "--model", dir)
		refuses(t, c.want, "train", "--resume", "--out", dir)
		if err := os.WriteFile(path, old, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	refuses(t, "neither a run nor a checkpoint", "eval", "--model", root)
	latest := filepath.Join(dir, "ckpt", "latest")
	wrote(t, latest, strings.Repeat("x", 1000))
	refuses(t, latest+": is longer than 64 bytes", "eval", "--model", dir)
	wrote(t, latest, "step-00000008\n")
	refuses(t, "no such file", "eval", "--model", filepath.Join(root, "none"))
	refuses(t, "--limit: -1", "eval", "--model", dir, "--limit=-1")
	refuses(t, "holds no text", "eval", "--model", dir, "--data", t.TempDir())
}
