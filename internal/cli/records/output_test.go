package records

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/texts"
)

// filterFiles runs a filter that adds the length of each text, and returns what it prints.
func filterFiles(t *testing.T, f Filter, files ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	e := &env.Env{Context: context.Background(), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out}
	in, err := texts.OpenFiles(e, files...)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	err = f.FilterFile(e, in, func(text string) ([]Field, error) { return []Field{{"length", len(text)}}, nil })
	return out.String(), err
}

// writeFile writes a file of the test.
func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

// checkFile reports another content.
func checkFile(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s: holds %q, %v; want %q", path, got, err, want)
	}
}

// checkRefused reports anything but an input error with want.
func checkRefused(t *testing.T, err error, want string) {
	t.Helper()
	var input env.InputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

const (
	twoRecords = "{\"text\":\"one\"}\n{\"text\":\"three\"}\n"
	twoResults = "{\"text\":\"one\",\"length\":3}\n{\"text\":\"three\",\"length\":5}\n"
)

func TestRefusedOutputKeepsItsBytes(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out")
	writeFile(t, in, twoRecords)
	for _, content := range []string{"my notes\nmy last line", "my only line", "\n", twoResults, twoResults[:30]} {
		writeFile(t, out, content)
		_, err := filterFiles(t, Filter{Out: out}, in)
		checkRefused(t, err, "bytes of no known command")
		checkFile(t, out, content)
	}
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	if _, err := filterFiles(t, Filter{Out: out}, in); err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{
		"my notes\nmy last line":                     "line 1 is not of the record in " + in + ": line 1",
		twoResults[:27] + "my last line":             "line 2 is not of the record in " + in + ": line 2",
		twoResults + "my last line":                  "has 3 records, the input 2",
		strings.Replace(twoResults, "one", "two", 1): "line 1 is not of the record",
	} {
		writeFile(t, out, content)
		_, err := filterFiles(t, Filter{Out: out}, in)
		checkRefused(t, err, want)
		checkFile(t, out, content)
	}
	for _, files := range [][]string{{in, out}, {out}} {
		writeFile(t, out, twoResults[:30])
		_, err := filterFiles(t, Filter{Out: out}, files...)
		checkRefused(t, err, "is what is read")
		checkFile(t, out, twoResults[:30])
	}
	writeFile(t, in+originSuffix, "mine")
	writeFile(t, out+originSuffix, "mine")
	writeFile(t, out, "")
	_, err := filterFiles(t, Filter{Out: out}, in)
	checkRefused(t, err, out+originSuffix+": ")
	checkFile(t, out+originSuffix, "mine")
}

func TestErrorOfCloseIsReturned(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := (&output{w: f}).close(nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v", err)
	}
}

func TestOutputIsContinuedByEqualSettingsAlone(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
	writeFile(t, in, twoRecords)
	with := func(model, field, shard string, skip int64) Filter {
		f := Filter{Out: out, Field: field, Shard: shard, Skip: skip}
		if err := f.BindModel("verb", func() (string, error) { return "sum of " + model, nil }); err != nil {
			t.Fatal(err)
		}
		return f
	}
	if _, err := filterFiles(t, with("a", "", "", 0), in); err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]Filter{
		`made with --model "sum of a", this command has --model "sum of b"`: with("b", "", "", 0),
		`made with --field "text", this command has --field "title"`:        with("a", "title", "", 0),
		`made with --shard "", this command has --shard "0/2"`:              with("a", "", "0/2", 0),
		`made with --skip "0", this command has --skip "1"`:                 with("a", "", "", 1),
		`this command has --field "text"`:                                   {Out: out},
	} {
		_, err := filterFiles(t, f, in)
		checkRefused(t, err, want)
		checkFile(t, out, twoResults)
	}
	for n := range len(twoResults) + 1 {
		writeFile(t, out, twoResults[:n])
		if _, err := filterFiles(t, with("a", "text", "", 0), in); err != nil {
			t.Fatalf("after %d bytes: %v", n, err)
		}
		checkFile(t, out, twoResults)
	}
	file, err := os.Open(out + originSuffix)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if found, err := InspectOrigin(file, info.Size()); err != nil || found == nil {
		t.Errorf("the origin is %+v, %v", found, err)
	}
	grown := in + "2"
	writeFile(t, grown, "{\"text\":\"seven\"}")
	if _, err := filterFiles(t, with("a", "", "", 0), in, grown); err != nil {
		t.Fatal(err)
	}
	checkFile(t, out, twoResults+"{\"text\":\"seven\",\"length\":5}\n")
}

func TestRecordsOfFilesAreCountedTogether(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl")
	writeFile(t, a, "{\"text\":\"one\"}\n\n{\"text\":\"two\"}")
	writeFile(t, b, "\n{\"text\":\"four\"}\n{\"text\":5}\n")
	for want, f := range map[string]Filter{
		"{\"text\":\"two\",\"length\":3}\n{\"text\":\"four\",\"length\":4}\n": {Skip: 1},
		"{\"text\":\"one\",\"length\":3}\n{\"text\":\"four\",\"length\":4}\n": {Shard: "0/2"},
	} {
		if got, _ := filterFiles(t, f, a, b); got != want {
			t.Errorf("%+v: printed %q, want %q", f, got, want)
		}
	}
	_, err := filterFiles(t, Filter{}, a, b)
	checkRefused(t, err, b+": line 3: text: is not a string: 5")
	writeFile(t, a, "{\"text\":\"one\"}\n{\"text\":\"caf\xe9\"}\n")
	_, err = filterFiles(t, Filter{}, a, b)
	checkRefused(t, err, a+`: line 2: is not UTF-8: "{\"text\":\"caf\xe9\"}"`)
}

func TestFirstRecordMayFollowEmptyLinesAndBeLong(t *testing.T) {
	for text, want := range map[string]bool{
		"\n \r\n{\"text\":\"a\"}\n":               true,
		"{ \"text\":\"" + strings.Repeat("a", 99): true,
		"\nplain\n{\"text\":\"a\"}\n":             false,
		"\n":                                      false,
	} {
		if got := IsFirstRecord(bufio.NewReaderSize(strings.NewReader(text), 32), "text"); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
