package attend

import (
	"bufio"
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/tokenizer"
)

// A run that continues reads its text from the beginning, which may take hours.
func TestTokensEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	text := &textTokens{ctx: ctx, vocab: token.NewByteVocabulary(), r: bufio.NewReader(strings.NewReader("text"))}
	dst := make([]int32, 2)
	if n, err := text.read(dst); n != 2 || err != nil {
		t.Errorf("%d tokens, %v", n, err)
	}
	cancel()
	if n, err := text.read(dst); n != 0 || err != context.Canceled {
		t.Errorf("after the end of the context: %d tokens, %v", n, err)
	}
}

func TestTextBeyondTheTrainedContextIsNotedOnce(t *testing.T) {
	noted := 0
	text := &textTokens{ctx: t.Context(), vocab: token.NewByteVocabulary(), r: bufio.NewReader(strings.NewReader("a long text")), room: 4, full: func() { noted++ }}
	for i, want := range []int{0, 0, 1, 1} {
		if _, err := text.read(make([]int32, 2)); err != nil || noted != want {
			t.Errorf("read %d: noted %d times, want %d, %v", i, noted, want, err)
		}
	}
}

// The tokens of a tokenizer do not depend on how many are read at a time.
func TestTokensOfATokenizerAreTheTokensOfLines(t *testing.T) {
	lines := []string{"the near field and the far field\n", "\n", "  the field, the field\n", strings.Repeat("the far ", 10_000) + "field\n", "the end"}
	trained, err := tokenizer.Train(t.Context(), []byte(strings.Repeat(lines[0]+lines[2], 20)), 300)
	if err != nil {
		t.Fatal(err)
	}
	vocab := token.NewTokenizerVocabulary(trained)
	var want []int32
	for _, line := range lines {
		if want, err = vocab.Encode(want, []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{1, 7, 4096} {
		text := &textTokens{ctx: t.Context(), vocab: vocab, r: bufio.NewReader(strings.NewReader(strings.Join(lines, "")))}
		var got []int32
		for dst := make([]int32, n); ; {
			k, err := text.read(dst)
			if got = append(got, dst[:k]...); err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d at a time: %d tokens, want %d", n, len(got), len(want))
		}
	}
}
