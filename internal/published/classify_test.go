package published

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/tokenizer"
)

// openClassifier opens a tiny BERT with a head and the tokenizer of testdata. members are
// added to its config.json.
func openClassifier(t *testing.T, architecture, members string) *Model {
	t.Helper()
	dir := t.TempDir()
	writeFolder(t, dir, strings.Replace(tinyConfigs["bert"], "BertModel", architecture, 1)[:len(tinyConfigs["bert"])-len("BertModel")+len(architecture)-1]+members+"}")
	words, err := os.ReadFile("../../pretrained/testdata/tiny/vocab.txt")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "vocab.txt"), words, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestClassesOfTextsTogetherEqualThemAlone(t *testing.T) {
	t.Parallel()
	texts := []string{"the cat sat", "a dog ran in the rain", "sun", "the sun plays on the mat, the dog runs in rain and sun and rain!"}
	for _, c := range []struct {
		architecture string
		kind         ClassKind
	}{{"BertForSequenceClassification", SingleLabel}, {"BertForTokenClassification", TokenLabels}} {
		m := openClassifier(t, c.architecture, `,"id2label":{"0":"bad","1":"good","2":"fair"}`)
		if kind, labels := m.ClassKind(), m.Labels(); kind != c.kind || !slices.Equal(labels, []string{"bad", "good", "fair"}) {
			t.Fatalf("%s: kind %d, labels %q", c.architecture, kind, labels)
		}
		all, err := m.Classify(t.Context(), texts)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range texts {
			e := m.Tokenizer().Encode(text)
			ids := e.IDs
			if cut := len(ids) > 16; cut {
				ids = append(slices.Clone(ids[:15]), ids[len(ids)-1])
				if !all[i].IsTruncated {
					t.Errorf("%q: has %d tokens of 16 positions and is not cut", text, len(e.IDs))
				}
			}
			out, err := m.Forward(t.Context(), &Input{B: 1, N: len(ids), IDs: ids})
			if err != nil {
				t.Fatal(err)
			}
			want, err := out.Logits.Float32()
			if err != nil {
				t.Fatal(err)
			}
			if c.kind == TokenLabels {
				want = want[3 : len(want)-3]
				for j, o := range all[i].Offsets {
					if o != e.Offsets[j+1] {
						t.Errorf("%q: offsets of token %d are %v, want %v", text, j, o, e.Offsets[j+1])
					}
				}
			}
			if all[i].Tokens != len(e.IDs) || len(all[i].Logits) != len(want) {
				t.Fatalf("%q: %d tokens, %d logits, want %d and %d", text, all[i].Tokens, len(all[i].Logits), len(e.IDs), len(want))
			}
			for j, x := range all[i].Logits {
				if math.Abs(float64(x-want[j])) > 1e-6 {
					t.Errorf("%q: logit %d is %g, alone %g", text, j, x, want[j])
				}
			}
		}
	}
}

// TestClassesOfPairsReadTypesAndCutTheLongerText compares with a pass over ids that are put
// together by hand.
func TestClassesOfPairsReadTypesAndCutTheLongerText(t *testing.T) {
	t.Parallel()
	m := openClassifier(t, "BertForSequenceClassification", `,"id2label":{"0":"bad","1":"good","2":"fair"}`)
	words := func(text string) []int32 { return m.Tokenizer().EncodePlain(text).IDs }
	long, middle := strings.Repeat("sun rain ", 10), "the cat sat on the mat a dog ran"
	compared := 0
	for _, c := range []struct {
		pair        [2]string
		left, right int // tokens of 13 beside [CLS] and two [SEP]
	}{
		{[2]string{"the cat", "a dog ran"}, 2, 3}, {[2]string{long, "a dog"}, 11, 2}, {[2]string{"a dog", long}, 2, 11},
		{[2]string{long, middle}, 7, 6}, {[2]string{middle, long}, 6, 7}, {[2]string{"", "a dog"}, 0, 2},
	} {
		a, b := words(c.pair[0]), words(c.pair[1])
		got, err := m.ClassifyPairs(t.Context(), [][2]string{c.pair, {"sun", "rain"}})
		if err != nil {
			t.Fatal(err)
		}
		if want := len(a)+len(b)+3 > 16; got[0].IsTruncated != want || got[0].Tokens != len(a)+len(b)+3 {
			t.Errorf("%q: %d tokens, truncated %v", c.pair, got[0].Tokens, got[0].IsTruncated)
		}
		special := m.Tokenizer().Encode("").IDs
		ids := append(slices.Concat(special[:1], a[:c.left], special[1:], b[:c.right]), special[1:]...)
		types := make([]int32, len(ids))
		for i := c.left + 2; i < len(ids); i++ {
			types[i] = 1
		}
		out, err := m.Forward(t.Context(), &Input{B: 1, N: len(ids), IDs: ids, Types: types})
		if err != nil {
			t.Fatal(err)
		}
		want, err := out.Logits.Float32()
		if err != nil {
			t.Fatal(err)
		}
		for j, x := range got[0].Logits {
			if math.Abs(float64(x-want[j])) > 1e-6 {
				t.Errorf("%q: logit %d is %g, by hand %g", c.pair, j, x, want[j])
			}
		}
		compared++
	}
	t.Logf("compared %d pairs", compared)
	m = openClassifier(t, "BertForTokenClassification", "")
	if _, err := m.ClassifyPairs(t.Context(), [][2]string{{"a", "b"}}); err == nil || !strings.Contains(err.Error(), "not pairs") {
		t.Errorf("error is %v", err)
	}
}

func TestPairsHaveTypesIfModelInputNamesHasThem(t *testing.T) {
	t.Parallel()
	m := openClassifier(t, "BertForSequenceClassification", "")
	for text, want := range map[string]bool{`{}`: true, `{"model_input_names":["input_ids","token_type_ids"]}`: true, `{"model_input_names":["input_ids","attention_mask"]}`: false} {
		if err := os.WriteFile(filepath.Join(m.dir, tokenizerConfigFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		again, err := Open(m.dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, types, err := again.EncodePair("the cat", "a dog", 0); err != nil || slices.Contains(types, 1) != want {
			t.Errorf("%s: types %v, %v", text, types, err)
		}
	}
}

func TestPairsWithoutTokensAreRefused(t *testing.T) {
	t.Parallel()
	words, err := tokenizer.Parse([]byte(`{"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0}}}`))
	if err != nil {
		t.Fatal(err)
	}
	m := openClassifier(t, "BertForSequenceClassification", "")
	m.texts.words = words
	if _, err := m.ClassifyPairs(t.Context(), [][2]string{{"a", "a"}, {"", ""}}); err == nil || err.Error() != "text 1: has no tokens" {
		t.Errorf("error is %v", err)
	}
}

func TestClassKindFollowsProblemType(t *testing.T) {
	t.Parallel()
	for members, want := range map[string]ClassKind{
		"": SingleLabel,
		`,"problem_type":"single_label_classification"`:                SingleLabel,
		`,"problem_type":"multi_label_classification"`:                 MultiLabel,
		`,"problem_type":"regression"`:                                 Regression,
		`,"num_labels":1`:                                              Regression,
		`,"num_labels":1,"problem_type":"single_label_classification"`: Regression,
	} {
		if m := openClassifier(t, "BertForSequenceClassification", members); m.ClassKind() != want {
			t.Errorf("%s: kind %d, want %d", members, m.ClassKind(), want)
		}
	}
	m := openClassifier(t, "BertForMaskedLM", "")
	if _, err := m.Classify(t.Context(), []string{"a"}); err == nil || !strings.Contains(err.Error(), "the bert has no head of classes") || m.Labels() != nil {
		t.Errorf("labels %q, %v", m.Labels(), err)
	}
}
