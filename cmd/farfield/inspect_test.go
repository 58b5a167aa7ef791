package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/cli/plan"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train"
)

func smallModel(t *testing.T) (*model.Model, string) {
	t.Helper()
	return savedModel(t, model.Config{
		Kind: model.Decoder, Vocab: 11, Layers: 2, Heads: 2, Width: 8, Context: 500,
		Positions: model.Rotary, Mechanism: "fastmax", Tied: true,
	})
}

// savedModel returns a new model and the folder that it is saved to.
func savedModel(t *testing.T, c model.Config) (*model.Model, string) {
	t.Helper()
	m, err := model.New(c, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	return m, dir
}

func TestInspectMachine(t *testing.T) {
	out := works(t, "inspect")
	for _, want := range []string{cpu.ActiveSet(), cpu.Variable, "GFLOP/s", "threads", "fastmax", "2145"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed:\n%s", want, out)
		}
	}
}

func TestInspectMechanisms(t *testing.T) {
	out := works(t, "inspect", "mechanisms")
	for _, want := range append(mechanism.Names(), "causal", "\nfastmax p=2 ", "it has no linear form\n   softmax\n") {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed:\n%s", want, out)
		}
	}
}

func TestInspectModel(t *testing.T) {
	m, dir := smallModel(t)
	out := works(t, "inspect", dir)
	for _, want := range []string{`"mechanism":"fastmax"`, "2 heads of width 4, linear form", "whatever the length", m.Params().All()[0].Name} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed:\n%s", want, out)
		}
	}
}

func TestInspectDescribesKeyHeads(t *testing.T) {
	_, dir := savedModel(t, model.Config{
		Kind: model.Decoder, Vocab: 11, Layers: 1, Heads: 4, KVHeads: 1, Width: 64, Context: 64,
		Positions: model.Rotary, Mechanism: "fastmax", Tied: true,
	})
	var planned plan.Report
	if err := json.Unmarshal([]byte(works(t, strings.Fields("plan --heads 4 --kv-heads 1 --d 16 --causal --json")...)), &planned); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("linear from N = %d on", planned.Switch.Forward)
	if out := works(t, "inspect", dir); !strings.Contains(out, "4 heads of width 16, 1 key head, ") || !strings.Contains(out, want) {
		t.Errorf("no %q in\n%s", want, out)
	}
}

func TestInspectRefusesDamagedMetrics(t *testing.T) {
	dir := t.TempDir()
	run := madeRun(t, filepath.Join(dir, "seed-1"), train.Config{Seed: 1}, ended(task.Accuracy, 0.5))
	works(t, "inspect", run)
	works(t, "inspect", dir)
	file := filepath.Join(run, "metrics.jsonl")
	if err := os.WriteFile(file, []byte("{}}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	refuses(t, file, "inspect", run)
	refuses(t, file, "inspect", dir)
	if err := os.Remove(file); err != nil { // a run before its first update
		t.Fatal(err)
	}
	works(t, "inspect", run)
	works(t, "inspect", dir)
}

func TestInspectGeneration(t *testing.T) {
	m, dir := smallModel(t)
	g, err := generate.New(m, generate.Sampling{Temperature: 1, TopP: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	g.Append(1, 2, 3)
	path := filepath.Join(t.TempDir(), "text.state")
	if err := g.Save(path); err != nil {
		t.Fatal(err)
	}
	if out := works(t, "inspect", path, "--model", dir); !strings.Contains(out, "tokens    3") {
		t.Errorf("printed:\n%s", out)
	}
}

func TestInspectGenerationOfAPublishedModel(t *testing.T) {
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 20, Layers: 1, Heads: 2, Width: 8, Context: 16,
		Positions: model.Rotary, Mechanism: "softmax", Norm: model.RMSNorm, Activation: model.SwiGLU,
	}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "text.state")
	if err := published.Write(dir, m, nil); err != nil {
		t.Fatal(err)
	}
	works(t, "generate", "--model", dir, "--ids", writeIDs(t), "--tokens", "2", "--save", path)
	if out := works(t, "inspect", path, "--model", dir); !strings.Contains(out, "tokens    6") {
		t.Errorf("printed:\n%s", out)
	}
	if _, all := kindOf(t, dir); all["family"] != "llama" || slices.Contains(slices.Collect(maps.Keys(all)), "tokenizer") {
		t.Errorf("without a tokenizer: %v", all)
	}
}

// kindOf inspects a path and returns what it is, and all that is known of it.
func kindOf(t *testing.T, path string) (string, map[string]any) {
	t.Helper()
	var all map[string]any
	out := works(t, "inspect", "--json", path)
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	kind, _ := all["kind"].(string)
	if text := works(t, "inspect", path); !strings.HasPrefix(text, "kind") || !strings.Contains(text, kind) {
		t.Errorf("%s is told as %s", path, text)
	}
	return kind, all
}

func TestInspectTellsWhatItIs(t *testing.T) {
	_, dir := smallModel(t)
	q := normal(t, "q", 1, 5, 4)
	folder := t.TempDir()
	var b bytes.Buffer
	if err := array.WriteNPY(&b, q); err != nil {
		t.Fatal(err)
	}
	npy := filepath.Join(folder, "q.npy")
	if err := os.WriteFile(npy, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, kind, has string }{
		{dir, "model", "parameters"},
		{written(t, "a.npz", q), "arrays", "arrays"},
		{written(t, "a.safetensors", q), "arrays", "arrays"},
		{npy, "arrays", "arrays"},
	} {
		if kind, all := kindOf(t, c.path); kind != c.kind || all[c.has] == nil {
			t.Errorf("%s is %q: %v, want %q", c.path, kind, all, c.kind)
		}
	}
}

// The files of a stream, a text and a score are described without their models.
func TestInspectStates(t *testing.T) {
	m, _ := smallModel(t)
	g, err := generate.New(m, generate.Sampling{Temperature: 1, TopP: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	g.Append(1, 2, 3)
	text := filepath.Join(t.TempDir(), "text")
	if err := g.Save(text); err != nil {
		t.Fatal(err)
	}
	if kind, all := kindOf(t, text); kind != "text in progress" || all["weights_sha256"] != m.WeightSum() {
		t.Errorf("%q: %v", kind, all)
	}

	mech, err := mechanism.New("fastmax", mechanism.Options{Width: 4})
	if err != nil {
		t.Fatal(err)
	}
	st, err := mech.NewState(attention.Shape{B: 1, H: 2, Hkv: 2, D: 4, Dv: 4, Causal: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := st.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(state, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if kind, all := kindOf(t, state); kind != "state" || all["mechanism"] != "fastmax" || all["tokens"] != 0.0 {
		t.Errorf("%q: %v", kind, all)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(state, b, 0o666); err != nil {
		t.Fatal(err)
	}
	refuses(t, "corrupt or truncated", "inspect", state)
}

func TestInspectRun(t *testing.T) {
	data := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(data, bytes.Repeat([]byte("one two three four\n"), 100), 0o666); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	works(t, "train", "-q", "--data", data, "--preset", "tiny", "--steps", "2", "--context", "16", "--batch", "1", "--sample-tokens", "0", "--out", dir)
	kind, all := kindOf(t, dir)
	if kind != "run" || all["updates"] != 2.0 || all["parameters"] == nil {
		t.Errorf("%q: %v", kind, all)
	}
	if kind, _ := kindOf(t, filepath.Join(dir, "ckpt", "step-00000002")); kind != "checkpoint" {
		t.Errorf("a checkpoint is %q", kind)
	}
	refuses(t, "metrics.jsonl", "inspect", filepath.Join(dir, "metrics.jsonl"))

	// A name may look like a pattern.
	odd := filepath.Join(filepath.Dir(dir), "run[1]")
	if err := os.Rename(dir, odd); err != nil {
		t.Fatal(err)
	}
	if _, all := kindOf(t, odd); all["parameters"] == nil || len(all["checkpoints"].([]any)) == 0 {
		t.Errorf("%s: %v", odd, all)
	}
}

func TestInspectTellsFinalScoreFromLatestLook(t *testing.T) {
	dir := madeRun(t, filepath.Join(t.TempDir(), "run"), train.Config{Seed: 1}, ended(task.MSE, 0.00002))
	if err := runs.WriteResult(dir, &runs.Report{Steps: 2, Best: 1}); err != nil {
		t.Fatal(err)
	}
	out := works(t, "inspect", dir)
	for _, want := range []string{"final score", "of update 1, test: loss 1, mean squared error 2e-05\n", "latest look", "at update 1, valid: "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed:\n%s", want, out)
		}
	}
}

func TestInspectRefuses(t *testing.T) {
	_, dir := smallModel(t)
	empty := t.TempDir()
	weights := filepath.Join(dir, model.WeightsFile)
	refuses(t, "no such file", "inspect", filepath.Join(empty, "none"))
	refuses(t, "neither a run nor a checkpoint", "inspect", empty)
	strange := filepath.Join(empty, "strange")
	if err := os.WriteFile(strange, []byte("strange"), 0o666); err != nil {
		t.Fatal(err)
	}
	refuses(t, "begins with \"strange\"", "inspect", strange)
	refuses(t, "--model: needs the path", "inspect", "--model", dir)
	refuses(t, "", "inspect", weights, "--model", dir)
	content, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(weights, content[:len(content)-1], 0o666); err != nil {
		t.Fatal(err)
	}
	refuses(t, "data ends at", "inspect", dir)
}
