package task

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/rng"
)

// pretendMemory lets so many bytes be free.
func pretendMemory(t *testing.T, free int64) {
	t.Helper()
	was := freeMemory
	t.Cleanup(func() { freeMemory = was })
	freeMemory = func() int64 { return free }
	t.Setenv("TMPDIR", t.TempDir())
}

// A text that exceeds half of the memory is the same text, from a file and a folder.
func TestTextBeyondMemoryIsMapped(t *testing.T) {
	text := strings.Repeat("a line of text\n", 1000)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := write(t, map[string]string{
		"a": text, "b": "B\x00", "c": strings.Repeat("c", binaryHead) + "\x00", "d": "\xe9", "e": "\xff\xfeg\x00o\x00", "f": "",
	})
	zipped := filepath.Join(write(t, map[string]string{"z.gz": z.String()}), "z.gz")
	wide := filepath.Join(write(t, map[string]string{"w": "\xff\xfe" + strings.Repeat("w\x00", 9000)}), "w")
	for _, c := range []struct {
		path     string
		utf8Only bool
	}{{dir, false}, {dir, true}, {filepath.Join(dir, "a"), true}, {zipped, false}, {wide, false}} {
		want, err := ReadCorpus(c.path, c.utf8Only)
		if err != nil || want.IsMapped {
			t.Fatalf("%s: mapped %t, %v", c.path, want.IsMapped, err)
		}
		pretendMemory(t, 2*int64(len(text))-1)
		got, err := ReadCorpus(c.path, c.utf8Only)
		freeMemory = func() int64 { return 1 << 40 }
		if errors.Is(err, errors.ErrUnsupported) || err == nil && !got.IsMapped && c.path == wide {
			t.Skip("this system maps no files")
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Text, want.Text) || got.Files != want.Files || got.Skipped != want.Skipped || got.NotUTF8 != want.NotUTF8 || !got.IsMapped {
			t.Errorf("%s: %d bytes, %d files, %d skipped, %d not UTF-8, mapped %t; want %d, %d, %d, %d",
				c.path, len(got.Text), got.Files, got.Skipped, got.NotUTF8, got.IsMapped, len(want.Text), want.Files, want.Skipped, want.NotUTF8)
		}
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
			t.Errorf("%s: temporary files %v, %v", c.path, left, err)
		}
		a, err1 := NewText(want, token.NewByteVocabulary())
		b, err2 := NewText(got, token.NewByteVocabulary())
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		var x, y Sample
		if err := errors.Join(a.DrawWindow(&x, 50, rng.New(1), 3), b.DrawWindow(&y, 50, rng.New(1), 3)); err != nil {
			t.Fatal(err)
		}
		if a.Digest() != b.Digest() || x.Tokens[7] != y.Tokens[7] {
			t.Errorf("%s: samples differ", c.path)
		}
		if _, err := learnVocabulary(got, "bpe=300", token.KindBytes); err == nil || !strings.Contains(err.Error(), "exceeds half of the free memory") {
			t.Errorf("a vocabulary is learned: %v", err)
		}
	}
}

// What cannot be mapped is refused.
func TestTextBeyondMemoryIsRefused(t *testing.T) {
	dir := write(t, map[string]string{"binary": strings.Repeat("\x00", 100)})
	damaged := filepath.Join(write(t, map[string]string{"x.gz": "\x1f\x8b\x08" + strings.Repeat("x", 100)}), "x.gz")
	empty := filepath.Join(write(t, map[string]string{"e.gz": ""}), "e.gz")
	pretendMemory(t, 10)
	for path, want := range map[string]string{dir: "1 skipped as binary", damaged: "x.gz: ", empty: "is empty", "/nowhere": "/nowhere"} {
		if _, err := ReadCorpus(path, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v", path, err)
		}
	}
	text := filepath.Join(write(t, map[string]string{"t": strings.Repeat("text", 100)}), "t")
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if _, err := ReadCorpus(text, false); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("without a folder of temporary files the error is %v", err)
	}
}
