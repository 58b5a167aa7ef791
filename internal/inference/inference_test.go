package inference

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tokenizer"
)

// saveTinyModel saves a decoder of a seed and a vocabulary, and opens it.
func saveTinyModel(t *testing.T, seed uint64, vocab *token.Vocabulary) *Model {
	t.Helper()
	return saveModelOfRows(t, seed, vocab, vocab.Size())
}

// saveModelOfRows is saveTinyModel with a number of rows.
func saveModelOfRows(t *testing.T, seed uint64, vocab *token.Vocabulary, rows int) *Model {
	t.Helper()
	m, err := model.New(model.Config{Kind: model.Decoder, Vocab: rows, Layers: 1, Heads: 1, Width: 8, Context: 16,
		Positions: model.Rotary, Mechanism: "softmax"}, rng.New(seed))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := checkpoint.SaveModel(dir, m, vocab); err != nil {
		t.Fatal(err)
	}
	open, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return open
}

func TestIdentityChangesWithWeightsAndTokens(t *testing.T) {
	chars := func(text string) *token.Vocabulary {
		v, err := token.NewCharVocabulary([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var list []string
	for _, m := range []*Model{saveTinyModel(t, 1, chars("abc")), saveTinyModel(t, 1, chars("abc")), saveTinyModel(t, 2, chars("abc")), saveTinyModel(t, 1, chars("abd"))} {
		id, err := m.Identity()
		if err != nil || len(id) != 64 {
			t.Fatalf("identity %q, %v", id, err)
		}
		list = append(list, id)
	}
	if list[0] != list[1] {
		t.Errorf("equal models have the identities %s and %s", list[0], list[1])
	}
	for i, what := range []string{"weights", "vocabularies"} {
		if list[0] == list[2+i] {
			t.Errorf("models of other %s have one identity", what)
		}
	}
}

func TestIDsBeyondTheTokenizerHaveAReplacementCharacter(t *testing.T) {
	words, err := tokenizer.Train(t.Context(), nil, 256)
	if err != nil {
		t.Fatal(err)
	}
	m := saveModelOfRows(t, 1, token.NewTokenizerVocabulary(words), 1000)
	if b, err := m.Bytes(nil, 999); err != nil || string(b) != "\ufffd" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := m.Bytes(nil, 1000); err == nil {
		t.Error("token 1000 of 1000 has bytes")
	}
}

func TestTextModelOfARunEncodesItsVocabulary(t *testing.T) {
	m := saveTinyModel(t, 1, token.NewByteVocabulary())
	ids, err := m.Encode("aé", true)
	if want := []int32{'a', 0xc3, 0xa9}; err != nil || !slices.Equal(ids, want) {
		t.Fatalf("%v, %v, want %v", ids, err, want)
	}
	var back []byte
	for _, id := range ids {
		if back, err = m.Bytes(back, id); err != nil {
			t.Fatal(err)
		}
	}
	if string(back) != "aé" || m.Family() != "farfield" || len(m.EndTokens()) > 0 || m.ChatTemplate() != "" {
		t.Errorf("%q, family %s, end tokens %v, template %q", back, m.Family(), m.EndTokens(), m.ChatTemplate())
	}
	if _, err := m.Bytes(nil, 256); err == nil || !strings.Contains(err.Error(), "token 256 is not in the vocabulary of 256") {
		t.Error(err)
	}
	if err := m.CheckNextTokens(); err != nil {
		t.Error(err)
	}
}

func TestContinuationHasNoSpaceBeforeIt(t *testing.T) {
	words, err := tokenizer.Train(t.Context(), []byte(strings.Repeat("the cat sat\n", 20)), 270)
	if err != nil {
		t.Fatal(err)
	}
	for change, want := range map[[2]string][2]string{
		{`"pre_tokenizer":{"add_prefix_space":false`, `"pre_tokenizer":{"add_prefix_space":true`}: {" the Cat", "the Cat"},
		{`"normalizer":null`, `"normalizer":{"type":"Lowercase"}`}:                                {"the cat", "the cat"},
	} {
		changed, err := tokenizer.Parse([]byte(strings.Replace(string(words.JSON()), change[0], change[1], 1)))
		if err != nil {
			t.Fatal(err)
		}
		m := saveTinyModel(t, 1, token.NewTokenizerVocabulary(changed))
		for i, tokens := range []int64{0, 3} {
			ids, err := m.EncodeContinuation("the Cat", tokens)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := m.vocab.Decode(nil, ids...); err != nil || string(text) != want[i] {
				t.Errorf("%s: behind %d tokens the text is %q, %v, want %q", change[1], tokens, text, err, want[i])
			}
		}
	}
}
