package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"
)

// utf16Text returns a text in UTF-16 with a byte order mark.
func utf16Text(text string) string {
	var b []byte
	for _, u := range utf16.Encode([]rune("\ufeff" + text)) {
		b = binary.BigEndian.AppendUint16(b, u)
	}
	return string(b)
}

// Every verb that reads records reads them as lines, as a JSON array and in UTF-16, and every verb
// that reads lines reads them in UTF-16.
func TestVerbsReadTheFormsOfTexts(t *testing.T) {
	t.Parallel()
	const lines = "{\"text\":\"one <two>\"}\n{\"text\":\"dré\"}\n"
	const array = " [ {\"text\":\"one <two>\"},\n{\"text\":\"dré\"} ]\n"
	dir, scorer := t.TempDir(), scorerOf(t, "fastmax")
	data := filepath.Join(dir, "data.csv")
	wrote(t, data, "text,label\n"+strings.Repeat("aaa,<a>\nbbb,<b>\n", 30))
	labels := filepath.Join(dir, "labels")
	works(t, "train", "--task", "file", "--data", data, "--task-set", "length=8", "--out", labels, "--width", "8", "--heads", "2", "--layers", "1", "--batch", "8", "--steps", "2", "--quiet")
	path := filepath.Join(dir, "in")
	for _, args := range [][]string{
		{"embed", "--model", tinyModel, path}, {"embed", "--model", tinyModel, "--jsonl", path},
		{"score", "--model", scorer, "--jsonl", path}, {"predict", "--model", labels, "--jsonl", path}, {"tokenize", "--model", tinyModel, "--jsonl", path},
	} {
		wrote(t, path, lines)
		want := works(t, args...)
		if strings.Contains(want, `\u003c`) {
			t.Errorf("%s escapes what needs none: %s", args[0], want)
		}
		for _, form := range []string{array, utf16Text(lines), utf16Text(array), utf16Text(array)[2:]} {
			wrote(t, path, form)
			if args[0] == "embed" && len(args) == 4 && form[0] == 0 { // which has no mark that tells records
				continue
			}
			if got := works(t, args...); got != want {
				t.Errorf("%s of %q prints %s, want %s", args[0], form, got, want)
			}
		}
		wrote(t, path, `[{"text":"one"},{"text":7}]`)
		refusesAfter(t, "record 2", append(args, "--quiet")...)
		wrote(t, path, `[{"text":"one"}`)
		refusesAfter(t, "the JSON array has no end", append(args, "--quiet")...)
	}
	for _, args := range [][]string{{"embed", "--model", tinyModel, path}, {"score", "--model", scorer, "--lines", path}, {"predict", "--model", labels, path}, {"tokenize", "--model", tinyModel, path}} {
		wrote(t, path, "one\ndré\n")
		want := works(t, args...)
		wrote(t, path, utf16Text("one\ndré\n"))
		if got := works(t, args...); got != want {
			t.Errorf("%s of UTF-16 prints %s, want %s", args[0], got, want)
		}
		wrote(t, path, "\xff\xfe\x00\x00o\x00\x00\x00")
		refusesAfter(t, "is UTF-32, which is not read", args...)
	}
	if err := os.Mkdir(filepath.Join(dir, "wheel"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "wheel", "model"), os.DirFS(tinyModel)); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"embed", "inspect"} {
		args := []string{verb, filepath.Join(dir, "wheel")}
		if verb == "embed" {
			args = []string{verb, "--model", filepath.Join(dir, "wheel"), path}
		}
		refuses(t, filepath.Join("wheel", "model")+" has one", args...)
	}
	works(t, "maps", "--model", labels, "--text", "abba", "--json")
}
