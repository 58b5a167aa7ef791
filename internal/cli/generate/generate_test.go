package generate

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/token"
)

func TestScreenPassesNoControlOn(t *testing.T) {
	var b bytes.Buffer
	s := &display.Screen{Writer: token.NewWriter(&b)}
	text := newTextOutput(s, false)
	for _, part := range []string{"a\x1b[2", "Jb\xe2", "\x82\xac\tc\n", "\u202ed"} {
		if _, err := text.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := text.end(); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "a\ufffd[2Jb€\tc\n\ufffdd\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.Reset()
	if _, err := newTextOutput(&b, false).Write([]byte("\x1b[2J")); err != nil || b.String() != "\x1b[2J" {
		t.Errorf("a file gets %q, %v", b.String(), err)
	}
}

func TestPromptIsReadInPieces(t *testing.T) {
	text := strings.Repeat("aé€\U0001F600 z", 500)
	chars, err := token.NewCharVocabulary([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []*token.Vocabulary{chars, token.NewByteVocabulary()} {
		want, err := v.Encode(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for name, in := range map[string]io.Reader{
			"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)),
			"end with data": iotest.DataErrReader(strings.NewReader(text)),
		} {
			p := &promptReader{in: in, vocab: v, buffer: make([]byte, 0, 64)}
			var got []int32
			for {
				tokens, err := p.next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil || len(tokens) == 0 {
					t.Fatalf("%s, %s: %d tokens, %v", v.Kind(), name, len(tokens), err)
				}
				got = append(got, tokens...)
			}
			if !slices.Equal(got, want) || p.read != int64(len(text)) {
				t.Errorf("%s, %s: %d tokens of %d bytes, want %d of %d", v.Kind(), name, len(got), p.read, len(want), len(text))
			}
		}
	}
}

func TestPromptErrorsCountFromItsBeginning(t *testing.T) {
	v, err := token.NewCharVocabulary([]byte("ab€"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		strings.Repeat("ab€", 40) + "c":       "character 'c' at offset 200",
		strings.Repeat("ab", 80) + "\xe2\x82": "byte 0xe2 at offset 160",
	} {
		p := &promptReader{in: iotest.HalfReader(strings.NewReader(text)), vocab: v, buffer: make([]byte, 0, 64)}
		var err error
		for err == nil {
			_, err = p.next()
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}
