package score

import (
	"math"
	"strings"
	"testing"

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
	s, err := New(m, token.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func score(t testing.TB, s *Scorer, text string) Line {
	t.Helper()
	l, err := s.Score([]byte(text))
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
		restored, err := Restore(data, m, token.Bytes(), &note)
		if err != nil {
			t.Fatal(err)
		}
		if got := score(t, restored, text[cut:]); got != second || note["cut"] != cut || restored.Tokens() != s.Tokens() {
			t.Errorf("restored at %d: %+v, was %+v; note %v", cut, got, second, note)
		}
	}
}

func TestReset(t *testing.T) {
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

func TestRefusals(t *testing.T) {
	m := made(t, config, 3)
	data, err := scorer(t, m).AppendBinary(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	chars, err := token.Chars([]byte("abc"))
	if err != nil {
		t.Fatal(err)
	}
	learned, few := config, config
	learned.Positions = model.Learned
	few.Vocab = chars.Size()
	for want, f := range map[string]func() error{
		"of a model with other weights": func() error {
			var note int
			_, err := Restore(data, made(t, config, 4), token.Bytes(), &note)
			return err
		},
		"damaged": func() error {
			var note int
			bad := append([]byte{}, data...)
			bad[len(bad)/2] ^= 1
			_, err := Restore(bad, m, token.Bytes(), &note)
			return err
		},
		"the model learned 64 of them":     func() error { _, err := New(made(t, learned, 1), token.Bytes()); return err },
		"has 3 tokens, the model 256":      func() error { _, err := New(m, chars); return err },
		"vocabulary: has no end of a line": func() error { _, err := New(made(t, few, 1), chars); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func FuzzRestore(f *testing.F) {
	m := made(f, config, 3)
	s := scorer(f, m)
	score(f, s, text)
	data, err := s.AppendBinary(nil, 1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:100])
	f.Fuzz(func(t *testing.T, data []byte) {
		var note any
		if s, err := Restore(data, m, token.Bytes(), &note); err == nil {
			score(t, s, text)
		}
	})
}
