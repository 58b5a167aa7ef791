package infile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOpenReadsRegularFilesAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, want := range [][]byte{{}, []byte("text"), bytes.Repeat([]byte("attention "), 50_000)} {
		if err := os.WriteFile(path, want, 0o666); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, want %d; %v", len(got), len(want), err)
		}
		s, err := OpenStream(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := s.(*os.File); !ok {
			t.Errorf("the stream of a file is a %T", s)
		}
		s.Close()
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), dir+": is a folder; a regular file is needed") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := OpenStream(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("the stream of a folder: %v", err)
	}
	if _, err := ReadFile(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// waiting lets a test cancel a waiting read.
type waiting struct{ read chan struct{} }

func (w waiting) Read([]byte) (int, error) {
	close(w.read)
	select {}
}

func TestReaderEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := waiting{make(chan struct{})}
	go func() { <-w.read; cancel() }()
	r := NewReader(ctx, w)
	for range 2 {
		if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
}

func TestReaderPassesAllOn(t *testing.T) {
	want := bytes.Repeat([]byte("key value "), 20_000)
	got, err := io.ReadAll(io.MultiReader(io.LimitReader(NewReader(t.Context(), bytes.NewReader(want)), 7), strings.NewReader("")))
	if err != nil || string(got) != "key val" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err = io.ReadAll(NewReader(t.Context(), io.MultiReader(bytes.NewReader(want)))); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
}

func TestReadJSONRefusesLongAndDamagedFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.json")
	for content, want := range map[string]string{
		"[1,2]":    "",
		"[1,2]   ": path + ": is longer than 7 bytes",
		"[1,2":     path + ": unexpected end of JSON input",
		"[1,2]3":   path + ": invalid character '3' after top-level value",
	} {
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		var list []int
		err := ReadJSON(path, 7, &list)
		if want == "" && (err != nil || !slices.Equal(list, []int{1, 2})) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%q: %v, %v, want %q", content, list, err, want)
		}
	}
	if err := ReadJSON(path+"x", 7, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}
