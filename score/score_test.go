package score

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/token"
)

var config = model.Config{
	Kind: model.Decoder, Vocab: 256, Layers: 2, Heads: 2, Width: 16, Context: 64,
	Positions: model.Rotary, Mechanism: "fastmax", Tied: true, Conv: 3,
}

// made returns a model whose weights are awake.
func made(t testing.TB, c model.Config, seed uint64) *model.Model[float32] {
	t.Helper()
	m, err := model.New[float32](c, rng.New(seed))
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

func scorer(t testing.TB, m *model.Model[float32]) *Scorer {
	t.Helper()
	s, err := New(m, token.NewByteVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func score(t testing.TB, s *Scorer, text string) LineScore {
	t.Helper()
	l, err := s.ScoreText([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const text = "It was a bright cold day in April,\nand the clocks\n\nwere striking thirteen.\n"

// A text takes what the model loses on it behind the end of a line.
func TestScoreIsTheLoss(t *testing.T) {
	m := made(t, config, 3)
	b := &model.Batch{B: 1, N: len(text)}
	last := byte('\n')
	for _, c := range []byte(text) {
		b.Tokens, b.Targets = append(b.Tokens, int32(last)), append(b.Targets, int32(c))
		last = c
	}
	nats := make([]float64, b.N)
	if err := m.Losses(b, nats); err != nil {
		t.Fatal(err)
	}
	var want float64
	for _, x := range nats {
		want += x / math.Ln2
	}
	got := score(t, scorer(t, m), text)
	// Of each token the limit of its logits, which here are below 30, twice.
	if got.Bytes != int64(len(text)) || math.Abs(got.Bits-want) > 2*64*0x1p-24*30*float64(len(text)) {
		t.Errorf("%+v, the loss is %v bits", got, want)
	}
}

// A text beyond the learned positions takes the losses of windows that begin half a window
// after each other, where each counts the targets that the window before does not have.
func TestLearnedPositionsAreScoredInWindows(t *testing.T) {
	const window = 20
	for _, x := range []struct{ context, table int }{{window, 0}, {8, window}, {64, window}} {
		c := config
		c.Positions, c.Context, c.PositionTable = model.Learned, x.context, x.table
		checkWindows(t, made(t, c, 3), window)
	}
}

// checkWindows compares the score of a text with the losses of windows.
func checkWindows(t *testing.T, m *model.Model[float32], window int) {
	t.Helper()
	ids := []int32{'\n'}
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	var want float64
	counted := 1 // tokens that are no target any more
	for begin := 0; counted < len(ids); begin += window / 2 {
		end := min(begin+window, len(ids))
		b := &model.Batch{B: 1, N: end - begin - 1, Tokens: ids[begin : end-1], Targets: ids[begin+1 : end]}
		nats := make([]float64, b.N)
		if err := m.Losses(b, nats); err != nil {
			t.Fatal(err)
		}
		for _, x := range nats[counted-begin-1:] {
			want += x / math.Ln2
		}
		counted = end
	}
	whole := score(t, scorer(t, m), text)
	// The limit of TestScoreIsTheLoss.
	if whole.Bytes != int64(len(text)) || math.Abs(whole.Bits-want) > 2*64*0x1p-24*30*float64(len(text)) {
		t.Errorf("%+v, the windows have %v bits", whole, want)
	}
	for _, cut := range []int{1, 19, 20, 21, 45} {
		s := scorer(t, m)
		first := score(t, s, text[:cut])
		data, err := s.AppendBinary(nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		restored, err := RestoreScorer(data, m, token.NewByteVocabulary(), nil)
		if err != nil {
			t.Fatal(err)
		}
		second := score(t, restored, text[cut:])
		if sum := first.Add(second); math.Abs(sum.Bits-whole.Bits) > 0x1p-52*float64(len(text))*whole.Bits || restored.Tokens() != int64(len(text)) {
			t.Errorf("cut at %d: %+v and %+v, the whole %+v; %d tokens", cut, first, second, whole, restored.Tokens())
		}
	}
}

// Parts of a text take what the whole takes, and so does a text that was saved and
// restored in between, but for the order of their sum.
func TestPartsAddUp(t *testing.T) {
	m := made(t, config, 3)
	whole := score(t, scorer(t, m), text)
	for _, cut := range []int{1, 7, 35, len(text) - 1} {
		s := scorer(t, m)
		first := score(t, s, text[:cut])
		data, err := s.AppendBinary(nil, map[string]int{"cut": cut})
		if err != nil {
			t.Fatal(err)
		}
		second := score(t, s, text[cut:])
		if sum := first.Add(second); math.Abs(sum.Bits-whole.Bits) > 0x1p-52*float64(len(text))*whole.Bits || sum.Bytes != whole.Bytes {
			t.Errorf("cut at %d: %+v and %+v, the whole %+v", cut, first, second, whole)
		}
		var note map[string]int
		restored, err := RestoreScorer(data, m, token.NewByteVocabulary(), &note)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := RestoreScorer(data, m, token.NewByteVocabulary(), nil); err != nil {
			t.Errorf("without its note: %v", err)
		}
		if got := score(t, restored, text[cut:]); got != second || note["cut"] != cut || restored.Tokens() != s.Tokens() {
			t.Errorf("restored at %d: %+v, was %+v; note %v", cut, got, second, note)
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
				if got, err = s.ScoreLines(got, some...); err != nil {
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
	if got, err := s.ScoreLines(nil, []byte("ab\n"), []byte("ax\n"), []byte("b\n")); err == nil || len(got) != 1 || s.Tokens() != 3 {
		t.Errorf("before a refused line there are %v, %d tokens, error %v", got, s.Tokens(), err)
	}
}

// A model whose numbers overflow has no score.
func TestScoreThatIsNoNumberIsAnError(t *testing.T) {
	m := made(t, config, 3)
	m.Params().All()[0].Data[int('x')*config.Width] = float32(math.Inf(1))
	if l, err := scorer(t, m).ScoreText([]byte("xxx")); !errors.Is(err, attention.ErrNonFinite) {
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

func TestUnfitModelsAndSnapshotsAreRefused(t *testing.T) {
	m := made(t, config, 3)
	data, err := scorer(t, m).AppendBinary(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	chars, err := token.NewCharVocabulary([]byte("abc"))
	if err != nil {
		t.Fatal(err)
	}
	learned, few, encoder, numbers := config, config, config, config
	numbers.Loss, numbers.Outputs, numbers.Tied = model.Squared, 2, false
	learned.Positions, learned.Context = model.Learned, 1
	encoder.Kind, encoder.Tied, encoder.Conv = model.Encoder, false, 0
	few.Vocab = chars.Size()
	for want, f := range map[string]func() error{
		"model: it is nil": func() error { _, err := New(nil, chars); return err },
		"of a model with other weights": func() error {
			var note int
			_, err := RestoreScorer(data, made(t, config, 4), token.NewByteVocabulary(), &note)
			return err
		},
		"damaged": func() error {
			var note int
			bad := append([]byte{}, data...)
			bad[len(bad)/2] ^= 1
			_, err := RestoreScorer(bad, m, token.NewByteVocabulary(), &note)
			return err
		},
		"the model learned 1, a window needs 2": func() error { _, err := New(made(t, learned, 1), token.NewByteVocabulary()); return err },
		"has 3 tokens, the model 256": func() error {
			var note int
			_, err := RestoreScorer(data, m, chars, &note)
			return err
		},
		"kind is encoder, needs decoder":               func() error { _, err := New(made(t, encoder, 1), token.NewByteVocabulary()); return err },
		"vocabulary: has no end of a line":             func() error { _, err := New(made(t, few, 1), chars); return err },
		`has 2 outputs and the loss "squared", tokens`: func() error { _, err := New(made(t, numbers, 1), token.NewByteVocabulary()); return err },
		"vocabulary: missing":                          func() error { _, err := New(m, nil); return err },
		"note: json: cannot unmarshal number": func() error {
			var note string
			s, err := RestoreScorer(data, m, token.NewByteVocabulary(), &note)
			if s != nil {
				t.Error("a text beside an error")
			}
			return err
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What a snapshot says without its model is whose it is, and the caller's note.
func TestReadNoteNeedsNoModel(t *testing.T) {
	m := made(t, config, 3)
	s := scorer(t, m)
	score(t, s, text)
	data, err := s.AppendBinary([]byte("before"), map[string]int{"line": 7})
	if err != nil {
		t.Fatal(err)
	}
	data, ok := bytes.CutPrefix(data, []byte("before"))
	if !ok {
		t.Fatal("the snapshot is not appended")
	}
	var note map[string]int
	weights, err := ReadNote(bytes.NewReader(data), int64(len(data)), &note)
	if err != nil || weights != m.WeightSum() || len(note) != 1 || note["line"] != 7 {
		t.Errorf("weights %s, note %v, %v; the model's are %s", weights, note, err, m.WeightSum())
	}
	if kept, err := s.AppendBinary([]byte("before"), make(chan int)); err == nil || err.Error() != "json: unsupported type: chan int" || string(kept) != "before" {
		t.Errorf("a note that is no JSON: %q, %v", kept, err)
	}
}

// A snapshot whose checksum holds may have been made by anybody.
func TestSnapshotsOfStrangers(t *testing.T) {
	m := made(t, config, 3)
	session := func(batch int) []byte {
		s, err := m.NewSession(batch)
		if err != nil {
			t.Fatal(err)
		}
		data, err := s.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	says := func(pending int, note string) string {
		return fmt.Sprintf(`{"weights_sha256":%q,"pending":%d,"note":%s}`, m.WeightSum(), pending, note)
	}
	for _, c := range []struct {
		name, text string
		session    []byte
		restore    string // the error of Restore; "": there is none
		read       string // of ReadNote
	}{
		{"good", says(10, "7"), session(1), "", ""},
		{"half a text", "{", session(1), "unexpected end of JSON input", "unexpected end of JSON input"},
		{"another note", says(10, `"x"`), session(1), "note: json: cannot unmarshal string into Go value of type int", "note: json: cannot unmarshal string into Go value of type int"},
		{"token below", says(-1, "7"), session(1), "pending: token is -1, the vocabulary has 256", ""},
		{"token above", says(256, "7"), session(1), "pending: token is 256, the vocabulary has 256", ""},
		{"no session", says(10, "7"), nil, "session: not a snapshot of a session", ""},
		{"two texts", says(10, "7"), session(2), "session: has 2 sequences, a text is one", ""},
	} {
		data := framed.Append(nil, Magic, version, []byte(c.text), c.session)
		check := func(what string, err error, want string, note int) {
			t.Helper()
			if want == "" && (err != nil || note != 7) || want != "" && (err == nil || err.Error() != want) {
				t.Errorf("%s, %s: note %d, error %v, want %q", c.name, what, note, err, want)
			}
		}
		var restored, read int
		_, err := RestoreScorer(data, m, token.NewByteVocabulary(), &restored)
		check("Restore", err, c.restore, restored)
		_, err = ReadNote(bytes.NewReader(data), int64(len(data)), &read)
		check("ReadNote", err, c.read, read)
	}
	var note int
	data := framed.Append(nil, Magic, version+1, []byte(says(10, "7")), session(1))
	if _, err := ReadNote(bytes.NewReader(data), int64(len(data)), &note); err == nil || err.Error() != "version is 2, this program reads 1" {
		t.Errorf("another version: %v", err)
	}
}

func TestHistoriesLongerThanTheWindowAreRefused(t *testing.T) {
	c := config
	c.Positions, c.Context = model.Learned, 20
	m := made(t, c, 3)
	session, err := m.NewSession(1)
	if err != nil {
		t.Fatal(err)
	}
	history := make([]int32, 20)
	if _, err := session.Step(history, len(history)); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(scorerSnapshot{Weights: m.WeightSum(), History: history})
	if err != nil {
		t.Fatal(err)
	}
	state, err := session.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	data := framed.Append(nil, Magic, version, text, state)
	if _, err := RestoreScorer(data, m, token.NewByteVocabulary(), nil); err == nil || err.Error() != "history: has 20 tokens, a window of 20 at most 19" {
		t.Errorf("error %v", err)
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
	if l, err := s.ScoreText([]byte("aax")); err == nil || err.Error() != "character 'x' at offset 2 is not in the vocabulary of 3 characters" || l != (LineScore{}) {
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
		score(t, s, text)
		before := s.Bytes()
		score(t, s, strings.Repeat(text, 9))
		if after := s.Bytes(); before <= 0 || after > before != grows {
			t.Errorf("%s: %d bytes, nine times as much later %d", mechanism, before, after)
		}
	}
}

// FuzzRestore restores texts with valid checksums, in bounded memory. A text is refused, or
// continues.
func FuzzRestore(f *testing.F) {
	m := made(f, config, 3)
	s := scorer(f, m)
	score(f, s, text)
	data, err := s.AppendBinary(nil, 1)
	if err != nil {
		f.Fatal(err)
	}
	parts, err := framed.ReadParts(data, Magic, version, 2)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(parts[0], parts[1])
	f.Add(parts[0], parts[1][:100])
	f.Fuzz(func(t *testing.T, header, session []byte) {
		data := framed.Append(nil, Magic, version, header, check.SealSession(session))
		var s *Scorer
		var note any
		var err error
		if n := check.AllocatedBytes(func() { s, err = RestoreScorer(data, m, token.NewByteVocabulary(), &note) }); n > 16<<20+64*int64(len(data)) {
			t.Errorf("a text of %d bytes takes %d bytes of memory", len(data), n)
		}
		if err == nil {
			if _, err = s.ScoreText([]byte(text)); err != nil && !errors.Is(err, attention.ErrNonFinite) {
				t.Error(err)
			}
		}
	})
}

// The session behind a loss that is not finite no longer has the text: later scores would
// be of another.
func TestScorerRefusesTextAfterLossThatIsNotFinite(t *testing.T) {
	c := config
	c.Mechanism, c.Set, c.Tied, c.Conv = "local", map[string]string{"span": "2"}, false, 0
	m := made(t, c, 3)
	m.Params().All()[0].Data['z'*c.Width] = float32(math.NaN())
	s := scorer(t, m)
	score(t, s, "hello world, ")
	_, err := s.ScoreText([]byte("abczq"))
	if !errors.Is(err, attention.ErrNonFinite) {
		t.Fatalf("error %v", err)
	}
	for range 20 {
		if l, again := s.ScoreText([]byte("a")); !errors.Is(again, err) {
			t.Fatalf("the text went on with %+v, %v", l, again)
		}
	}
	if _, again := s.AppendBinary(nil, 0); !errors.Is(again, err) {
		t.Errorf("saved with error %v", again)
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	if got, want := score(t, s, "hello"), score(t, scorer(t, m), "hello"); got != want {
		t.Errorf("after Reset %+v, want %+v", got, want)
	}
}
