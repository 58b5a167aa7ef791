package score

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/farfield-ml/farfield/array"
	"github.com/farfield-ml/farfield/pretrained"
	"github.com/farfield-ml/farfield/token"
)

// TestScoreOfAPublishedModelIsItsReferenceLoss compares the bits of whole texts, whose
// mean nats of a token the reference has in float64.
func TestScoreOfAPublishedModelIsItsReferenceLoss(t *testing.T) {
	const dir = "../../shared/models/stories260K"
	data, err := os.ReadFile(filepath.Join(dir, "texts.json"))
	if err != nil {
		t.Skipf("the trained model is not there: %v", err)
	}
	var texts []string
	if err := json.Unmarshal(data, &texts); err != nil {
		t.Fatal(err)
	}
	p, err := pretrained.Open(filepath.Join(dir, "hf"))
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
		got, err := s.ScoreText([]byte(text))
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
