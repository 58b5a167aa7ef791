package infile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A file that becomes shorter while it is mapped gives an error, by reads of Go and of assembly.
func TestMappedFileBecomesShorter(t *testing.T) {
	content := bytes.Repeat([]byte("abcdefgh"), 1<<13)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := Map(f, int64(len(content)))
	if m == nil {
		t.Skip("this system maps no files")
	}
	read := func(at, n int) (got []byte, err error) {
		err = m.Visit(int64(at), int64(n), func(b []byte) { got = bytes.Clone(b) })
		return got, err
	}
	if got, err := read(5, 60000); err != nil || !bytes.Equal(got, content[5:60005]) {
		t.Fatalf("%d bytes: %v", len(got), err)
	}
	for _, c := range [][2]int{{len(content), 1}, {len(content) + 1, 0}, {-1, 1}, {0, -1}, {1, len(content)}} {
		if _, err := read(c[0], c[1]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes from %d: %v", c[1], c[0], err)
		}
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if got, err := read(0, 100); err != nil || !bytes.Equal(got, content[:100]) {
		t.Errorf("what is left is read as %q: %v", got, err)
	}
	if _, err := read(40000, 9000); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("what is gone is copied: %v", err)
	}
	sum := 0
	if err := m.Visit(40000, 8, func(b []byte) { sum += int(b[3]) }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("what is gone is read: %v", err)
	}
	defer func() {
		if recover() != "own" {
			t.Error("a panic of another kind is lost")
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	m.Visit(0, 1, func([]byte) { panic("own") })
}
