package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/problem"
)

// evil is a name that clears the screen, forges lines and turns text around.
const evil = "q\x1b[2J\u009b31m\nfarfield: all is well\nkind  forged\n\u202etxt"

func TestNamesInFilesArePrintedEscaped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one := problem.NewArray("x", []float32{1}, []int{1})
	one.Name = evil
	files := []string{
		written(t, "evil.npz", one),
		written(t, "evil.safetensors", one),
	}
	npy := filepath.Join(dir, strings.ReplaceAll(evil, "/", "")+".npy")
	var b bytes.Buffer
	if err := array.WriteNPY(&b, one); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(npy, b.Bytes(), 0o666); err != nil {
		t.Skip(err)
	}
	for _, file := range append(files, npy) {
		for _, args := range [][]string{{"inspect", file}, {"inspect", "--json", file}} {
			out := works(t, args...)
			safe(t, out)
			if strings.Contains(args[1], "json") != strings.Contains(out, `"name"`) && !strings.Contains(out, "x1b[2J") && !strings.Contains(out, `u001b[2J`) {
				t.Errorf("%v prints %s", args, out)
			}
		}
	}
	out := filepath.Join(dir, "out.npz")
	for _, args := range [][]string{
		{"attend", "--mechanism", "fastmax", files[0], out},
		{"attend", "--mechanism", "fastmax", files[1], out},
		{"inspect", filepath.Join(dir, evil)},
		{"attend", "--mechanism", evil, files[0], out},
		{"data", "verify", evil},
	} {
		status, printed, errs := command(t, args...)
		if status == 0 || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: status %d, %q", args, status, errs)
		}
		safe(t, printed+errs)
	}
	status, _, errs := command(t, "attend", "--mechanism", "fastmax",
		written(t, "more.npz", problem.NewArray("q", []float32{1}, []int{1, 1}), problem.NewArray("k", []float32{1}, []int{1, 1}), problem.NewArray("v", []float32{1}, []int{1, 1}), one), out)
	if status != 0 || !strings.Contains(errs, "not used: q\\x1b[2J") {
		t.Errorf("status %d, %q", status, errs)
	}
	safe(t, errs)
}

func TestConfigurationsArePrintedEscaped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, key := range []string{"task", "data", evil} {
		text, err := json.Marshal(map[string]any{"version": 1, key: evil})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o666); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"inspect", dir}, {"inspect", "--json", dir}, {"generate", "--model", dir}} {
			_, out, errs := command(t, args...)
			safe(t, out+errs)
		}
	}
}

// safe reports what would control a terminal in several lines.
func safe(t *testing.T, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && display.Escape(string(r)) != string(r) }); i >= 0 {
		t.Errorf("%q is printed as it is", text[i:min(len(text), i+20)])
	}
	if strings.Contains(text, "\nfarfield: all is well") || strings.Contains(text, "\nkind  forged") {
		t.Errorf("a line is forged in %q", text)
	}
}
