package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/eval"
)

// A run of pairs is trained, writes the targets that eval judges, and goes on after a stop; what it
// writes of lines and of records is the same.
func TestPairsAreTrainedWrittenAndScored(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	data, run := filepath.Join(root, "pairs.tsv"), filepath.Join(root, "run")
	var rows strings.Builder
	rows.WriteString("source\ttarget\n")
	for i := range 60 {
		fmt.Fprintf(&rows, "%c%c%c\t%c\n", 'a'+i%5, 'a'+i/5%5, 'a'+i/25, 'a'+i%5) // the first letter
	}
	wrote(t, data, rows.String())
	out := works(t, "train", "--task", "pairs", "--data", data, "--out", run, "--quiet", "--steps", "60", "--batch", "16", "--lr", "1e-2",
		"--layers", "1", "--width", "32", "--heads", "2", "--mechanism", "softmax", "--task-set", "length=12", "--task-set", "target_length=4")
	if !strings.Contains(out, "after two, learned from 48 samples") {
		t.Errorf("train prints\n%s", out)
	}
	var r eval.Report
	if err := json.Unmarshal([]byte(works(t, "eval", "--model", run, "--json")), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Targets) != 3 || r.Targets[0].Texts != 6 || r.Samples != 6 || r.Tokens != 12 || len(r.Baselines) != 0 || r.Verdict == nil {
		t.Fatalf("eval says %+v", r)
	}
	if r.Targets[0].Exact != 1 || r.Targets[1].Exact != 0 || r.Targets[1].Rouge1 != 0 {
		t.Errorf("targets have the scores %+v", r.Targets)
	}
	out = works(t, "eval", "--model", run, "--data", data, "--all")
	if !strings.Contains(out, "60 targets") || !strings.Contains(out, "lead-3") || !strings.Contains(out, "ROUGE-L") {
		t.Errorf("eval prints\n%s", out)
	}
	if out = works(t, "predict", "--model", run, writeText(t, "bcd\n\nedb\n")); out != "b\tbcd\n\t\ne\tedb\n" {
		t.Errorf("predict prints %q", out)
	}
	if out = works(t, "predict", "--model", run, "--json", writeText(t, "bcdefghijk\n")); !strings.Contains(out, `,"truncated":true`) {
		t.Errorf("predict prints %q", out)
	}
	if out = works(t, "predict", "--model", run, "--jsonl", writeText(t, `{"source":"dab","target":"x","id":3}`+"\n")); lineFields(t, out)["written"] != "d" || lineFields(t, out)["target"] != "x" {
		t.Errorf("predict prints %q", out)
	}
	refuses(t, `has no field "source"`, "predict", "--model", run, "--jsonl", writeText(t, `{"text":"dab"}`+"\n"))
	refuses(t, "--pairs: an input is the source", "predict", "--model", run, "--pairs", data)
	refuses(t, "--stride: "+run+" predicts no text", "eval", "--model", run, "--stride", "4")
}
