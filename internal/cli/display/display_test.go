package display

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestEscapedStringsControlNothing(t *testing.T) {
	for s, want := range map[string]string{
		"layers.0.weight": "layers.0.weight",
		"Größe 数 👩‍🚀":     "Größe 数 👩‍🚀",
		"\x1b[2Ja\nb\tc":  `\x1b[2Ja\nb\tc`,
		"\x7f\u009b0m":    `\x7f\u009b0m`,
		"a\u202eb\u2066c": `a\u202eb\u2066c`,
		"a\u2028b":        `a\u2028b`,
		"\xff\xc3":        `\xff\xc3`,
		`C:\new`:          `C:\new`,
	} {
		if got := Escape(s); got != want || Escape(got) != want {
			t.Errorf("%q is printed as %s, want %s", s, got, want)
		}
	}
}

func TestQuotedWordsAreWordsOfAShell(t *testing.T) {
	for s, want := range map[string]string{
		"run/notes-2_b.state": "run/notes-2_b.state",
		"my notes":            "'my notes'",
		"it's":                `'it'\''s'`,
		"$HOME;ls":            "'$HOME;ls'",
		"":                    "''",
	} {
		if got := QuoteWord(s); got != want {
			t.Errorf("%q is quoted as %s, want %s", s, got, want)
		}
	}
}

func TestEscapedJSONIsTheSameJSON(t *testing.T) {
	want := []string{"\x7f\u009b\u202e\u2028\x1b\n", "plain ü"}
	var b bytes.Buffer
	if err := PrintJSON(&b, want); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%q, %v", got, err)
	}
	safe(t, b.String())
}

// safe reports what would control a terminal in several lines.
func safe(t *testing.T, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return isUnprintable(r) && r != '\n' }); i >= 0 {
		t.Errorf("%q is printed as it is", text[i:min(len(text), i+20)])
	}
	if strings.Contains(text, "\nfarfield: all is well") || strings.Contains(text, "\nkind  forged") {
		t.Errorf("a line is forged in %q", text)
	}
}

func TestTexts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{FormatAmount(999.4, "FLOP"), "999 FLOP"},
		{FormatAmount(999.6, "FLOP"), "1 kFLOP"},
		{FormatAmount(12345, ""), "12.3 k"},
		{FormatAmount(1e22, ""), "10000 E"},
		{FormatBytes(0), "-"},
		{FormatBytes(1023), "1023 B"},
		{FormatBytes(1536), "1.5 KiB"},
		{FormatBytes(1 << 50), "1024 TiB"},
		{FormatSeconds(0), "-"},
		{FormatSeconds(1e-3), "1 ms"},
		{FormatSeconds(1.234e-5), "12.3 µs"},
		{FormatSeconds(1000), "1000 s"},
		{FormatSeconds(7200), "2 h"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
