package infile

import "unicode/utf8"

// shownBytes is the number of bytes that Shorten keeps.
const shownBytes = 60

// Shorten returns the beginning of text with … behind it, or all of a short text. Errors quote
// what a file contains through it, so that a long name does not fill a screen.
func Shorten(text string) string {
	if len(text) <= shownBytes {
		return text
	}
	end := shownBytes
	for end > shownBytes-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
