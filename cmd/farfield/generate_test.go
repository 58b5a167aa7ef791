package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/generate"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// trained returns the folder of a little run. Without further words it is a copy of the one that all
// tests share, whose text lies beside that.
func trained(t *testing.T, more ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	if len(more) > 0 {
		works(t, littleRun(textFile(t), dir, more...)...)
		return dir
	}
	common.once.Do(func() {
		root, err := os.MkdirTemp("", "farfield-")
		if err != nil {
			t.Fatal(err)
		}
		common.root = root
		data := filepath.Join(root, "text")
		wrote(t, data, has(t, textFile(t)))
		works(t, littleRun(data, filepath.Join(root, "run"))...)
		common.made = true
	})
	if !common.made {
		t.Fatal("the run that tests share failed before")
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(common.root, "run"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// common is the little run of trained, in a folder that TestMain removes.
var common struct {
	once sync.Once
	root string
	made bool
}

func TestGeneratedPiecesMakeOneText(t *testing.T) {
	t.Parallel()
	dir := trained(t)
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	generate := func(args ...string) string {
		return works(t, append([]string{"generate", "--model", dir}, args...)...)
	}
	flags := []string{"--temperature", "1.1", "--top-k", "50", "--top-p", "0.9", "--seed", "5", "--prompt", "The "}
	want := generate(append(flags, "--tokens", "90")...)
	if len(want) != 90 {
		t.Errorf("90 bytes were asked for, %d came", len(want))
	}
	got := generate(append(flags, "--tokens", "40", "--save", snapshot)...)
	got += generate("--resume", snapshot, "--save", snapshot, "--tokens", "0")
	got += generate("--resume", snapshot, "--tokens", "50")
	if got != want {
		t.Errorf("in pieces %q, at once %q", got, want)
	}
	if got, want := generate("--top-p", "0"), generate("--temperature", "0"); got != want {
		t.Errorf("top-p 0 draws %q, the most likely are %q", got, want)
	}
	if other := generate("--tokens", "90", "--seed", "6", "--prompt", "The "); other == want {
		t.Error("the seed changes nothing")
	}
	if a, b := generate("--resume", snapshot, "--prompt", "lamp"), generate("--resume", snapshot); a == b {
		t.Error("an appended prompt changes nothing")
	}
}

func TestPromptComesFromAnywhere(t *testing.T) {
	t.Parallel()
	dir := trained(t)
	file := filepath.Join(t.TempDir(), "prompt")
	if err := os.WriteFile(file, []byte("12 + 3"), 0o666); err != nil {
		t.Fatal(err)
	}
	want := works(t, "generate", "--model", dir, "--tokens", "20", "--prompt", "12 + 3")
	if got := works(t, "generate", "--model", dir, "--tokens", "20", "--prompt-file", file); got != want {
		t.Errorf("from a file %q, from the command line %q", got, want)
	}
	var out, errs bytes.Buffer
	status := farfield().RunVerb([]string{"generate", "--model", dir, "--tokens", "20", "--prompt-file", "-"},
		&env.Env{Context: context.Background(), Stdin: strings.NewReader("12 + 3"), Stdout: &out, Stderr: &errs})
	if status != 0 || out.String() != want {
		t.Errorf("from standard input %q (%s), from the command line %q", out.String(), errs.String(), want)
	}
}

func TestGenerateReports(t *testing.T) {
	t.Parallel()
	dir := trained(t)
	var r generate.Report
	if err := json.Unmarshal([]byte(works(t, "generate", "--model", dir, "--tokens", "600", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Tokens != 600 || r.Length != 601 || r.Text == "" || r.Window != 250 || r.First <= 0 || r.Last <= 0 || r.StateFirst == 0 || r.StateFirst != r.StateLast {
		t.Errorf("the report is %+v", r)
	}
	_, out, errs := command(t, "generate", "--model", dir, "--tokens", "600", "--time")
	for _, want := range []string{"600 tokens in", "first 250:", "last 250:", "state", "heap"} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is not in\n%s", want, errs)
		}
	}
	if len(out) != 600 {
		t.Errorf("%d bytes on standard output", len(out))
	}
	// Too few tokens to compare any.
	for _, n := range []string{"0", "1", "2"} {
		works(t, "generate", "--model", dir, "--tokens", n, "--time")
		if out := works(t, "generate", "--model", dir, "--tokens", n, "--json"); n < "2" && strings.Contains(out, "_us\"") || n < "2" && strings.Contains(out, "_bytes") {
			t.Errorf("%s tokens: %s", n, out)
		}
	}
}

func TestInterruptedGenerationIsSaved(t *testing.T) {
	t.Parallel()
	dir := trained(t)
	snapshot := filepath.Join(t.TempDir(), "a snapshot")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := &stopper{stop: cancel} // at the first byte
	var errs bytes.Buffer
	status := farfield().RunVerb([]string{"generate", "--model", dir, "--tokens", "1099511627776", "--save", snapshot}, // takes no memory beforehand
		&env.Env{Context: ctx, Stdin: strings.NewReader(""), Stdout: out, Stderr: &errs})
	if status != env.StatusInterrupted || !strings.Contains(errs.String(), "--resume '"+snapshot+"' continues") {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	got := out.String() + works(t, "generate", "--model", dir, "--resume", snapshot, "--tokens", "49")
	if want := works(t, "generate", "--model", dir, "--tokens", "50"); got != want {
		t.Errorf("%q, not interrupted %q", got, want)
	}
}

// endsAfterErrs is a context that ends after a number of calls of Err.
type endsAfterErrs struct {
	context.Context
	calls int
}

func (c *endsAfterErrs) Err() error {
	if c.calls--; c.calls < 0 {
		return context.Canceled
	}
	return nil
}

func TestInterruptedGenerationPrintsJSON(t *testing.T) {
	t.Parallel()
	dir := trained(t)
	for flags, want := range map[string]string{"--json": `"tokens": `, "--json --ids " + writeIDs(t): `{"ids":[`} {
		var out, errs bytes.Buffer
		args := append([]string{"generate", "--model", dir, "--tokens", "1000000", "--save", filepath.Join(t.TempDir(), "snapshot")}, strings.Fields(flags)...)
		status := farfield().RunVerb(args, &env.Env{Context: &endsAfterErrs{context.Background(), 30}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
		if status != env.StatusInterrupted || !json.Valid(out.Bytes()) || !strings.Contains(out.String(), want) {
			t.Errorf("%s: status %d, %q, %s", flags, status, out.String(), errs.String())
		}
	}
}

// A head of this width remembers half a megabyte of a token.
func TestShortPromptNeedsNoMemoryOfALongOne(t *testing.T) {
	t.Parallel()
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 256, Layers: 1, Heads: 1, Width: 4, HeadWidth: 1 << 16, Context: 64,
		Positions: model.Rotary, Mechanism: "softmax", Tied: true,
	}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := checkpoint.SaveModel(dir, m, token.NewByteVocabulary()); err != nil {
		t.Fatal(err)
	}
	works(t, "generate", "--model", dir, "--prompt", "abc", "--tokens", "1")
}

func TestOutputsReplaceNoFileOfTheModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tinyModel)); err != nil {
		t.Fatal(err)
	}
	ids, weights := writeIDs(t), filepath.Join(dir, "model.safetensors")
	const want = "is what is read, and would be lost"
	refuses(t, want, "generate", "--model", dir, "--ids", ids, "--save", ids)
	refuses(t, want, "generate", "--model", dir, "--save", weights)
	refuses(t, want, "embed", "--model", dir, "--out", weights, textFile(t))
	refuses(t, want, "forward", "--model", dir, ids, weights)
	refuses(t, want, "maps", "--model", dir, "--text", "one", "--npz", weights)
	run := trained(t)
	refuses(t, want, "generate", "--model", run, "--save", filepath.Join(run, "ckpt", "latest"))
	other := filepath.Join(dir, "vectors.npy")
	for range 2 {
		works(t, "embed", "--model", dir, "--out", other, textFile(t))
	}
}

func TestBadGenerations(t *testing.T) {
	t.Parallel()
	chars := trained(t, "--task", "charlm", "--positions", "learned")
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	works(t, "generate", "--model", chars, "--tokens", "5", "--save", snapshot)
	data, err := os.ReadFile(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, data, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ want, args string }{
		{`--prompt: character 'ü' at offset 3 is not in the vocabulary`, "--prompt Theü"},
		{"no such file", "--prompt-file none"},
		{"standard input: is empty", "--prompt-file -"},
		{"--tokens: -1", "--tokens=-1"},
		{"--tokens: 9223372036854775807 is more than 1099511627776", "--tokens 9223372036854775807"},
		{"the text would have 21 tokens, the model learned 20 positions", "--tokens 20"},
		{"temperature: -1", "--temperature=-1"},
		{"top-k: -2", "--top-k=-2"},
		{"top-p: 1.5", "--top-p 1.5"},
		{"damaged", "--resume " + damaged},
		{"--prompt and --prompt-file can't be used together", "--prompt a --prompt-file b"},
	} {
		refuses(t, c.want, append([]string{"generate", "--model", chars}, strings.Fields(c.args)...)...)
	}
	refuses(t, "other weights", "generate", "--model", trained(t, "--task", "charlm", "--positions", "learned", "--seed", "2"), "--resume", snapshot)
}
