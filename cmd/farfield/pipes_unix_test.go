//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farfield-ml/farfield/internal/cli/env"
)

// pipe makes a named pipe with no writer.
func pipe(t *testing.T, path string) string {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	return path
}

func TestPipesInPlaceOfFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	npz, npy, tensors := pipe(t, filepath.Join(dir, "a.npz")), pipe(t, filepath.Join(dir, "q.npy")), pipe(t, filepath.Join(dir, "a.safetensors"))
	jsonl := pipe(t, filepath.Join(dir, "a.jsonl"))
	out := filepath.Join(dir, "out.npz")
	text := textFile(t)
	for _, c := range [][]string{
		{"inspect", npz}, {"inspect", npy}, {"inspect", tensors},
		{"attend", "--mechanism", "fastmax", npz, out},
		{"attend", "--mechanism", "fastmax", tensors, out},
		{"attend", "--mechanism", "fastmax", "--stream", tensors, filepath.Join(dir, "o.npy")},
		{"attend", "--mechanism", "fastmax", "--stream", dir, filepath.Join(dir, "o.npy")},
		{"maps", "--mechanism", "fastmax", npz},
		{"train", "--task", "file", "--data", jsonl, "--out", filepath.Join(dir, "new")},
		{"train", "--data", text, "--config", jsonl, "--out", filepath.Join(dir, "new")},
	} {
		refuses(t, "is a pipe; a regular file is needed", c...)
	}
}

func TestPipesInARunAreRefused(t *testing.T) {
	dir := trained(t)
	last, err := filepath.Glob(filepath.Join(dir, "ckpt", "*0008"))
	if err != nil || len(last) != 1 {
		t.Fatal(last, err)
	}
	for _, c := range []struct {
		file string
		verb []string
	}{
		{filepath.Join(dir, "ckpt", "latest"), []string{"generate", "--model", dir}},
		{filepath.Join(last[0], "checkpoint.json"), []string{"generate", "--model", last[0]}},
		{filepath.Join(last[0], "vocab.json"), []string{"eval", "--model", last[0]}},
		{filepath.Join(dir, "config.json"), []string{"inspect", dir}},
	} {
		kept, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(c.file); err != nil {
			t.Fatal(err)
		}
		pipe(t, c.file)
		if status, _, errs := command(t, c.verb...); status != env.StatusInput || !strings.Contains(errs, c.file) {
			t.Errorf("%v with %s a pipe: status %d, %s", c.verb, c.file, status, errs)
		}
		os.Remove(c.file)
		if err := os.WriteFile(c.file, kept, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStreamsAreReadFromPipes(t *testing.T) {
	dir, model := t.TempDir(), trained(t)
	feeds := 0
	feed := func(content []byte) string {
		feeds++
		path := pipe(t, filepath.Join(dir, fmt.Sprint("pipe", feeds)))
		go func() {
			_ = os.WriteFile(path, content, 0)
			os.Remove(path)
		}()
		return path
	}
	raw := bytes.Repeat([]byte{0, 0, 128, 63}, 3*8*40)
	from := filepath.Join(dir, "tokens")
	if err := os.WriteFile(from, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	attend := []string{"attend", "--mechanism", "fastmax", "--causal", "--stream", "--raw", "8,1"}
	a, b := filepath.Join(dir, "a.raw"), filepath.Join(dir, "b.raw")
	works(t, append(attend, from, a)...)
	works(t, append(attend, feed(raw), b)...)
	want, _ := os.ReadFile(a)
	if got, err := os.ReadFile(b); err != nil || len(got) == 0 || !bytes.Equal(got, want) {
		t.Errorf("%d bytes from a pipe, %d from a file; %v", len(got), len(want), err)
	}
	generate := []string{"generate", "--model", model, "--tokens", "20"}
	if got, want := works(t, append(generate, "--prompt-file", feed([]byte("12 + 3")))...), works(t, append(generate, "--prompt", "12 + 3")...); got != want {
		t.Errorf("the prompt from a pipe gives %q, want %q", got, want)
	}
	text, err := os.ReadFile(textFile(t))
	if err != nil {
		t.Fatal(err)
	}
	works(t, "eval", "--model", model, "--data", feed(text))
}

// A pipe is read once: the same text in a file continues the run.
func TestRunOfAPipeContinuesWithAFile(t *testing.T) {
	dir, text := filepath.Join(t.TempDir(), "run"), textFile(t)
	path := pipe(t, filepath.Join(t.TempDir(), "pipe"))
	go func() { _ = os.WriteFile(path, []byte(has(t, text)), 0) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := &stopper{text: "step 4 of 8", stop: cancel}
	status := farfield().RunVerb(littleRun(path, dir), &env.Env{Context: ctx, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: errs})
	if want := "; farfield train --resume --out " + dir + " --data FILE continues\n"; status != env.StatusInterrupted || !strings.HasSuffix(errs.String(), want) {
		t.Fatalf("status %d, stderr\n%s", status, errs)
	}
	works(t, "train", "--resume", "--out", dir, "--data", text)
}

// A run of a stranger may name a pipe or a device as its data.
func TestPipesThatARunNamesAreRefused(t *testing.T) {
	dir, text := filepath.Join(t.TempDir(), "run"), textFile(t)
	works(t, littleRun(text, dir)...)
	if err := os.Remove(text); err != nil {
		t.Fatal(err)
	}
	pipe(t, text)
	config := filepath.Join(dir, "config.json")
	for _, c := range [][]string{
		{"eval", "--model", dir},
		{"train", "--resume", "--out", dir, "--steps", "9"},
		{"train", "--config", config, "--out", filepath.Join(t.TempDir(), "new")},
	} {
		refuses(t, config+": data: "+text+" is a pipe; a regular file or a folder is needed", c...)
	}
}

func TestWaitsForPipesAreInterrupted(t *testing.T) {
	dir, model := t.TempDir(), trained(t)
	path := pipe(t, filepath.Join(dir, "pipe"))
	for _, args := range [][]string{
		{"attend", "--mechanism", "fastmax", "--causal", "--stream", "--raw", "8,1", path, filepath.Join(dir, "o.raw")},
		{"attend", "--model", model, "--stream", path, filepath.Join(dir, "o.npy")},
		{"generate", "--model", model, "--prompt-file", path},
		{"eval", "--model", model, "--data", path},
		{"train", "--data", path, "--out", filepath.Join(dir, "run")},
		{"maps", "--model", model, "--text-file", path},
		{"score", "--model", model, path},
		{"embed", "--model", model, "--jsonl", path},
		{"generate", "--model", model, "--prompt-file", "-"}, // of a silent standard input
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		silent, writer := io.Pipe()
		var out, errs bytes.Buffer
		status := farfield().RunVerb(args, &env.Env{Context: ctx, Stdin: silent, Stdout: &out, Stderr: &errs})
		if status != env.StatusInterrupted {
			t.Errorf("%v: status %d, %s", args, status, errs.String())
		}
		writer.Close()
	}
}

func TestWritesToStalledPipesAreInterrupted(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var errs bytes.Buffer
	done := make(chan int, 1)
	go func() {
		args := strings.Fields("attend --mechanism fastmax --causal --synthetic 50000,8,1 -")
		done <- farfield().RunVerb(args, &env.Env{Context: ctx, Stdin: strings.NewReader(""), Stdout: w, Stderr: &errs})
	}()
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case status := <-done:
		if status != env.StatusInterrupted {
			t.Errorf("status %d, %s", status, errs.String())
		}
	case <-time.After(20 * time.Second):
		t.Error("a verb waits for a pipe that nothing reads")
	}
}

// TestExportRefusesAPipeBesideTheModel: what is refused ends with 2, before anything is written.
func TestExportRefusesAPipeBesideTheModel(t *testing.T) {
	for _, name := range []string{"generation_config.json", "merges.txt", "1_Pooling/config.json"} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(tinyModel)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "modules.json"), []byte(`[{"path":"1_Pooling","type":"Pooling"}]`), 0o644); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "out")
		refuses(t, name, "export", "--model", dir, "--out", out)
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: the folder is written", name)
		}
	}
}
