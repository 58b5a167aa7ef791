// Package display formats results: numbers with units, JSON, findings, and text without control
// characters.
package display

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape returns a string from a file or path in a form that is safe to print. Characters that
// would control a terminal, break a line or change its direction are escaped as in Go, and bytes
// that are not UTF-8 become \x and two digits. Other characters stay.
func Escape(s string) string {
	if !strings.ContainsFunc(s, isUnprintable) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case isUnprintable(r):
			quoted := fmt.Sprintf("%+q", r) // in single quotes
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

// EscapeAll returns Escape of each string.
func EscapeAll(list []string) []string {
	all := make([]string, len(list))
	for i, s := range list {
		all[i] = Escape(s)
	}
	return all
}

// isUnprintable reports a character that controls a terminal, ends a line or changes
// the direction of the text after it.
func isUnprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// EscapeJSON returns JSON in which characters that Escape would escape have JSON's own escapes.
func EscapeJSON(text []byte) []byte {
	var b []byte
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if isUnprintable(r) && r != '\n' {
			b = fmt.Appendf(b, `\u%04x`, r)
		} else {
			b = append(b, text[i:i+n]...)
		}
		i += n
	}
	return b
}

// Field returns the name of a class for printing between tabs: quoted if it has characters that
// would end the field or cannot be seen.
func Field(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(name) {
		return strconv.Quote(name)
	}
	return name
}

// QuoteWord returns s as one word of a shell: in single quotes, unless it consists of letters,
// digits and characters of plain paths.
func QuoteWord(s string) string {
	isPlain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_./-:", r) || r == filepath.Separator
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !isPlain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
