package score

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/tokenizer"
)

// TestScoreOfAPublishedModelIsItsReferenceLoss compares the bits of whole texts, whose
// mean nats of a token the reference has in float64.
func TestScoreOfAPublishedModelIsItsReferenceLoss(t *testing.T) {
	const dir = "../../../shared/models/stories260K"
	data, err := os.ReadFile(filepath.Join(dir, "texts.json"))
	if err != nil {
		t.Skipf("the trained model is not there: %v", err)
	}
	var texts []string
	if err := json.Unmarshal(data, &texts); err != nil {
		t.Fatal(err)
	}
	p, err := published.Open(filepath.Join(dir, "hf"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(p.Model(), token.NewTokenizerVocabulary(p.Tokenizer()))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := array.OpenNPZ(filepath.Join(dir, "ref_f64.npz"))
	if err != nil {
		t.Fatal(err)
	}
	defer ref.Close()
	compared := 0
	for i, text := range texts {
		a, err := ref.ReadArray(fmt.Sprintf("text%d_nll", i))
		if err != nil {
			t.Fatal(err)
		}
		mean, err := a.Float64()
		if err != nil {
			t.Fatal(err)
		}
		n := len(p.Tokenizer().Encode(text).IDs)
		if n > p.Config().Context {
			continue // the reference cuts this text
		}
		want := mean[0] / math.Ln2 * float64(n-1)
		if err := s.Reset(); err != nil {
			t.Fatal(err)
		}
		got, err := s.ScoreText(t.Context(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got.Bytes != int64(len(text)) || math.Abs(got.Bits-want) > 1e-4*want {
			t.Errorf("text %d: %v bits of %d bytes, the reference %v of %d", i, got.Bits, got.Bytes, want, len(text))
		}
		compared++
	}
	t.Logf("compared %d texts", compared)
}

// TestTokensBehindATextDoNotBeginOne scores with a template that also ends a text.
func TestTokensBehindATextDoNotBeginOne(t *testing.T) {
	c := config
	c.Vocab, c.Mechanism = 4, "softmax"
	m := made(t, c, 3)
	var want LineScore
	for _, end := range []string{``, `,{"SpecialToken":{"id":"</s>","type_id":0}}`} {
		words, err := tokenizer.Parse([]byte(`{"model":{"type":"BPE","vocab":{"<s>":0,"</s>":1,"a":2,"b":3},"merges":[]},
			"added_tokens":[{"id":0,"content":"<s>","special":true},{"id":1,"content":"</s>","special":true}],
			"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}` + end + `],"pair":[],
			"special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]},"</s>":{"id":"</s>","ids":[1],"tokens":["</s>"]}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(m, token.NewTokenizerVocabulary(words))
		if err != nil {
			t.Fatal(err)
		}
		got := score(t, s, "abba")
		if end == "" {
			want = got
		} else if got != want {
			t.Errorf("with a token behind the text: %v, want %v", got, want)
		}
	}
}
