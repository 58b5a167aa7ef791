package tokenize

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/env"
)

func TestLinesBecomeRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vocab.txt")
	if err := os.WriteFile(path, []byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\nab\n##c\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		jsonl    bool
		in, want string
	}{
		{false, "é ABc\r\n\nab", "{\"ids\":[2,1,4,5,3],\"offsets\":[[0,0],[0,2],[3,5],[5,6],[0,0]]}\n{\"ids\":[2,3],\"offsets\":[[0,0],[0,0]]}\n{\"ids\":[2,4,3],\"offsets\":[[0,0],[0,2],[0,0]]}\n"},
		{true, "{\"text\":\"ab\",\"pair\":\"ab\"}\n\n", "{\"ids\":[2,4,3,4,3],\"offsets\":[[0,0],[0,2],[0,0],[0,2],[0,0]]}\n"},
	} {
		var out bytes.Buffer
		e := &env.Env{Context: context.Background(), Stdin: strings.NewReader(c.in), Stdout: &out, Stderr: &out}
		if err := (&Command{Tokenizer: path, JSONL: c.jsonl}).Run(e); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%q: output is %s, want %s", c.in, out.String(), c.want)
		}
	}
}

func TestRecordWithoutTextIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vocab.txt")
	if err := os.WriteFile(path, []byte("[UNK]\n[CLS]\n[SEP]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	e := &env.Env{Context: context.Background(), Stdin: strings.NewReader("{\"text\":\"x\"}\n{\"pair\":\"x\"}\n"), Stdout: &out}
	err := (&Command{Tokenizer: path, JSONL: true}).Run(e)
	if err == nil || !strings.Contains(err.Error(), `line 2: field "text" is missing`) {
		t.Errorf("error is %v", err)
	}
	for in, want := range map[string]string{"{\"Text\":\"x\"}\n": `field "text" is missing`, "{\"text\":\"\xff\"}\n": "is not UTF-8", "{\"text\":1}\n": "text: is not a string: 1"} {
		e := &env.Env{Context: context.Background(), Stdin: strings.NewReader(in), Stdout: new(bytes.Buffer)}
		if err := (&Command{Tokenizer: path, JSONL: true}).Run(e); err == nil || !strings.Contains(err.Error(), "line 1: "+want) {
			t.Errorf("%q: error is %v", in, err)
		}
	}
	if !strings.HasPrefix(out.String(), `{"ids":[`) {
		t.Errorf("of the line before %q is printed", out.String())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e.Context = ctx
	in := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(in, []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (&Command{Tokenizer: path, File: in}).Run(e); !errors.Is(err, context.Canceled) {
		t.Errorf("of a context that has ended: %v", err)
	}
}

func TestNameOfAModelIsResolved(t *testing.T) {
	t.Setenv("FARFIELD_DATA", t.TempDir())
	e := &env.Env{Context: context.Background(), Stdin: strings.NewReader(""), Stdout: new(bytes.Buffer)}
	if err := (&Command{Model: "all-MiniLM-L6-v2"}).Run(e); err == nil || !strings.Contains(err.Error(), "farfield models fetch all-MiniLM-L6-v2") {
		t.Errorf("error is %v", err)
	}
}
