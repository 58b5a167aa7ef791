package farfield_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield"
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train"
)

// encoder is a BERT of random weights in the Hugging Face layout.
const encoder = "pretrained/testdata/tiny"

// saveDecoder saves a decoder of bytes with random weights, and returns its folder.
func saveDecoder(mechanism string) (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "farfield")
	if err != nil {
		log.Fatal(err)
	}
	m, err := model.New(model.Config{Kind: model.Decoder, Vocab: 256, Layers: 1, Heads: 2, Width: 16, Context: 32,
		Positions: model.Rotary, Mechanism: mechanism, Tied: true}, rng.New(1))
	if err == nil {
		err = train.SaveByteModel(dir, m)
	}
	if err != nil {
		log.Fatal(err)
	}
	return dir, func() { os.RemoveAll(dir) }
}

// trainClassifier trains a run that tells texts of a from texts of b, and returns its folder.
func trainClassifier() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "farfield")
	if err != nil {
		log.Fatal(err)
	}
	data := filepath.Join(dir, "data.tsv")
	if err := os.WriteFile(data, []byte("text\tlabel\n"+strings.Repeat("aaaa\tfirst\nbbbb\tsecond\n", 40)), 0o666); err != nil {
		log.Fatal(err)
	}
	preset, err := train.LookupPreset("tiny")
	if err != nil {
		log.Fatal(err)
	}
	c := preset.Config
	c.SetTask("file")
	c.TaskSet = map[string]string{"data": data, "length": "8"}
	c.Steps, c.Model.Layers, c.Model.Width, c.Model.Heads, c.Model.Hidden = 40, 1, 16, 2, 16
	src, err := c.OpenTask()
	if err != nil {
		log.Fatal(err)
	}
	run := filepath.Join(dir, "run")
	t, err := train.New(c, src, run)
	if err != nil {
		log.Fatal(err)
	}
	_, err = t.Train(context.Background(), train.Observer{})
	if err := errors.Join(err, t.Close()); err != nil {
		log.Fatal(err)
	}
	return run, func() { os.RemoveAll(dir) }
}

func ExampleOpen() {
	m, err := farfield.Open("pretrained/testdata/tiny")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Kind)
	fmt.Println(info.Can)
	// A method that the model does not have says what it has.
	_, err = m.Generate(context.Background(), "once", farfield.GenerateOptions{})
	fmt.Println(errors.Is(err, errors.ErrUnsupported), err)
	// Output:
	// published bert encoder
	// [Tokenize Embed]
	// true Generate: pretrained/testdata/tiny: the bert has no head that predicts tokens; the model is a published bert encoder, which has: Tokenize, Embed
}

func ExampleModel_Embed() {
	dir, ctx := "pretrained/testdata/tiny", context.Background()
	m, err := farfield.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	v, err := m.Embed(ctx, "the cat sat on a mat.", "dogs ran in the rain!") // [2][width]
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(v), len(v[0]))
	// Output: 2 8
}

func ExampleModel_Tokenize() {
	m, err := farfield.Open("pretrained/testdata/tiny")
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := m.Tokenize(context.Background(), "the cat")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tokens[0].IDs, tokens[0].Offsets)
	// Output: [2 6 7 3] [[0 0] [0 3] [4 7] [0 0]]
}

func ExampleModel_Classify() {
	run, remove := trainClassifier()
	defer remove()
	m, err := farfield.Open(run)
	if err != nil {
		log.Fatal(err)
	}
	list, err := m.Classify(context.Background(), "aaaa", "bbbb")
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range list {
		fmt.Println(p.Label, p.Probability > 0.5)
	}
	// Output:
	// first true
	// second true
}

func ExampleModel_Score() {
	dir, remove := saveDecoder("fastmax")
	defer remove()
	m, err := farfield.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	lines, err := m.Score(context.Background(), "one line\nanother\n")
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range lines { // a model that has learned nothing
		fmt.Printf("%d bytes, %.0f bits each\n", l.Bytes, l.Bits/float64(l.Bytes))
	}
	// Output:
	// 9 bytes, 8 bits each
	// 8 bytes, 8 bits each
}

func ExampleModel_Generate() {
	dir, remove := saveDecoder("fastmax")
	defer remove()
	m, err := farfield.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	text, err := m.Generate(context.Background(), "once upon a time", farfield.GenerateOptions{Tokens: 8, Temperature: 0.8})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(text))
	// Output: 8
}

func ExampleModel_Session() {
	dir, remove := saveDecoder("fastmax")
	defer remove()
	m, err := farfield.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	s, err := m.Session(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Append(ctx, "once upon "); err != nil {
		log.Fatal(err)
	}
	other := s.Fork()
	first, err := s.Generate(ctx, farfield.GenerateOptions{Tokens: 8})
	if err != nil {
		log.Fatal(err)
	}
	second, err := other.Generate(ctx, farfield.GenerateOptions{Tokens: 8})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first == second, s.Tokens())
	// Output: true 18
}

// Sessions go on after a restart, to the same bits.
func ExampleSession_Save() {
	dir, remove := saveDecoder("fastmax")
	defer remove()
	m, err := farfield.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	s, err := m.Session(ctx)
	if err == nil {
		err = s.Append(ctx, "once upon a time")
	}
	path := filepath.Join(dir, "text.state")
	if err == nil {
		err = s.Save(path)
	}
	if err != nil {
		log.Fatal(err)
	}
	later, err := m.LoadSession(ctx, path)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(later.Tokens())
	// Output: 16
}

func ExampleWithMechanism() {
	m, err := farfield.Open("pretrained/testdata/tiny", farfield.WithMechanism(model.Exchange{Mechanism: "local", Set: map[string]string{"span": "2"}}))
	if err != nil {
		log.Fatal(err)
	}
	v, err := m.Embed(context.Background(), "the cat sat on a mat.")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(v[0]))
	// Output: 8
}

// open opens a folder.
func open(t *testing.T, dir string) *farfield.Model {
	t.Helper()
	m, err := farfield.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestGenerateIsOneTextHoweverItIsCut(t *testing.T) {
	for _, mechanism := range []string{"fastmax", "softmax"} {
		dir, remove := saveDecoder(mechanism)
		defer remove()
		m := open(t, dir)
		o := farfield.GenerateOptions{Tokens: 60, Temperature: 1, Seed: 3} // beyond the trained context
		var streamed strings.Builder
		o.Stream = func(text string) error { streamed.WriteString(text); return nil }
		want, err := m.Generate(t.Context(), "once upon", o)
		if err != nil {
			t.Fatal(err)
		}
		if streamed.String() != want {
			t.Errorf("%s: streamed %q, want %q", mechanism, streamed.String(), want)
		}
		s, err := m.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, part := range []string{"once", " upon"} {
			if err := s.Append(t.Context(), part); err != nil {
				t.Fatal(err)
			}
		}
		o.Stream = nil
		for _, n := range []int{1, 9, 50} {
			if n == 50 {
				path := filepath.Join(t.TempDir(), "state")
				if err := s.Save(path); err != nil {
					t.Fatal(err)
				}
				if s, err = m.LoadSession(t.Context(), path); err != nil {
					t.Fatal(err)
				}
			}
			o.Tokens = n
			text, err := s.Generate(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			got.WriteString(text)
		}
		if got.String() != want || s.Tokens() != 69 {
			t.Errorf("%s: %q of %d tokens, want %q", mechanism, got.String(), s.Tokens(), want)
		}
	}
}

// Calls that run together give what they give alone.
func TestMethodsRunTogether(t *testing.T) {
	dir, remove := saveDecoder("fastmax")
	defer remove()
	run, removeRun := trainClassifier()
	defer removeRun()
	decoder, published, classifier := open(t, dir), open(t, encoder), open(t, run)
	calls := []func() (any, error){
		func() (any, error) { return decoder.Embed(t.Context(), "a text", "another") },
		func() (any, error) { return published.Embed(t.Context(), "the cat", "dogs ran") },
		func() (any, error) { return decoder.Score(t.Context(), strings.Repeat("a line\n", 20)) },
		func() (any, error) {
			return decoder.Generate(t.Context(), "once", farfield.GenerateOptions{Tokens: 40, Temperature: 1})
		},
		func() (any, error) { return classifier.Classify(t.Context(), "aaaa", "bb") },
		func() (any, error) { return published.Tokenize(t.Context(), "the cat") },
		func() (any, error) { return decoder.Info() },
	}
	want := make([]string, len(calls))
	for i, call := range calls {
		x, err := call()
		if err != nil {
			t.Fatal(err)
		}
		want[i] = fmt.Sprint(x)
	}
	var wait sync.WaitGroup
	for range 3 {
		for i, call := range calls {
			wait.Go(func() {
				if x, err := call(); err != nil || fmt.Sprint(x) != want[i] {
					t.Errorf("call %d: %v, %v, want %s", i, x, err, want[i])
				}
			})
		}
	}
	wait.Wait()
}

func TestMethodsEndWithTheirContextAndTheModel(t *testing.T) {
	dir, remove := saveDecoder("fastmax")
	defer remove()
	m := open(t, dir)
	s, err := m.Session(t.Context())
	if err == nil {
		err = s.Append(t.Context(), "once")
	}
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]func(ctx context.Context) error{
		"Embed":    func(ctx context.Context) error { _, err := m.Embed(ctx, "a"); return err },
		"Score":    func(ctx context.Context) error { _, err := m.Score(ctx, "a"); return err },
		"Tokenize": func(ctx context.Context) error { _, err := m.Tokenize(ctx, "a"); return err },
		"Generate": func(ctx context.Context) error {
			_, err := m.Generate(ctx, "a", farfield.GenerateOptions{})
			return err
		},
		"Session": func(ctx context.Context) error { _, err := m.Session(ctx); return err },
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, method := range methods {
		if err := method(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	// A text that is interrupted keeps what was drawn.
	running, cancel := context.WithCancel(t.Context())
	n := 0
	text, err := s.Generate(running, farfield.GenerateOptions{Tokens: 100, Stream: func(string) error {
		if n++; n == 5 {
			cancel()
		}
		return nil
	}})
	if !errors.Is(err, context.Canceled) || len(text) == 0 || s.Tokens() < 9 || s.Tokens() > 20 {
		t.Errorf("%q, %v, %d tokens", text, err, s.Tokens())
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for name, method := range methods {
		if err := method(t.Context()); !errors.Is(err, farfield.ErrClosed) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := s.Generate(t.Context(), farfield.GenerateOptions{Tokens: 1}); err != nil {
		t.Errorf("a session of a closed model: %v", err)
	}
}

func TestErrorsThatCallersActOn(t *testing.T) {
	ctx := t.Context()
	dir, remove := saveDecoder("softmax")
	defer remove()
	m := open(t, dir)
	s, err := m.Session(ctx)
	if err == nil {
		err = s.Append(ctx, "once")
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state")
	if err := s.Save(path); err != nil {
		t.Fatal(err)
	}
	state, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	state[len(state)/2]++
	if err := os.WriteFile(path, state, 0o666); err != nil {
		t.Fatal(err)
	}
	_, damagedState := m.LoadSession(ctx, path)

	run, removeRun := trainClassifier()
	defer removeRun()
	classifier := open(t, run)
	list, truncated := classifier.Classify(ctx, "aaaa", "aaaaaaaabbbb")
	if len(list) != 2 || list[1].Label != "first" {
		t.Errorf("predictions are %v", list)
	}
	var cut *farfield.TruncatedError
	if !errors.As(truncated, &cut) || fmt.Sprint(cut.Inputs) != "[1]" {
		t.Errorf("error %v", truncated)
	}

	copied := func(change func(dir string)) error {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(encoder)); err != nil {
			t.Fatal(err)
		}
		change(dir)
		_, err := farfield.Open(dir)
		return err
	}
	replace := func(name, old, new string) func(dir string) {
		return func(dir string) {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), []byte(strings.Replace(string(text), old, new, 1)), 0o666)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	owner, err := lock.LockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	inUse := s.Save(path)
	owner.Release()
	_, missing := farfield.Open(filepath.Join(dir, "none"))
	_, generates := classifier.Generate(ctx, "a", farfield.GenerateOptions{})
	_, noText := classifier.Classify(ctx, "a", "")
	_, unknownPrompt := open(t, encoder).EmbedPrompt(ctx, "none", "a")
	_, negative := m.Generate(ctx, "a", farfield.GenerateOptions{Tokens: -1})
	_, colder := m.Generate(ctx, "a", farfield.GenerateOptions{Temperature: -1})
	_, outside := m.Decode(ctx, 256)
	_, empty := newText(t, m).GenerateIDs(ctx, farfield.GenerateOptions{})
	for _, x := range []struct {
		name string
		err  error
		want error
	}{
		{"an empty text of a classifier", noText, farfield.ErrInput},
		{"a prompt that the folder does not have", unknownPrompt, farfield.ErrInput},
		{"fewer than no tokens", negative, farfield.ErrInput},
		{"a negative temperature", colder, farfield.ErrInput},
		{"a token outside the vocabulary, in a session", s.AppendIDs(ctx, 256), farfield.ErrInput},
		{"a token outside the vocabulary", outside, farfield.ErrInput},
		{"an empty text that is to be continued", empty, farfield.ErrInput},
		{"a file of a session with another byte", damagedState, farfield.ErrDamaged},
		{"weights that end early", copied(func(dir string) {
			if err := os.Truncate(filepath.Join(dir, "model.safetensors"), 1000); err != nil {
				t.Fatal(err)
			}
		}), farfield.ErrDamaged},
		{"a field that is not known", copied(replace("config.json", "{", `{"new_field": 1,`)), farfield.ErrUnknownField},
		{"a long text of a classifier", truncated, farfield.ErrTruncated},
		{"a text of a classifier that is to be continued", generates, errors.ErrUnsupported},
		{"a folder that does not exist", missing, fs.ErrNotExist},
		{"a file that another owner writes", inUse, farfield.ErrInUse},
	} {
		if !errors.Is(x.err, x.want) {
			t.Errorf("%s: error %v, want one that is %q", x.name, x.err, x.want)
		}
	}
}

// A run, a checkpoint, a copy of one, a model alone and a published model are opened alike.
func TestOpenReadsEveryKindOfFolder(t *testing.T) {
	run, remove := trainClassifier()
	defer remove()
	decoder, removeDecoder := saveDecoder("fastmax")
	defer removeDecoder()
	checkpoints, err := filepath.Glob(filepath.Join(run, "ckpt", "*", "checkpoint.json"))
	if err != nil || len(checkpoints) == 0 {
		t.Fatalf("checkpoints: %q, %v", checkpoints, err)
	}
	alone := filepath.Join(t.TempDir(), "alone")
	m, err := model.New(model.Config{Kind: model.Decoder, Vocab: 9, Layers: 1, Heads: 1, Width: 8, Context: 16, Positions: model.Learned, Mechanism: "softmax"}, rng.New(1))
	if err == nil {
		err = m.Save(alone)
	}
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		run:                          "run of the task file, of kind encoder [Classify] [first second]",
		filepath.Dir(checkpoints[0]): "checkpoint of the task file, of kind encoder [Classify] [first second]",
		decoder:                      "checkpoint, of kind decoder [Tokenize Embed Score Generate Session] []",
		alone:                        "saved decoder [Session] []",
		encoder:                      "published bert encoder [Tokenize Embed] []",
	} {
		info, err := open(t, dir).Info()
		if got := fmt.Sprint(info.Kind, " ", info.Can, " ", info.Labels); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", dir, got, err, want)
		}
	}
	// A model without a vocabulary has texts of tokens, up to its learned positions.
	s, err := open(t, alone).Session(t.Context())
	if err == nil {
		err = s.AppendIDs(t.Context(), 1, 2, 3)
	}
	if err != nil {
		t.Fatal(err)
	}
	ids, err := s.GenerateIDs(t.Context(), farfield.GenerateOptions{})
	if err != nil || len(ids) != 13 || s.Tokens() != 16 {
		t.Errorf("%d new tokens of %d, %v", len(ids), s.Tokens(), err)
	}
	if err := s.AppendIDs(t.Context(), 9); err == nil || !strings.Contains(err.Error(), "token 0 is 9, the vocabulary has 9") {
		t.Errorf("error %v", err)
	}
	if _, err := s.Generate(t.Context(), farfield.GenerateOptions{}); err == nil || !strings.Contains(err.Error(), "has no vocabulary") {
		t.Errorf("error %v", err)
	}
}

func TestOptionsOfOpenReachTheModel(t *testing.T) {
	text := strings.Repeat("the cat sat on a mat. ", 4) // beyond the positions of the folder
	for name, x := range map[string]struct {
		option    farfield.Option
		truncated bool
		equal     bool
	}{
		"none":         {farfield.Option{}, true, true},
		"mechanism":    {farfield.WithMechanism(model.Exchange{Mechanism: "local", Set: map[string]string{"span": "2"}}), true, false},
		"precision":    {farfield.WithPrecision(nn.BFloat16), true, false},
		"interpolated": {farfield.WithInterpolatedPositions(), false, false},
	} {
		want, _ := open(t, encoder).Embed(t.Context(), text)
		m, err := farfield.Open(encoder, x.option)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Embed(t.Context(), text)
		if errors.Is(err, farfield.ErrTruncated) != x.truncated || !x.truncated && err != nil {
			t.Errorf("%s: error %v", name, err)
		}
		if slices.Equal(got[0], want[0]) != x.equal {
			t.Errorf("%s: the vector is %v, without the option %v", name, got[0], want[0])
		}
	}
	for dir, option := range map[string]farfield.Option{
		encoder: farfield.WithMechanism(model.Exchange{Mechanism: "none"}),
		"docs":  {},
	} {
		if m, err := farfield.Open(dir, option); m != nil || err == nil {
			t.Errorf("%s: opened, %v", dir, err)
		}
	}
}

// A model with a mechanism of one's own opens with the factory that builds it.
func TestOwnMechanismOpensWithItsFactory(t *testing.T) {
	factories := map[string]model.Factory{"own": model.NewFactory(func(o mechanism.Options) (attention.Mechanism, error) {
		return mechanism.New("linear", o)
	})}
	m, err := model.New(model.Config{Kind: model.Decoder, Vocab: 256, Layers: 1, Heads: 2, Width: 16, Context: 32,
		Positions: model.Rotary, Mechanism: "own", Factories: factories}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	saved, alone := filepath.Join(t.TempDir(), "saved"), filepath.Join(t.TempDir(), "alone")
	if err := errors.Join(train.SaveByteModel(saved, m), m.Save(alone)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{saved, alone} {
		if _, err := farfield.Open(dir); err == nil || !strings.Contains(err.Error(), `mechanism "own": unknown`) || !strings.Contains(err.Error(), "farfield.WithFactories") {
			t.Errorf("%s: opened without the factory: %v", dir, err)
		}
		opened, err := farfield.Open(dir, farfield.WithFactories(factories))
		if err != nil {
			t.Fatal(err)
		}
		s, err := opened.Session(t.Context())
		if err == nil {
			err = s.AppendIDs(t.Context(), 1, 2)
		}
		if err != nil {
			t.Fatal(err)
		}
		nextIDs(t, s)
	}
	if _, err := farfield.Open(encoder, farfield.WithFactories(factories)); err == nil || !strings.HasPrefix(err.Error(), encoder+": WithFactories: ") {
		t.Errorf("a published model: error %v", err)
	}
}
