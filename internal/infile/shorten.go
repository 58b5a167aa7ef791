package infile

import "unicode/utf8"

// The numbers of bytes that Shorten and ShortenError keep.
const (
	shownBytes = 60
	errorBytes = 1 << 10
)

// Shorten returns the beginning of a long text followed by …, and a short text unchanged. Errors
// use it to quote the content of files, so that a long name does not fill a screen.
func Shorten(text string) string {
	if len(text) <= shownBytes {
		return text
	}
	return text[:startOfRune(text, shownBytes)] + "…"
}

// Elide replaces the middle of text by … if it has more than most bytes. The end is kept, because
// the end of an error says what is wrong.
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

// ShortenError returns err with a message of at most about a thousand bytes. Readers use it for
// errors that repeat names from files.
func ShortenError(err error) error {
	if err == nil || len(err.Error()) <= errorBytes {
		return err
	}
	return shortError{err}
}
