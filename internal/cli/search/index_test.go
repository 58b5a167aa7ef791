package search

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/embed"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/vectors"
)

const model = "../../../pretrained/testdata/tiny"

// run runs a command. It returns what it printed and noted.
func run(t *testing.T, ctx context.Context, c Command) (printed, noted string, err error) {
	t.Helper()
	var out, notes bytes.Buffer
	c.Top, c.Model = 2, model
	err = c.Run(&env.Env{Context: ctx, Stdout: &out, Stderr: &notes})
	return out.String(), notes.String(), err
}

// write writes lines, and returns the path.
func write(t *testing.T, path string, lines ...string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// read returns the bytes of a file.
func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestIndexEmbedsOnlyTextsThatChanged(t *testing.T) {
	dir := t.TempDir()
	texts := filepath.Join(dir, "texts")
	index := filepath.Join(dir, "index")
	first := []string{"the cat sat", "", "a dog ran", "the cat sat"}
	for step, c := range []struct {
		lines []string
		note  string
	}{
		{first, "4 texts, 3 of them embedded now"},
		{first, ""},
		{[]string{"a dog ran", "the cat sat"}, "2 texts, 0 of them embedded now"},
		{append(first, "a mat"), "5 texts, 2 of them embedded now"},
	} {
		write(t, texts, c.lines...)
		printed, noted, err := run(t, t.Context(), Command{Vectors: texts, Index: index, Query: []string{"a dog ran"}})
		if err != nil || !strings.Contains(noted, c.note) || c.note == "" && noted != "" {
			t.Fatalf("step %d: %q, %v; want %q", step, noted, err, c.note)
		}
		// The vectors are those of embed, and a new index has the same bytes.
		array := filepath.Join(dir, "vectors.npy")
		e := embed.Command{Model: model, Files: []string{texts}}
		e.Filter.Out = array
		var notes bytes.Buffer
		if err := e.Run(&env.Env{Context: t.Context(), Stderr: &notes}); err != nil {
			t.Fatal(err)
		}
		want, _, err := run(t, t.Context(), Command{Vectors: array, Texts: texts, Query: []string{"a dog ran"}})
		if err != nil || printed != want || !strings.HasSuffix(printed, "\n") {
			t.Errorf("step %d: printed %q, vectors of embed give %q, %v", step, printed, want, err)
		}
		other := filepath.Join(dir, "other")
		if printed, _, err := run(t, t.Context(), Command{Vectors: texts, Index: other}); err != nil || printed != "" {
			t.Fatalf("printed %q, %v", printed, err)
		}
		if !bytes.Equal(read(t, index), read(t, other)) {
			t.Errorf("step %d: a new index has other bytes", step)
		}
		os.Remove(other)
	}
}

func TestIndexOfOtherSettingsIsRefused(t *testing.T) {
	dir := t.TempDir()
	texts, index := write(t, filepath.Join(dir, "texts"), "the cat sat"), filepath.Join(dir, "index")
	if _, _, err := run(t, t.Context(), Command{Vectors: texts, Index: index}); err != nil {
		t.Fatal(err)
	}
	whole := read(t, index)
	for want, c := range map[string]Command{
		`made with --dimensions "8", this command has --dimensions "4"`: {Dimensions: 4},
		`no other setting, this command has --precision "int8"`:         {Opening: flags.Opening{Precision: flags.Precision{Precision: "int8"}}},
		"--index: needs a file of texts, which is read again":           {Vectors: "-"},
		"--texts: with --index the texts are":                           {Texts: texts},
		"--index: " + texts + ": is what is read, and would be lost":    {Index: texts},
		"notes: not a safetensors file":                                 {Index: write(t, filepath.Join(dir, "notes"), "these are notes")},
		filepath.Join(dir, "none") + ": no such file or directory":      {Vectors: filepath.Join(dir, "none")},
		"holds no text": {Vectors: os.DevNull},
	} {
		if c.Vectors == "" {
			c.Vectors = texts
		}
		if c.Index == "" {
			c.Index = index
		}
		_, _, err := run(t, t.Context(), c)
		var input env.InputError
		if !errors.As(err, &input) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
	if !bytes.Equal(read(t, index), whole) {
		t.Error("a refused command changed the index")
	}
}

// countdown is a context that ends after some calls of Err.
type countdown struct {
	context.Context
	left atomic.Int64
}

func (c *countdown) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

func TestInterruptedIndexGoesOn(t *testing.T) {
	dir := t.TempDir()
	var lines []string
	for i := range 3*batchTexts - 5 {
		lines = append(lines, fmt.Sprint("the cat ", i%9, " sat ", i))
	}
	texts := write(t, filepath.Join(dir, "texts"), lines...)
	index, whole := filepath.Join(dir, "index"), filepath.Join(dir, "whole")
	ctx := &countdown{Context: t.Context()}
	if _, _, err := run(t, t.Context(), Command{Vectors: texts, Index: whole}); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for calls := int64(len(lines)); ; calls += batchTexts {
		ctx.left.Store(calls)
		_, _, err := run(t, ctx, Command{Vectors: texts, Index: index})
		if err == nil {
			break
		}
		var stopped env.Interruption
		if !errors.As(err, &stopped) {
			t.Fatal(err)
		}
		x, err := vectors.OpenIndex(index)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if x.Close(); len(x.Digests) < kept {
			t.Fatalf("it has %d vectors, before it had %d", len(x.Digests), kept)
		}
		if kept = len(x.Digests); !strings.Contains(stopped.Text, fmt.Sprintf("has %d of %d vectors", kept, len(lines))) {
			t.Errorf("it has %d vectors: %s", kept, stopped.Text)
		}
	}
	if kept == 0 || kept == len(lines) {
		t.Errorf("%d vectors were kept", kept)
	}
	if !bytes.Equal(read(t, index), read(t, whole)) {
		t.Error("an index that was interrupted has other bytes")
	}
}
