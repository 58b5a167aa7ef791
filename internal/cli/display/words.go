package display

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Pluralise returns n and the word thing, in the plural unless n is 1.
func Pluralise(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// LowerFirst returns s with its first letter in lower case.
func LowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// CapitaliseFirst returns s with its first letter in upper case.
func CapitaliseFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// Beginning returns text, or, if it has more than most bytes, its beginning and an ellipsis. It
// does not cut a character.
func Beginning(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for i := most; i > max(0, most-utf8.UTFMax); i-- {
		if utf8.RuneStart(text[i]) {
			if _, n := utf8.DecodeRuneInString(text[i:]); i+n > most {
				end = i
			}
			break
		}
	}
	return text[:end] + "…"
}

// Shown returns text in printable characters, cut to at most most of them.
func Shown(text string, most int) string {
	n, all := 0, utf8.RuneCountInString(text)
	var b strings.Builder
	for _, r := range text {
		if n++; n == most && n < all {
			b.WriteString("…")
			break
		}
		if r == '\t' {
			r = ' '
		}
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}
