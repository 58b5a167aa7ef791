package infile

import (
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
