package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/generate"
	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

func smallModel(t *testing.T) (*model.Model[float32], string) {
	t.Helper()
	m, err := model.New[float32](model.Config{
		Kind: model.Decoder, Vocab: 11, Layers: 2, Heads: 2, Width: 8, Context: 500,
		Positions: model.Rotary, Mechanism: "fastmax", Tied: true,
	}, rng.New(1))
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
	for _, want := range []string{cpu.Chosen(), cpu.Variable, "GFLOP/s", "threads", "fastmax", "2145"} {
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

func TestInspectRefuses(t *testing.T) {
	_, dir := smallModel(t)
	empty := t.TempDir()
	weights := filepath.Join(dir, model.WeightsFile)
	refuses(t, "no such file", "inspect", filepath.Join(empty, "none"))
	refuses(t, "neither a run nor a checkpoint", "inspect", empty)
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
