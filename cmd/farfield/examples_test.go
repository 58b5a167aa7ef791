//go:build docs

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/cli/env"
)

// Examples that take no more than a moment run as written, in a folder with what they
// name. Of the others some need a network, and some an hour.
func TestExamplesRun(t *testing.T) {
	if testing.Short() {
		t.Skip("trains a model")
	}
	dir := t.TempDir()
	list := []*array.Array{normal(t, "q", 1, 2, 80, 4), normal(t, "k", 2, 2, 80, 4), normal(t, "v", 3, 2, 80, 4), normal(t, "do", 4, 2, 80, 4)}
	for name, path := range map[string]string{"qkv.npz": written(t, "qkv.npz", list...), "qkv.safetensors": written(t, "in.safetensors", list[:3]...), "folder": folderOf(t, list[:3]...)} {
		if err := os.Rename(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"MiniLM", "all-MiniLM-L6-v2"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(tinyModel)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	text := strings.Repeat("To be, or not to be, that is the question:\n", 60)
	for name, content := range map[string]string{"notes.txt": text, "records.jsonl": `{"text":"to be"}` + "\n" + `{"text":"or not"}` + "\n",
		"labels.csv": "text,label\n" + strings.Repeat("to be,yes\nor not,no\n", 20), "lines.txt": "to be\n",
		"pairs.jsonl":  strings.Repeat(`{"text":"to be","pair":"or not","label":"yes"}`+"\n"+`{"text":"or not","pair":"to be","label":"no"}`+"\n", 20),
		"labelled.tsv": "text\tlabel\n" + strings.Repeat("to be\tyes\nor not\tno\n", 20)} {
		if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, run := range []string{"run/001", "run/002"} {
		works(t, "train", "--data", "notes.txt", "--out", run, "--preset", "tiny", "--steps", "2", "--context", "32", "--batch", "2", "--sample-tokens", "3", "--quiet")
	}
	works(t, "train", "--task", "file", "--data", "labels.csv", "--task-set", "length=8", "--out", "out/labels", "--width", "8", "--heads", "2", "--batch", "2", "--steps", "2", "--quiet")
	works(t, "train", "--data", "notes.txt", "--out", "run/tickets", "--preset", "tiny", "--steps", "2", "--context", "32", "--batch", "2", "--sample-tokens", "3", "--quiet",
		"--mechanism", "softmax", "--conv", "0", "--norm", "rms", "--activation", "swiglu")
	works(t, "export", "--model", "run/tickets", "--out", "SmolLM")
	works(t, "train", "--init", "MiniLM", "--task", "file", "--data", "labels.csv", "--out", "out/tuned", "--batch", "2", "--steps", "2", "--quiet")
	works(t, "export", "--model", "out/tuned", "--out", "distilbert-sst2")
	works(t, "export", "--model", "out/tuned", "--out", "nli")
	do, err := array.New("do", make([]float32, 4*8), 1, 4, 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(writeIDs(t), "ids.npz"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(written(t, "in.npz", integers(t, "input_ids", 2, 5, 6, 3), do), "in.npz"); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join("SmolLM", "tokenizer.json"), "tokenizer.json"); err != nil {
		t.Fatal(err)
	}
	works(t, "embed", "--model", "run/001", "--out", "vectors.npy", "lines.txt")
	works(t, "embed", "--model", "run/001", "--out", "vectors.jsonl", "records.jsonl")
	slow := regexp.MustCompile(`^farfield (demo|bench|train|serve|health|exchange|data (fetch|verify|generate)|models fetch|inspect$|plan --plot)|--images|1000000000|\$|scored.jsonl|out/sounds|--model vit|sentence-transformers/|--prompt document`)
	ran := 0
	for _, leaf := range commandLine(t).Model.Leaves(true) {
		for _, command := range exampleLines(leaf) {
			if slow.MatchString(command) {
				continue
			}
			ran++
			in := ""
			if strings.Contains(command, "<records.jsonl") {
				content, err := os.ReadFile("records.jsonl")
				if err != nil {
					t.Fatal(err)
				}
				in = string(content)
			}
			if strings.HasPrefix(command, "producer | ") {
				in = strings.Repeat("\x00\x00\x80\x3f", 5*3*64*8) // tokens of ones
			}
			var out, errs bytes.Buffer
			if status := farfield().RunVerb(words(command), &env.Env{Context: context.Background(), Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errs}); status != 0 {
				t.Errorf("%s: status %d: %s", command, status, errs.String())
			}
		}
	}
	if ran < 20 {
		t.Errorf("%d examples ran, there were 20 and more", ran)
	}
}
