package infile

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLongTextsAreShortenedBetweenCharacters(t *testing.T) {
	for _, text := range []string{"", "a", strings.Repeat("b", 60)} {
		if got := Shorten(text); got != text {
			t.Errorf("%q: %q", text, got)
		}
	}
	for shift := range 4 {
		text := strings.Repeat("a", shift) + strings.Repeat("😀", 1<<14)
		got := Shorten(text)
		if rest, cut := strings.CutSuffix(got, "…"); !cut || len(got) > 64 || !utf8.ValidString(got) || !strings.HasPrefix(text, rest) {
			t.Errorf("shift %d: %q", shift, got)
		}
	}
	if got := Shorten(strings.Repeat("\x80", 100)); len(got) > 64 {
		t.Errorf("%d bytes of no UTF-8", len(got))
	}
}

func TestLongErrorsKeepBothEnds(t *testing.T) {
	err := fmt.Errorf("config.json: %s: %w", strings.Repeat("é", 1<<15), fs.ErrNotExist)
	short := ShortenError(err)
	if text := short.Error(); len(text) > 1100 || !utf8.ValidString(text) || !strings.HasPrefix(text, "config.json: é") || !strings.HasSuffix(text, "é: file does not exist") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	if !errors.Is(short, fs.ErrNotExist) {
		t.Error("the error that is wrapped is lost")
	}
	if err := errors.New("short"); ShortenError(err) != err || ShortenError(nil) != nil {
		t.Error("a short error is another one")
	}
}
