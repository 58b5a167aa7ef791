package texts

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/farfield-ml/farfield/internal/cli/env"
)

const gzipMagic = "\x1f\x8b"

// compressed returns content as gzip.
func compressed(t *testing.T, content string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// zstandard returns content as zstd.
func zstandard(t *testing.T, content string) string {
	t.Helper()
	z, err := zstd.NewWriter(nil, zstd.WithZeroFrames(true))
	if err != nil {
		t.Fatal(err)
	}
	return string(z.EncodeAll([]byte(content), nil))
}

func TestTextsAreInflatedAndLoseTheirMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	for content, want := range map[string]string{
		"":                          "",
		"a":                         "a",
		"\xef":                      "\xef",
		"\xef\xbb":                  "\xef\xbb",
		"\x1f":                      "\x1f",
		"\ufeff":                    "",
		"\ufeffone\n\ufefftwo":      "one\n\ufefftwo",
		compressed(t, "one\ntwo\n"): "one\ntwo\n",
		zstandard(t, "one\ntwo\n"):  "one\ntwo\n",
		zstandard(t, "\ufeffone"):   "one",
		zstandard(t, ""):            "",
		// A frame that is skipped, and two frames that follow each other.
		"\x50\x2a\x4d\x18\x01\x00\x00\x00x" + zstandard(t, "one") + zstandard(t, "two"): "onetwo",
		"\x28\xb5":                             "\x28\xb5",
		"P*":                                   "P*",
		compressed(t, "\ufeffone"):             "one",
		compressed(t, ""):                      "",
		compressed(t, strings.Repeat("é", 99)): strings.Repeat("é", 99),
	} {
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		e := &env.Env{Context: context.Background(), Stdin: strings.NewReader(content)}
		for _, name := range []string{path, "-"} {
			got, err := ReadText(e, name)
			if err != nil || string(got) != want {
				t.Errorf("%q from %s is %q, %v; want %q", content, name, got, err, want)
			}
		}
		in, err := OpenBytes(e, path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(in); err != nil || string(got) != content {
			t.Errorf("bytes of %q are %q, %v", content, got, err)
		}
		in.Close()
	}
	if err := os.WriteFile(path, []byte(compressed(t, "one\n"))[:20], 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := ReadText(&env.Env{Context: context.Background()}, path)
	var input env.InputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), path+": unexpected EOF") {
		t.Errorf("a file that ends early: %v", err)
	}
}

func TestZstdIsBoundedAndChecked(t *testing.T) {
	whole := zstandard(t, strings.Repeat("one two three ", 99))
	const window = "\x28\xb5\x2f\xfd\x00\x98\x09\x00\x00x" // a block of one byte, with a window of 512 MiB
	for want, content := range map[string]string{
		"zstd: unexpected EOF":               whole[:len(whole)-9],
		"zstd: CRC check failed":             whole[:len(whole)-1] + string(whole[len(whole)-1]^1),
		"zstd: window size exceed":           window,
		"at most 128 times as many are read": zstandard(t, strings.Repeat("\x00", 1<<23)),
	} {
		_, err := ReadText(&env.Env{Context: t.Context(), Stdin: strings.NewReader(content)}, "-")
		var input env.InputError
		if !errors.As(err, &input) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

func TestPartsOfLinesEndBetweenRunes(t *testing.T) {
	for text, want := range map[string][]string{
		"aééé\n":                  {"aé", "éé", "\n"},
		"abc\U0001f600":           {"abc", "\U0001f600"},
		"\xa9\xa9\xa9\xa9\xffabc": {"\xa9\xa9\xa9\xa9", "\xffabc"},
	} {
		lines := &LineSource{Reader: strings.NewReader(text), Longest: 4, WholeRunes: true}
		list, err := lines.NextLines(nil, 9, 0)
		var got []string
		for _, line := range list {
			got = append(got, string(line))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: parts are %q, %v", text, got, err)
		}
	}
}

// A caller may drop the error of the first Read, as a Peek does.
func TestDamagedGzipFailsAtEachRead(t *testing.T) {
	for _, content := range []string{gzipMagic, compressed(t, "one\n")[:6], gzipMagic + "no header of gzip"} {
		in, err := OpenText(&env.Env{Context: t.Context(), Stdin: strings.NewReader(content)}, "-")
		if err != nil {
			t.Fatal(err)
		}
		for read := range 3 {
			var input env.InputError
			if n, err := in.Read(make([]byte, 9)); n != 0 || !errors.As(err, &input) {
				t.Errorf("%q, read %d: %d bytes, %v", content, read, n, err)
			}
		}
	}
}

// A user at a terminal sees the answer to a line of one byte.
func TestTextsWaitForNoByteTheyDoNotNeed(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	in, err := OpenText(&env.Env{Context: t.Context(), Stdin: r}, "-")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(w, "\n") }()
	if n, err := in.Read(make([]byte, 9)); n != 1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestJoinedFilesKnowSizeAndPlaces(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i, content := range []string{"one\ntwo", "", "three\n\nfour\n"} {
		paths = append(paths, filepath.Join(dir, string(rune('a'+i))))
		if err := os.WriteFile(paths[i], []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	e := &env.Env{Context: context.Background(), Stdin: strings.NewReader("five\n")}
	in, err := OpenFiles(e, append(paths, "-")...)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(in)
	if err != nil || string(got) != "one\ntwo\nthree\n\nfour\nfive\n" {
		t.Errorf("read %q, %v", got, err)
	}
	for line, want := range []string{"", paths[0] + ": line 1", paths[0] + ": line 2", paths[2] + ": line 1", paths[2] + ": line 2", paths[2] + ": line 3", "line 1"} {
		if got := in.Place(int64(line)); line > 0 && got != want {
			t.Errorf("line %d is %s, want %s", line, got, want)
		}
	}
	if n := in.Size(); n != 0 {
		t.Errorf("with a pipe they have %d bytes", n)
	}
	if in, err = OpenFiles(e, paths...); err != nil || in.Size() != 19 {
		t.Errorf("they have %d bytes, %v", in.Size(), err)
	}
	in.Close()
	if _, err := OpenFiles(e, paths[0], paths[0]+"x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing second file: %v", err)
	}
}
