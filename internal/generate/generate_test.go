package generate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

var write = flag.Bool("write", false, "write the model and the text of testdata")

func newModel(t testing.TB, mechanism string, seed uint64) *model.Model {
	t.Helper()
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 23, Layers: 2, Heads: 3, KVHeads: 1, Width: 15, Context: 40,
		Positions: model.Rotary, Mechanism: mechanism, Tied: true,
	}, rng.New(seed))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newGenerator(t testing.TB, m *model.Model, s Sampling, prompt ...int32) *Generator {
	t.Helper()
	g, err := New(m, s)
	if err != nil {
		t.Fatal(err)
	}
	g.Append(prompt...)
	return g
}

// next draws n tokens.
func next(t testing.TB, g *Generator, n int) []int32 {
	t.Helper()
	var list []int32
	err := g.Generate(context.Background(), n, func(k int32) error {
		list = append(list, k)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

var warm = Sampling{Temperature: 1, TopK: 20, TopP: 0.95, Seed: 7}

func TestPiecesDoNotMatter(t *testing.T) {
	for _, mechanism := range []string{"softmax", "fastmax", "taylorshift", "linear"} {
		m := newModel(t, mechanism, 1)
		want := next(t, newGenerator(t, m, warm, 1, 2, 3), 60)
		g := newGenerator(t, m, warm, 1)
		g.Append(2, 3)
		var got []int32
		for _, n := range []int{1, 0, 7, 30, 22} {
			got = append(got, next(t, g, n)...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, in one call %v", mechanism, got, want)
		}
		if g.Tokens() != 63 {
			t.Errorf("%s: the text has %d tokens", mechanism, g.Tokens())
		}
	}
}

func TestRefusedSamplingChangesNothing(t *testing.T) {
	g := newGenerator(t, newModel(t, "fastmax", 2), warm, 1)
	if err := g.SetSampling(Sampling{Temperature: -1}); err == nil || g.Sampling() != warm {
		t.Errorf("%v, then the settings are %+v", err, g.Sampling())
	}
	next(t, g, 1)
}

// TestTokensAreDrawnWithNumbersOfTheirOwn draws token i of a text with number i of the
// seed, from the model's logits.
func TestTokensAreDrawnWithNumbersOfTheirOwn(t *testing.T) {
	const n = 30
	m := newModel(t, "fastmax", 2)
	s := Sampling{Temperature: 3, Seed: 4}
	got := next(t, newGenerator(t, m, s, 1), n)
	sampler, err := NewSampler(s, m.Config().Vocab)
	if err != nil {
		t.Fatal(err)
	}
	session, err := m.NewSession(1)
	if err != nil {
		t.Fatal(err)
	}
	last := int32(1)
	for i, token := range got {
		logits, err := session.Step(t.Context(), []int32{last}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if last, err = sampler.DrawToken(logits, uint64(i)); err != nil || last != token {
			t.Fatalf("token %d is %d, number %d of the seed draws %d, %v", i, token, i, last, err)
		}
	}
}

func TestGreedyTextIsTheModels(t *testing.T) {
	m := newModel(t, "fastmax", 2)
	text := []int32{4, 5}
	text = append(text, next(t, newGenerator(t, m, Sampling{}, text...), 20)...)
	// Every drawn token is the most likely one of a whole evaluation.
	const vocab = 23
	logits := make([]float32, len(text)*vocab)
	if err := m.Logits(t.Context(), &model.Batch{B: 1, N: len(text), Tokens: text}, logits); err != nil {
		t.Fatal(err)
	}
	for i := 2; i < len(text); i++ {
		row := logits[(i-1)*vocab:][:vocab]
		if best := slices.Index(row, slices.Max(row)); int32(best) != text[i] {
			t.Errorf("token %d is %d, the model's %d", i, text[i], best)
		}
	}
}

func TestSnapshotContinuesTheText(t *testing.T) {
	for _, mechanism := range []string{"softmax", "fastmax", "taylorshift", "linear"} {
		m := newModel(t, mechanism, 1)
		want := next(t, newGenerator(t, m, warm, 1, 2, 3), 60)
		for _, at := range []int{0, 1, 33} {
			path := filepath.Join(t.TempDir(), "snapshot")
			g := newGenerator(t, m, warm, 1, 2, 3)
			got := next(t, g, at)
			if err := g.Save(path); err != nil {
				t.Fatal(err)
			}
			loaded, err := LoadGenerator(path, m)
			if err != nil {
				t.Fatal(err)
			}
			if loaded.Sampling() != warm {
				t.Errorf("%s: the sampling is %+v", mechanism, loaded.Sampling())
			}
			if got = append(got, next(t, loaded, 60-at)...); !slices.Equal(got, want) {
				t.Errorf("%s: saved after %d: %v, want %v", mechanism, at, got, want)
			}
		}
	}
}

// The committed model and text in progress were saved by a little-endian processor of
// 64 bits. Saved again, both are the same bytes, and the text goes on as one that
// begins here, without windows, which its snapshot does not have.
func TestCommittedTextContinues(t *testing.T) {
	const folder, path, drawn = "testdata/model", "testdata/text", 33
	if *write {
		m := newModel(t, "fastmax", 1)
		if err := m.Save(folder); err != nil {
			t.Fatal(err)
		}
		g := newGenerator(t, m, warm, 1, 2, 3)
		if err := g.SetWindow(0); err != nil {
			t.Fatal(err)
		}
		next(t, g, drawn)
		if err := g.Save(path); err != nil {
			t.Fatal(err)
		}
	}
	m, err := model.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	g, err := LoadGenerator(path, m)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	if err := g.Save(filepath.Join(dir, "text")); err != nil {
		t.Fatal(err)
	}
	for saved, of := range map[string]string{
		model.ConfigFile: filepath.Join(folder, model.ConfigFile), model.WeightsFile: filepath.Join(folder, model.WeightsFile), "text": path,
	} {
		want, err := os.ReadFile(of)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, saved)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: saved again, other bytes (%v)", of, err)
		}
	}
	here := newGenerator(t, m, warm, 1, 2, 3)
	if err := here.SetWindow(0); err != nil {
		t.Fatal(err)
	}
	want := next(t, here, drawn+30)[drawn:]
	if got := next(t, g, 30); !slices.Equal(got, want) {
		t.Errorf("the text goes on with %v, one that begins here with %v", got, want)
	}
}

func TestCloneGoesItsOwnWay(t *testing.T) {
	m := newModel(t, "fastmax", 1)
	want := next(t, newGenerator(t, m, warm, 1, 2, 3), 40)
	g := newGenerator(t, m, warm, 1, 2, 3)
	got := next(t, g, 20)
	c, err := g.Clone()
	if err != nil {
		t.Fatal(err)
	}
	waits, err := g.Clone()
	if err != nil {
		t.Fatal(err)
	}
	c.Append(9, 9, 9)
	next(t, c, 10)
	if got = append(got, next(t, g, 20)...); !slices.Equal(got, want) {
		t.Errorf("%v, without a clone %v", got, want)
	}
	if late := next(t, waits, 20); !slices.Equal(late, want[20:]) {
		t.Errorf("a clone continues with %v while the text goes on, want %v", late, want[20:])
	}
}

func TestMemoryIsConstant(t *testing.T) {
	g := newGenerator(t, newModel(t, "fastmax", 1), warm, 1)
	next(t, g, 600)
	before := g.Bytes()
	next(t, g, 600)
	if g.Bytes() != before {
		t.Errorf("%d bytes after 600 tokens, %d after 1200", before, g.Bytes())
	}
}

func TestGenerateEnds(t *testing.T) {
	m := newModel(t, "fastmax", 1)
	want := next(t, newGenerator(t, m, warm, 1), 10)
	full := errors.New("full")
	g := newGenerator(t, m, warm, 1)
	ctx, cancel := context.WithCancel(context.Background())
	var got []int32
	if err := g.Generate(ctx, 10, func(k int32) error {
		if got = append(got, k); len(got) == 3 {
			cancel()
		}
		return nil
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if err := g.Generate(context.Background(), 10, func(k int32) error {
		got = append(got, k)
		return full
	}); err != full {
		t.Errorf("error is %v", err)
	}
	if got = append(got, next(t, g, 6)...); !slices.Equal(got, want) {
		t.Errorf("%v, not interrupted %v", got, want)
	}
	if err := newGenerator(t, m, warm).Generate(context.Background(), 1, nil); err == nil || !strings.Contains(err.Error(), "prompt") {
		t.Errorf("without a prompt: %v", err)
	}
	if err := newGenerator(t, m, warm, 23).Generate(context.Background(), 1, nil); err == nil {
		t.Error("a token outside the vocabulary was taken")
	}
	if _, err := New(m, Sampling{TopK: -1}); err == nil {
		t.Error("an impossible sampling was taken")
	}
}

func TestModelsWithOtherOutputsAreRefused(t *testing.T) {
	c := newModel(t, "fastmax", 1).Config()
	c.Outputs, c.Tied = 5, false
	m, err := model.New(c, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(m, warm); err == nil || !strings.Contains(err.Error(), "model: has 5 outputs, needs one for each of 23 tokens") {
		t.Errorf("error is %v", err)
	}
}

// Log-decays are numbers of the model, so that the text ends with them, too.
func TestTextEndsWithDecaysThatAreNotFinite(t *testing.T) {
	c := newModel(t, "linear", 1).Config()
	c.Decay = model.LearnedDecay
	m, err := model.New(c, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	gate, err := m.Params().Get("layers.0.attn.decay.bias")
	if err != nil {
		t.Fatal(err)
	}
	gate.Data[0] = float32(math.NaN())
	g := newGenerator(t, m, warm, 1, 5)
	first := g.Generate(context.Background(), 1, nil)
	if !errors.Is(first, attention.ErrNonFinite) {
		t.Fatalf("error is %v", first)
	}
	if err := g.Save(filepath.Join(t.TempDir(), "text")); err != first {
		t.Errorf("Save: error is %v, want %v", err, first)
	}
}

// Tokens that the session has go in once: after numbers that are not finite a text is lost.
func TestTextEndsWithNumbersThatAreNotFinite(t *testing.T) {
	m := newModel(t, "fastmax", 1)
	m.Params().All()[0].Data[5*15] = float32(math.NaN()) // of token 5
	g := newGenerator(t, m, warm, 1, 5)
	first := g.Generate(context.Background(), 1, nil)
	if !errors.Is(first, attention.ErrNonFinite) {
		t.Fatalf("error is %v", first)
	}
	tokens := g.session.Tokens()
	clone, _ := g.Clone()
	for name, err := range map[string]error{
		"Generate": g.Generate(context.Background(), 1, nil), "Prefill": g.Prefill(context.Background()),
		"Save": g.Save(filepath.Join(t.TempDir(), "text")), "a clone": clone.Prefill(context.Background()),
	} {
		if err != first {
			t.Errorf("%s: error is %v, want %v", name, err, first)
		}
	}
	if g.session.Tokens() != tokens {
		t.Errorf("the session has %d tokens, before %d", g.session.Tokens(), tokens)
	}
	g = newGenerator(t, m, warm, 1, 23) // refused: the text stays
	if err := g.Generate(context.Background(), 1, nil); err == nil || !strings.HasPrefix(err.Error(), "tokens: ") {
		t.Errorf("error is %v", err)
	}
	if err := g.Save(filepath.Join(t.TempDir(), "text")); err != nil {
		t.Error(err)
	}
}

func TestDamagedSnapshotsAreRefused(t *testing.T) {
	m := newModel(t, "fastmax", 1)
	g := newGenerator(t, m, warm, 1, 2, 3)
	next(t, g, 5)
	data, err := g.appendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	sealed := func(b []byte) []byte { // with a sum that fits
		b = b[:len(b)-sha256.Size]
		sum := sha256.Sum256(b)
		return append(b, sum[:]...)
	}
	for _, c := range []struct {
		name, want string
		change     func([]byte) []byte
	}{
		{"a bit", "corrupt or truncated", func(b []byte) []byte { b[len(b)/2] ^= 4; return b }},
		{"a byte less", "corrupt or truncated", func(b []byte) []byte { return b[:len(b)-1] }},
		{"nothing", "truncated: 0 bytes", func(b []byte) []byte { return nil }},
		{"only its name", "truncated: 19 bytes", func(b []byte) []byte { return b[:len(Magic)] }},
		{"something else", "begins with", func(b []byte) []byte { return append([]byte("PK"), b...) }},
		{"another version", "version is 2", func(b []byte) []byte { b[len(Magic)] = 2; return sealed(b) }},
		{"a header beyond the end", "part 1 needs 9223372036854775808 bytes", func(b []byte) []byte {
			binary.LittleEndian.PutUint64(b[len(Magic)+4:], 1<<63)
			return sealed(b)
		}},
		{"more after the session", "3 bytes follow its last part", func(b []byte) []byte { return sealed(append(b, 1, 2, 3)) }},
	} {
		path := filepath.Join(t.TempDir(), "snapshot")
		if err := os.WriteFile(path, c.change(slices.Clone(data)), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadGenerator(path, m); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error is %v", c.name, err)
		}
	}
	parts, err := format.ReadParts(data, 2)
	if err != nil {
		t.Fatal(err)
	}
	for want, replace := range map[string][2]string{
		"pending: token 0 is -1":     {`"pending":[`, `"pending":[-1,`},
		"pending: token 0 is 99999":  {`"pending":[`, `"pending":[99999,`},
		"pending: there is no token": {`"pending":[`, `"pending":[],"x":[`},
	} {
		header := strings.Replace(string(parts[0]), replace[0], replace[1], 1)
		if _, err := restoreGenerator(format.Append(nil, []byte(header), parts[1]), m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, needs %q", header, err, want)
		}
	}
	two, err := m.NewSession(2)
	if err != nil {
		t.Fatal(err)
	}
	session, err := two.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := restoreGenerator(format.Append(nil, parts[0], session), m); err == nil || !strings.Contains(err.Error(), "session: has 2 sequences") {
		t.Errorf("two sequences: error is %v", err)
	}
	if _, err := restoreGenerator(data, newModel(t, "fastmax", 2)); err == nil || !strings.Contains(err.Error(), "other weights") {
		t.Errorf("another model: %v", err)
	}
}

func FuzzRestore(f *testing.F) {
	m := newModel(f, "fastmax", 1)
	g := newGenerator(f, m, warm, 1, 2, 3)
	next(f, g, 2)
	data, err := g.appendBinary(nil)
	if err != nil {
		f.Fatal(err)
	}
	parts, err := format.ReadParts(data, 2)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(parts[0], parts[1])
	f.Fuzz(func(t *testing.T, header, session []byte) {
		data := format.Append(nil, header, check.SealSession(session))
		var g *Generator
		var err error
		if n := check.AllocatedBytes(func() { g, err = restoreGenerator(data, m) }); n > 16<<20+64*int64(len(data)) {
			t.Errorf("a text of %d bytes takes %d bytes of memory", len(data), n)
		}
		if err == nil {
			_ = g.Generate(context.Background(), 3, func(int32) error { return nil })
		}
	})
}

// A text whose prompt is absorbed keeps no memory of the prompt.
func TestPrefillLetsGoOfThePrompt(t *testing.T) {
	g := newGenerator(t, newModel(t, "fastmax", 1), warm, make([]int32, 5*prefillTokens+7)...)
	if err := g.Prefill(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(g.pending) != 7 || cap(g.pending) > prefillTokens {
		t.Errorf("%d tokens wait in memory of %d", len(g.pending), cap(g.pending))
	}
}

// A window begins at a place that depends on the length of the text alone. Its tokens are drawn
// after what the model has read from there on.
func TestLongTextsAreContinuedInWindows(t *testing.T) {
	m := newModel(t, "fastmax", 1)
	context := m.Config().Context
	prompt := make([]int32, 100)
	for i := range prompt {
		prompt[i] = int32(i * i % 23)
	}
	for _, begin := range [][]int32{nil, {5, 6}} {
		made := func(prompt ...int32) *Generator {
			g := newGenerator(t, m, Sampling{}, prompt...)
			if err := g.SetWindow(context, begin...); err != nil {
				t.Fatal(err)
			}
			return g
		}
		got := next(t, made(prompt...), 80)
		text := slices.Clone(prompt)
		begun := map[int]bool{}
		for i, id := range got {
			first := 0
			for end := context; len(text) > end; end += (context - len(begin) + 1) / 2 {
				first = end - (context-len(begin))/2
			}
			window := text[first:]
			if first > 0 {
				window = slices.Concat(begin, window)
			}
			if len(window) > context {
				t.Fatalf("a window of %d tokens", len(window))
			}
			begun[first] = true
			s, err := m.NewSession(1)
			if err != nil {
				t.Fatal(err)
			}
			logits, err := s.Step(t.Context(), window, len(window))
			if err != nil {
				t.Fatal(err)
			}
			if best, _ := top(logits); int32(best) != id {
				t.Fatalf("token %d is %d, behind its window the likeliest is %d", i, id, best)
			}
			text = append(text, id)
		}
		if len(begun) < 4 {
			t.Errorf("%d windows", len(begun))
		}
		// Token by token, saved and restored.
		g := made(prompt[:1]...)
		for _, id := range prompt[1:] {
			next(t, g, 0)
			if _, err := g.step(1); err != nil {
				t.Fatal(err)
			}
			g.pending = append(g.pending[:0], id)
		}
		var again []int32
		for len(again) < len(got) {
			again = append(again, next(t, g, 20)...)
			data, err := g.appendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			tokens := g.Tokens()
			if g, err = restoreGenerator(data, m); err != nil {
				t.Fatal(err)
			}
			if g.Tokens() != tokens || tokens != int64(len(prompt)+len(again)) {
				t.Errorf("%d tokens, restored %d", tokens, g.Tokens())
			}
			if g, err = g.Clone(); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(again, got) {
			t.Errorf("in pieces %v, want %v", again, got)
		}
	}
}

func TestUnfitWindowsAreRefused(t *testing.T) {
	m := newModel(t, "fastmax", 1)
	used := newGenerator(t, m, warm, 1)
	next(t, used, 2)
	for _, x := range []struct {
		g      *Generator
		window int
		begin  []int32
		want   string
	}{
		{newGenerator(t, m, warm), -1, nil, "window: is -1 tokens, 0 tokens begin it"},
		{newGenerator(t, m, warm), 2, []int32{1, 2}, "window: is 2 tokens, 2 tokens begin it"},
		{newGenerator(t, m, warm), 9, []int32{23}, "window: token 0 that begins it is 23, the model has 23"},
		{used, 9, nil, "window: the session has 2 tokens, it needs to be empty"},
	} {
		if err := x.g.SetWindow(x.window, x.begin...); err == nil || err.Error() != x.want {
			t.Errorf("error %v, want %s", err, x.want)
		}
	}
	long := newGenerator(t, m, warm, make([]int32, 60)...)
	next(t, long, 1)
	for _, x := range []struct {
		want   string
		change func(g *Generator)
	}{
		{"history: has 39 tokens, the session 40", func(g *Generator) { g.history = g.history[1:] }},
		{"history: has 40 tokens behind 21, which are no window of 40", func(g *Generator) { g.dropped++ }},
		{"history: token 0 is 23, the model has 23", func(g *Generator) { g.history[0] = 23 }},
		{"history: has 40 tokens behind 20, the session has no window", func(g *Generator) { g.window = 0 }},
	} {
		g, err := long.Clone()
		if err != nil {
			t.Fatal(err)
		}
		x.change(g)
		data, err := g.appendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := restoreGenerator(data, m); err == nil || err.Error() != x.want {
			t.Errorf("error %v, want %s", err, x.want)
		}
	}
}
