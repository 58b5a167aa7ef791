package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A published encoder and few texts get a linear head, unless something of the training is asked for.
func TestFewTextsGetALinearHead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "t.tsv")
	if err := os.WriteFile(data, []byte("text\tlabel\n"+strings.Repeat("the cat sat\tcat\non the mat\tmat\n", 40)), 0o666); err != nil {
		t.Fatal(err)
	}
	args := func(out string, more ...string) []string {
		return append([]string{"train", "--init", tinyModel, "--task", "file", "--data", data, "--out", filepath.Join(dir, out)}, more...)
	}
	const frozen = "its weights stay, a linear head is fitted (--freeze=false trains all weights)"
	for out, more := range map[string][]string{"default": nil, "asked": {"--freeze"}} {
		text := works(t, args(out, more...)...)
		for _, want := range []string{frozen, "logistic regression on the vectors of 72 samples (train and validation)",
			"baseline    accuracy 1.0000: logistic regression over tf-idf of words and bigrams, learned from 72 samples\n",
			"held-out samples (accuracy ", "; fitted to all 72 samples but the test part\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", out, want, text)
			}
		}
	}
	for out, more := range map[string][]string{"tuned": {"--freeze=false"}, "steps": {"--steps", "1"}} {
		if text := works(t, args(out, append(more, "--batch", "8")...)...); !strings.Contains(text, "all weights are trained") {
			t.Errorf("%s: printed\n%s", out, text)
		}
	}
	run := filepath.Join(dir, "default")
	if text := works(t, "predict", "--model", run, textsOf(t, "the cat sat\n")); !strings.HasPrefix(text, "cat\t") {
		t.Errorf("predicted %s", text)
	}
	text := works(t, "eval", "--model", run, "--data", data, "--all")
	if !strings.Contains(text, "logistic regression over tf-idf of words and bigrams, learned from 72 samples") {
		t.Errorf("eval printed\n%s", text)
	}
	written := filepath.Join(dir, "hf")
	works(t, "export", "--model", run, "--out", written)
	lines := textsOf(t, "the cat sat\non the mat\nthe sun ran\n")
	if a, b := works(t, "predict", "--model", run, lines), works(t, "predict", "--model", written, lines); a != b || !strings.HasPrefix(b, "cat\t") {
		t.Errorf("the run predicts\n%sand the folder that it was exported to\n%s", a, b)
	}
	refuses(t, "--freeze: fits a linear head, for which --lr has no effect", args("x", "--freeze", "--lr", "1e-3")...)
	refuses(t, "--freeze: there is no model to keep", "train", "--freeze", "--task", "file", "--data", data, "--out", filepath.Join(dir, "x"))
	refuses(t, "steps: 5, but the run fits a linear head", "train", "--resume", "--out", run, "--steps", "5")
}
