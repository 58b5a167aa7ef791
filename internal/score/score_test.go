package score

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

var config = model.Config{
	Kind: model.Decoder, Vocab: 256, Layers: 2, Heads: 2, Width: 16, Context: 64,
	Positions: model.Rotary, Mechanism: "fastmax", Tied: true, Conv: 3,
}

// made returns a model whose weights are awake.
func made(t testing.TB, c model.Config, seed uint64) *model.Model {
	t.Helper()
	m, err := model.New(c, rng.New(seed))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range m.Params().All() {
		key := rng.New(seed).Fold(uint64(i))
		for j := range p.Data {
			p.Data[j] += float32(0.2 * key.Normal(uint64(j)))
		}
	}
	return m
}

func scorer(t testing.TB, m *model.Model) *Scorer {
	t.Helper()
	s, err := New(m, token.NewByteVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func score(t testing.TB, s *Scorer, text string) LineScore {
	t.Helper()
	l, err := s.ScoreText(t.Context(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const text = "It was a bright cold day in April,\nand the clocks\n\nwere striking thirteen.\n"

// A text takes what the model loses on it after the end of a line.
func TestScoreIsTheLoss(t *testing.T) {
	m := made(t, config, 3)
	b := &model.Batch{B: 1, N: len(text)}
	last := byte('\n')
	for _, c := range []byte(text) {
		b.Tokens, b.Targets = append(b.Tokens, int32(last)), append(b.Targets, int32(c))
		last = c
	}
	nats := make([]float64, b.N)
	if err := m.Losses(t.Context(), b, nats); err != nil {
		t.Fatal(err)
	}
	var want float64
	for _, x := range nats {
		want += x / math.Ln2
	}
	whole := scorer(t, m)
	if err := whole.SetWindow(0); err != nil {
		t.Fatal(err)
	}
	got := score(t, whole, text)
	// Of each token the limit of its logits, which here are below 30, twice.
	if got.Bytes != int64(len(text)) || math.Abs(got.Bits-want) > 2*64*0x1p-24*30*float64(len(text)) {
		t.Errorf("%+v, the loss is %v bits", got, want)
	}
}

// A text beyond the trained context takes the losses of windows, each of which repeats a quarter of
// the one before and counts the targets that this one does not have.
func TestTextsBeyondTheContextAreScoredInWindows(t *testing.T) {
	const window = 20
	for _, x := range []struct {
		mechanism      string
		positions      model.Positions
		context, table int
	}{
		{"fastmax", model.Rotary, window, 0},
		{"softmax", model.NoPosition, window, 0},
		{"fastmax", model.Learned, window, 0},
		{"fastmax", model.Learned, 64, window},
		{"fastmax", model.Learned, window, 64},
	} {
		c := config
		c.Mechanism, c.Positions, c.Context, c.PositionTable = x.mechanism, x.positions, x.context, x.table
		checkWindows(t, made(t, c, 3), window)
	}
}

// A long window is read by the session, to the same losses.
func TestLongWindowsAreScoredAsShortOnes(t *testing.T) {
	c := config
	c.Context, c.Layers = batchTokens+100, 1
	m := made(t, c, 3)
	ids := make([]int32, c.Context+400)
	for i := range ids {
		ids[i] = int32(' ' + rng.New(5).Intn(uint64(i), 64))
	}
	long := make([]byte, len(ids))
	for i, id := range ids {
		long[i] = byte(id)
	}
	nats := make([]float64, c.Context)
	begin := c.Context - c.Context/4 // of the second window in the inputs, of which the first is a line break
	b := &model.Batch{B: 1, N: len(ids) - begin, Tokens: ids[begin-1 : len(ids)-1], Targets: ids[begin:]}
	if err := m.Losses(t.Context(), b, nats[:b.N]); err != nil {
		t.Fatal(err)
	}
	var want float64
	for _, x := range nats[c.Context/4 : b.N] {
		want += x / math.Ln2
	}
	s := scorer(t, m)
	score(t, s, string(long[:c.Context]))
	got := score(t, s, string(long[c.Context:]))
	if math.Abs(got.Bits-want) > 2*64*0x1p-24*30*float64(got.Bytes) {
		t.Errorf("%v bits behind the first window, the second window has %v", got.Bits, want)
	}
}

// checkWindows compares the score of a text with the losses of windows.
func checkWindows(t *testing.T, m *model.Model, window int) {
	t.Helper()
	ids := []int32{'\n'}
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	var want float64
	counted := 0 // targets
	for begin := 0; counted < len(ids)-1; begin += window - window/4 {
		end := min(begin+window, len(ids)-1)
		b := &model.Batch{B: 1, N: end - begin, Tokens: ids[begin:end], Targets: ids[begin+1 : end+1]}
		nats := make([]float64, b.N)
		if err := m.Losses(t.Context(), b, nats); err != nil {
			t.Fatal(err)
		}
		for _, x := range nats[counted-begin:] {
			want += x / math.Ln2
		}
		counted = end
	}
	whole := scorer(t, m)
	got := score(t, whole, text)
	// The limit of TestScoreIsTheLoss.
	if got.Bytes != int64(len(text)) || math.Abs(got.Bits-want) > 2*64*0x1p-24*30*float64(len(text)) || !whole.InWindows() || whole.Window() != window {
		t.Errorf("%+v in windows of %d, the windows have %v bits", got, whole.Window(), want)
	}
	for _, cut := range []int{1, 19, 20, 21, 35, 36, 45} {
		s := scorer(t, m)
		first := score(t, s, text[:cut])
		if s.InWindows() != (cut > window) {
			t.Errorf("a text of %d tokens is in windows: %t", cut, s.InWindows())
		}
		second := score(t, s, text[cut:])
		if sum := first.Add(second); math.Abs(sum.Bits-got.Bits) > 0x1p-52*float64(len(text))*got.Bits || s.Tokens() != int64(len(text)) {
			t.Errorf("cut at %d: %+v and %+v, the whole %+v; %d tokens", cut, first, second, got, s.Tokens())
		}
	}
}

// Without windows a session has the whole text.
func TestTextGoesOnInOneSessionWhenAsked(t *testing.T) {
	long := config
	long.Context = 1 << 10
	want := score(t, scorer(t, made(t, long, 3)), strings.Repeat(text, 3))
	s := scorer(t, made(t, config, 3))
	windows := score(t, s, strings.Repeat(text, 3))
	if err := s.SetWindow(0); err != nil {
		t.Fatal(err)
	}
	if got := score(t, s, strings.Repeat(text, 3)); got != want || got == windows || s.InWindows() {
		t.Errorf("%+v, a model of a longer context has %+v, windows %+v", got, want, windows)
	}
}

func TestUnfitWindowsAreRefused(t *testing.T) {
	learned := config
	learned.Positions = model.Learned
	for _, x := range []struct {
		c      model.Config
		window int
		want   string
	}{
		{config, -1, "window: is -1 tokens, 0 tokens begin a text"},
		{learned, 65, "window: is 65 tokens, the model learned 64 positions"},
		{learned, 0, "window: is 0 tokens, the model learned 64 positions"},
	} {
		if err := scorer(t, made(t, x.c, 3)).SetWindow(x.window); err == nil || err.Error() != x.want {
			t.Errorf("error %v, want %s", err, x.want)
		}
	}
}

// Parts of a text take what the whole takes, but for the order of their sum.
func TestPartsAddUp(t *testing.T) {
	m := made(t, config, 3)
	whole := score(t, scorer(t, m), text)
	for _, cut := range []int{1, 7, 35, len(text) - 1} {
		s := scorer(t, m)
		first := score(t, s, text[:cut])
		second := score(t, s, text[cut:])
		if sum := first.Add(second); math.Abs(sum.Bits-whole.Bits) > 0x1p-52*float64(len(text))*whole.Bits || sum.Bytes != whole.Bytes {
			t.Errorf("cut at %d: %+v and %+v, the whole %+v", cut, first, second, whole)
		}
	}
}

// Lines that are scored together have the bits of lines one by one, with any threads;
// those before a refused one are added.
func TestLinesTogetherScoreAsAlone(t *testing.T) {
	defer par.SetThreads(0)
	m := made(t, config, 3)
	var lines [][]byte
	for i := range 60 {
		lines = append(lines, fmt.Appendf(nil, "line %d %s\n", i*i, strings.Repeat("of a log ", i%7)), nil)
	}
	var want []LineScore
	alone := scorer(t, m)
	for _, l := range lines {
		want = append(want, score(t, alone, string(l)))
	}
	for _, threads := range []int{1, 2, 3} {
		par.SetThreads(threads)
		for _, size := range []int{1, 7, len(lines)} {
			s, err := alone.Clone()
			if err != nil {
				t.Fatal(err)
			}
			var got []LineScore
			for some := range slices.Chunk(lines, size) {
				if got, err = s.ScoreLines(t.Context(), got, some...); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(got, want) || s.Tokens() != alone.Tokens() {
				t.Errorf("%d threads, %d lines at a time: other bits than line by line", threads, size)
			}
		}
	}
	chars, err := token.NewCharVocabulary([]byte("ab\n"))
	if err != nil {
		t.Fatal(err)
	}
	few := config
	few.Vocab = chars.Size()
	s, err := New(made(t, few, 3), chars)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.ScoreLines(t.Context(), nil, []byte("ab\n"), []byte("ax\n"), []byte("b\n")); err == nil || len(got) != 1 || s.Tokens() != 3 {
		t.Errorf("before a refused line there are %v, %d tokens, error %v", got, s.Tokens(), err)
	}
}

// A model whose numbers overflow has no score.
func TestScoreThatIsNoNumberIsAnError(t *testing.T) {
	m := made(t, config, 3)
	m.Params().All()[0].Data[int('x')*config.Width] = float32(math.Inf(1))
	if l, err := scorer(t, m).ScoreText(t.Context(), []byte("xxx")); !errors.Is(err, attention.ErrNonFinite) {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestResetForgetsTheText(t *testing.T) {
	s := scorer(t, made(t, config, 3))
	first := score(t, s, text)
	if again := score(t, s, text); again == first {
		t.Error("the text before changes nothing")
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	if again := score(t, s, text); again != first {
		t.Errorf("%+v after a reset, %+v at first", again, first)
	}
}

func TestUnfitModelsAreRefused(t *testing.T) {
	m := made(t, config, 3)
	chars, err := token.NewCharVocabulary([]byte("abc"))
	if err != nil {
		t.Fatal(err)
	}
	few, encoder, numbers := config, config, config
	numbers.Loss, numbers.Outputs, numbers.Tied = model.Squared, 2, false
	encoder.Kind, encoder.Tied, encoder.Conv = model.Encoder, false, 0
	few.Vocab = chars.Size()
	for want, f := range map[string]func() error{
		"model: it is nil":                             func() error { _, err := New(nil, chars); return err },
		"has 3 tokens, the model 256":                  func() error { _, err := New(m, chars); return err },
		"kind is encoder, needs decoder":               func() error { _, err := New(made(t, encoder, 1), token.NewByteVocabulary()); return err },
		"vocabulary: has no end of a line":             func() error { _, err := New(made(t, few, 1), chars); return err },
		`has 2 outputs and the loss "squared", tokens`: func() error { _, err := New(made(t, numbers, 1), token.NewByteVocabulary()); return err },
		"vocabulary: missing":                          func() error { _, err := New(m, nil); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Text that is refused is not added.
func TestNothingIsAddedAfterAnError(t *testing.T) {
	chars, err := token.NewCharVocabulary([]byte("ab\n"))
	if err != nil {
		t.Fatal(err)
	}
	few := config
	few.Vocab = chars.Size()
	m := made(t, few, 3)
	s, err := New(m, chars)
	if err != nil {
		t.Fatal(err)
	}
	want := score(t, s, "ab")
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	if l, err := s.ScoreText(t.Context(), []byte("aax")); err == nil || err.Error() != "character 'x' at offset 2 is not in the vocabulary of 3 characters" || l != (LineScore{}) {
		t.Errorf("%+v, %v", l, err)
	}
	if l := score(t, s, ""); l != (LineScore{}) || s.Tokens() != 0 {
		t.Errorf("nothing is %+v, there are %d tokens", l, s.Tokens())
	}
	if l := score(t, s, "ab"); l != want || s.Tokens() != 2 {
		t.Errorf("%+v and %d tokens behind the error, want %+v", l, s.Tokens(), want)
	}
}

// What a mechanism that streams remembers does not grow with the text.
func TestStreamingStateDoesNotGrowWithTheText(t *testing.T) {
	for mechanism, grows := range map[string]bool{"fastmax": false, "softmax": true} {
		c := config
		c.Mechanism = mechanism
		s := scorer(t, made(t, c, 3))
		if err := s.SetWindow(0); err != nil {
			t.Fatal(err)
		}
		score(t, s, text)
		before := s.Bytes()
		score(t, s, strings.Repeat(text, 9))
		if after := s.Bytes(); before <= 0 || after > before != grows {
			t.Errorf("%s: %d bytes, nine times as much later %d", mechanism, before, after)
		}
	}
}

// The session after a loss that is not finite no longer has the text: later scores would
// be of another.
func TestScorerRefusesTextAfterLossThatIsNotFinite(t *testing.T) {
	c := config
	c.Mechanism, c.Set, c.Tied, c.Conv = "local", map[string]string{"span": "2"}, false, 0
	m := made(t, c, 3)
	m.Params().All()[0].Data['z'*c.Width] = float32(math.NaN())
	s := scorer(t, m)
	score(t, s, "hello world, ")
	_, err := s.ScoreText(t.Context(), []byte("abczq"))
	if !errors.Is(err, attention.ErrNonFinite) {
		t.Fatalf("error %v", err)
	}
	for range 20 {
		if l, again := s.ScoreText(t.Context(), []byte("a")); !errors.Is(again, err) {
			t.Fatalf("the text went on with %+v, %v", l, again)
		}
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	if got, want := score(t, s, "hello"), score(t, scorer(t, m), "hello"); got != want {
		t.Errorf("after Reset %+v, want %+v", got, want)
	}
}
