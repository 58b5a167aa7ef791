package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/farfield-ml/farfield/token"
)

// escaped returns a string from a file or path as it is printed: characters that would
// control a terminal, break a line or reorder it are escaped as Go does, and bytes
// that are not UTF-8 are \x and two digits. Other characters stay.
func escaped(s string) string {
	if !strings.ContainsFunc(s, unprintable) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unprintable(r):
			quoted := fmt.Sprintf("%+q", r) // in single quotes
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

// escapedAll is escaped of each string.
func escapedAll(list []string) []string {
	all := make([]string, len(list))
	for i, s := range list {
		all[i] = escaped(s)
	}
	return all
}

// unprintable reports a character that controls a terminal, ends a line or changes the
// direction of the text behind it.
func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// escapedJSON is JSON whose strings have no such character, in the escapes of JSON.
func escapedJSON(text []byte) []byte {
	var b []byte
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if unprintable(r) && r != '\n' {
			b = fmt.Appendf(b, `\u%04x`, r)
		} else {
			b = append(b, text[i:i+n]...)
		}
		i += n
	}
	return b
}

// screen is standard output where it is a terminal. What would control it is
// replaced, but for line breaks and tabs; files and pipes get bytes as they are.
type screen struct{ *token.Writer }

// onScreen returns w, as a screen if it is a terminal.
func onScreen(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &screen{token.NewWriter(w)}
	}
	return w
}
