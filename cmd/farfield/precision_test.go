package main

import (
	"path/filepath"
	"slices"
	"testing"
)

// Verbs hold weights in fewer bits, which changes their answers, and a text in progress goes on with
// its own precision alone.
func TestPrecisionOfWeights(t *testing.T) {
	t.Parallel()
	run, text, dir := trained(t), textFile(t), t.TempDir()
	for _, args := range [][]string{
		{"embed", text, "--model", tinyModel},
		{"embed", text, "--model", run},
		{"score", text, "--json", "--model", run},
		{"eval", "--json", "--model", run},
	} {
		own := works(t, args...)
		with := func(precision string) string {
			return works(t, slices.Concat(args, []string{"--precision", precision})...)
		}
		if got := with("f32"); got != own && args[0] == "embed" {
			t.Errorf("%s: f32 gives\n%s\nwithout the flag\n%s", args[0], got, own)
		}
		half, bytes := with("bf16"), with("int8")
		if half == own || bytes == own || half == bytes {
			t.Errorf("%s of %s: fewer bits change nothing", args[0], args[len(args)-1])
		}
	}
	for _, p := range []string{"bf16", "int8"} {
		to := filepath.Join(dir, p)
		works(t, "export", "--model", tinyModel, "--precision", p, "--out", to)
		if got, want := works(t, "embed", text, "--model", to, "--precision", p), works(t, "embed", text, "--model", tinyModel, "--precision", p); got != want {
			t.Errorf("%s: the exported folder gives\n%s\nits source\n%s", p, got, want)
		}
	}
	snapshot := filepath.Join(dir, "text")
	works(t, "generate", "--model", run, "--precision", "int8", "--prompt", "The ", "--tokens", "4", "--save", snapshot)
	works(t, "generate", "--model", run, "--precision", "int8", "--resume", snapshot, "--tokens", "4")
	refuses(t, "are held as int8, this model's are f32", "generate", "--model", run, "--resume", snapshot)
	refuses(t, "are held as int8, this model's are bf16", "generate", "--model", run, "--precision", "bf16", "--resume", snapshot)
	refuses(t, `--precision must be one of "f32","bf16","int8"`, "embed", text, "--model", run, "--precision", "int4")
	records := filepath.Join(dir, "r.jsonl")
	works(t, "embed", "--model", run, "--out", records, text)
	refuses(t, "name another file", "embed", "--model", run, "--precision", "int8", "--out", records, text)
}
