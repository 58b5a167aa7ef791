package infile

import "unicode/utf8"

// The numbers of bytes that Shorten and ShortenError keep.
const (
	shownBytes = 60
	errorBytes = 1 << 10
)

// Shorten returns the beginning of text with … behind it, or all of a short text. Errors quote
// what a file contains through it, so that a long name does not fill a screen.
func Shorten(text string) string {
	if len(text) <= shownBytes {
		return text
	}
	return text[:startOfRune(text, shownBytes)] + "…"
}

// Elide returns text with … in place of its middle if it has more than most bytes. The end of
// an error says what is wrong, also behind a long name.
func Elide(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:startOfRune(text, most*3/4)] + "…" + text[startOfRune(text, len(text)-most/4):]
}

// startOfRune returns the first byte of the character at byte at.
func startOfRune(text string, at int) int {
	for i := at; i > at-utf8.UTFMax && i >= 0; i-- {
		if utf8.RuneStart(text[i]) {
			return i
		}
	}
	return at
}

// shortError is an error with a text that is bounded.
type shortError struct{ err error }

func (e shortError) Error() string { return Elide(e.err.Error(), errorBytes) }
func (e shortError) Unwrap() error { return e.err }

// ShortenError returns err with a text of at most about a thousand bytes. Readers return their errors
// through it, which repeat names in files.
func ShortenError(err error) error {
	if err == nil || len(err.Error()) <= errorBytes {
		return err
	}
	return shortError{err}
}
