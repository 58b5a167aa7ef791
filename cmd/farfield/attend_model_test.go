package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/infile"
)

// A layer of a model over a text that is read from a file and from a pipe, and what
// is refused.
func TestAttendModel(t *testing.T) {
	dir := trained(t, "--mechanism", "fastmax")
	text := textFile(t)
	to := t.TempDir()
	array, numbers := filepath.Join(to, "o.npy"), filepath.Join(to, "o.raw")
	works(t, "attend", "--model", dir, "--layer", "0", "--memory", "8MiB", text, array)
	given, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	e := &env.Env{Context: context.Background(), Stdin: bytes.NewReader(given), Stdout: &out, Stderr: &errs}
	if code := farfield().RunVerb([]string{"attend", "--model", dir, "--layer", "0", "-", numbers}, e); code != 0 {
		t.Fatal(errs.String())
	}
	a := npy(t, array)
	if len(a.Shape) != 3 || a.Shape[1] != len(given) {
		t.Fatalf("shape is %v of %d bytes", a.Shape, len(given))
	}
	x, err := a.Float32()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(numbers)
	if err != nil {
		t.Fatal(err)
	}
	h, n, d := a.Shape[0], a.Shape[1], a.Shape[2]
	for _, i := range []int{0, 1, n / 2, n - 1} {
		var row []float32 // of all heads
		for head := range h {
			row = append(row, x[(head*n+i)*d:][:d]...)
		}
		if !slices.Equal(file32(row), raw[4*i*h*d:][:4*h*d]) {
			t.Errorf("token %d differs between a file and a pipe", i)
		}
	}

	// A text is the same in gzip and after a byte order mark.
	marked, zipped := filepath.Join(to, "marked.txt"), filepath.Join(to, "text.gz")
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(given)
	z.Close()
	if err := errors.Join(os.WriteFile(marked, append([]byte(infile.ByteOrderMark), given...), 0o666), os.WriteFile(zipped, b.Bytes(), 0o666)); err != nil {
		t.Fatal(err)
	}
	for path, out := range map[string]string{marked: filepath.Join(to, "marked.npy"), zipped: filepath.Join(to, "zipped.raw")} {
		works(t, "attend", "--model", dir, "--layer", "0", path, out)
		same := array
		if filepath.Ext(out) == ".raw" {
			same = numbers
		}
		if got, want := contents(t, out), contents(t, same); got != want {
			t.Errorf("%s: %d bytes of other numbers than %s", out, len(got), same)
		}
	}

	works(t, "attend", "--model", dir, "--layer", "1", text, array) // has the near field alone

	for want, args := range map[string][]string{
		"layer: 9 is not from 0 to":       {"--model", dir, "--layer", "9", text},
		"--check: not with --model":       {"--model", dir, "--check", "3", text, array},
		"--set: not with --model":         {"--model", dir, "--set", "scale=1", text},
		"--layer: needs --stream":         {"--mechanism", "fastmax", "--layer", "1", array, array},
		"needs .npy, .safetensors or":     {"--model", dir, text, filepath.Join(to, "o.npz")},
		"missing flags: --mechanism=NAME": {text, array},
	} {
		refuses(t, want, append([]string{"attend"}, args...)...)
	}
}
