package main

import (
	"path/filepath"
	"slices"
	"testing"
)

// Verbs put another function into published folders and runs, or refuse it by name.
func TestExchange(t *testing.T) {
	run, text, dir := trained(t), textFile(t), t.TempDir()
	for _, args := range [][]string{
		{"embed", text, "--model", tinyModel},
		{"maps", "--text", "the cat sat", "--model", tinyModel},
		{"embed", text, "--model", run},
		{"score", text, "--model", run},
		{"eval", "--model", run},
		{"generate", "--tokens", "8", "--temperature", "0", "--model", run},
		{"maps", "--text", "a text", "--model", run},
	} {
		of := args[len(args)-1]
		with := func(more ...string) []string { return slices.Concat(args, more) }
		own := works(t, args...)
		if of == tinyModel {
			if got := works(t, with("--mechanism", "softmax")...); got != own {
				t.Errorf("%s with softmax prints\n%s\nwith its own function\n%s", args[0], got, own)
			}
		}
		if got := works(t, with("--mechanism", "local", "--set", "span=2", "--layers", "0")...); got == own && args[0] != "generate" {
			t.Errorf("%s of %s: a window of two keys changes nothing", args[0], of)
		}
		refuses(t, "E and F", with("--mechanism", "linformer")...)
		refuses(t, "owns its projections", with("--mechanism", "crate")...)
		refuses(t, "77", with("--mechanism", "local", "--layers", "77")...)
		refuses(t, "--set: needs --mechanism", with("--set", "span=2")...)
	}
	vectors := filepath.Join(dir, "v.npy")
	works(t, "embed", "--model", tinyModel, "--out", vectors, text)
	works(t, "search", "--model", tinyModel, "--mechanism", "fastmax", vectors, "the cat")
	refuses(t, "--mechanism: needs --model", "search", "--mechanism", "fastmax", vectors, "--queries", vectors)
	records := filepath.Join(dir, "r.jsonl")
	works(t, "embed", "--model", tinyModel, "--out", records, text)
	refuses(t, "name another file", "embed", "--model", tinyModel, "--mechanism", "fastmax", "--out", records, text)
	refuses(t, "E and F", "serve", "--model", tinyModel, "--mechanism", "linformer", "--addr", "127.0.0.1:0")
	refuses(t, "E and F", "predict", "--model", tinyModel, "--mechanism", "linformer", text)
	refuses(t, "E and F", "forward", "--model", tinyModel, "--mechanism", "linformer", text, filepath.Join(dir, "out.npz"))
}
