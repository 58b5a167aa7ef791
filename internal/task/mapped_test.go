package task

import (
	"bytes"
	"compress/gzip"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/infile"
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
		"g": "\xff\xfeg", "h": "\xff\xfeh\x00\x00\xd8", "i": strings.Repeat("é", binaryHead), "j": strings.Repeat("é", binaryHead) + "\xc3",
	})
	zipped := filepath.Join(write(t, map[string]string{"z.gz": z.String()}), "z.gz")
	wide := filepath.Join(write(t, map[string]string{"w": "\xff\xfe" + strings.Repeat("w\x00", 16000)}), "w")
	sound := filepath.Join(write(t, map[string]string{"s": "\xff\xfe" + strings.Repeat("w\x00", 16000) + "\xff"}), "s") // no UTF-16
	for _, c := range []struct {
		path     string
		utf8Only bool
	}{{dir, false}, {dir, true}, {filepath.Join(dir, "a"), true}, {zipped, false}, {wide, false}, {sound, false}} {
		want, err := ReadCorpus(c.path, c.utf8Only, false)
		if err != nil || want.IsMapped {
			t.Fatalf("%s: mapped %t, %v", c.path, want.IsMapped, err)
		}
		pretendMemory(t, 2*int64(len(text))-1)
		got, err := ReadCorpus(c.path, c.utf8Only, false)
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
		if err := got.Close(); err != nil || got.Text != nil {
			t.Errorf("closing a text: %v", err)
		}
	}
}

// A file of a folder is copied in pieces, and dropped where it turns out not to be text.
func TestMembersBeyondMemoryAreCopiedInPieces(t *testing.T) {
	const size = 16 << 20
	dir := write(t, map[string]string{"a": strings.Repeat("a", size), "b": strings.Repeat("b", size) + "\xc3", "c": "c"})
	pretendMemory(t, size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := ReadCorpus(dir, true, false)
	runtime.ReadMemStats(&after)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this system maps no files")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.Text) != size+1 || c.Text[size] != 'c' || !c.IsMapped || c.NotUTF8 != 1 {
		t.Errorf("%d bytes, mapped %t, %d files not UTF-8", len(c.Text), c.IsMapped, c.NotUTF8)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > size/2 {
		t.Errorf("%d bytes are taken for files of %d", got, size)
	}
}

func TestUTF8WriterIsValid(t *testing.T) {
	for _, text := range []string{"", "a", "é€𝄞", "𝄞x\xc3", "é\xff", "\xe2\x82x", "\x82", "\xed\xa0\x80", "\xf0\x9d\x84", "\xc3é"} {
		for step := 1; step <= len(text); step++ {
			var b bytes.Buffer
			u := &utf8Writer{w: &b}
			var err error
			for piece := range slices.Chunk([]byte(text), step) {
				if _, err = u.Write(piece); err != nil {
					break
				}
			}
			if valid := err == nil && u.n == 0; valid != utf8.ValidString(text) || valid && b.String() != text {
				t.Errorf("%q in pieces of %d: valid %t", text, step, valid)
			}
		}
	}
}

// A text that fits in memory is in memory, whatever lies beside it.
func TestTextBesideLargeFilesIsInMemory(t *testing.T) {
	dir := write(t, map[string]string{"a": "text", "b": strings.Repeat("\xe9", 1000), "c": strings.Repeat("\x00", 1000)})
	pretendMemory(t, 100)
	c, err := ReadCorpus(dir, true, false)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this system copies no texts")
	}
	if err != nil || string(c.Text) != "text" || c.IsMapped || c.Skipped != 2 || c.NotUTF8 != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A text that its copy has no room for may take all of the memory.
func TestTextWithoutCopyIsInMemory(t *testing.T) {
	text := strings.Repeat("text", 100)
	dir := write(t, map[string]string{"t": text})
	pretendMemory(t, 500)
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	for _, path := range []string{dir, filepath.Join(dir, "t")} {
		if c, err := ReadCorpus(path, true, false); err != nil || string(c.Text) != text || c.IsMapped {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := ReadCorpus(path, true, true); err == nil || !strings.Contains(err.Error(), "need it whole") {
			t.Errorf("%s: for a tokenizer the error is %v", path, err)
		}
	}
}

// What the file system does not hold is refused before it is copied.
func TestCopyBeyondDiskIsRefused(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if infile.FreeDisk(f) == math.MaxInt64 {
		t.Skip("the system does not tell the free bytes of the disk")
	}
	w := &textCopy{f: f}
	if err := w.checkDisk(0); err != nil {
		t.Error(err)
	}
	if err := w.checkDisk(math.MaxInt64); !errors.As(err, new(*copyError)) {
		t.Errorf("error is %v", err)
	}
}

// Before a compressed text exceeds half of the memory, it is not copied.
func TestTextOfUnknownLengthIsInMemory(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	text := strings.Repeat("a line of text\n", 10000)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(write(t, map[string]string{"z.gz": z.String()}), "z.gz")
	pretendMemory(t, 2*int64(len(text)))
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if c, err := ReadCorpus(path, false, false); err != nil || string(c.Text) != text {
		t.Error(err)
	}
}

// What cannot be mapped is refused.
func TestTextBeyondMemoryIsRefused(t *testing.T) {
	dir := write(t, map[string]string{"binary": strings.Repeat("\x00", 100)})
	damaged := filepath.Join(write(t, map[string]string{"x.gz": "\x1f\x8b\x08" + strings.Repeat("x", 100)}), "x.gz")
	empty := filepath.Join(write(t, map[string]string{"e.gz": ""}), "e.gz")
	pretendMemory(t, 10)
	for path, want := range map[string]string{dir: "1 skipped as binary", damaged: "x.gz: ", empty: "is empty", "/nowhere": "/nowhere"} {
		if _, err := ReadCorpus(path, false, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v", path, err)
		}
	}
	text := filepath.Join(write(t, map[string]string{"t": strings.Repeat("text", 100)}), "t")
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if _, err := ReadCorpus(text, false, false); err == nil || !strings.Contains(err.Error(), "none (TMPDIR)") || !strings.Contains(err.Error(), "400 bytes of memory") {
		t.Errorf("without a folder of temporary files the error is %v", err)
	}
}
