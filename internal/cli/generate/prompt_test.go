package generate

import (
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/tokenizer"
)

// A pipe gives its bytes as they come.
func TestTokensOfAPromptDoNotDependOnThePiecesOfAPipe(t *testing.T) {
	prompt := strings.Repeat("the near field and the far field of é\n", 40)
	trained, err := tokenizer.Train(t.Context(), []byte(prompt), 300)
	if err != nil {
		t.Fatal(err)
	}
	chars, err := token.NewCharVocabulary([]byte(prompt))
	if err != nil {
		t.Fatal(err)
	}
	for _, vocab := range []*token.Vocabulary{token.NewByteVocabulary(), chars, token.NewTokenizerVocabulary(trained)} {
		want, err := vocab.Encode(nil, []byte(prompt))
		if err != nil {
			t.Fatal(err)
		}
		p := &promptReader{in: iotest.OneByteReader(strings.NewReader(prompt)), vocab: vocab, buffer: make([]byte, 0, 64)}
		var got []int32
		for {
			tokens, err := p.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, tokens...)
		}
		if !slices.Equal(got, want) || p.read != int64(len(prompt)) {
			t.Errorf("%s: %d tokens of %d bytes, want %d of %d", vocab.Kind(), len(got), p.read, len(want), len(prompt))
		}
	}
}
