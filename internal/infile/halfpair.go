package infile

import (
	"bytes"
	"encoding/hex"
	"unicode/utf16"
	"unicode/utf8"
)

// HasHalfPair reports whether JSON has an escape of one half of a surrogate pair without the other
// half. Package json would replace it by U+FFFD.
func HasHalfPair(data []byte) bool {
	for i := bytes.IndexByte(data, '\\'); i >= 0 && i < len(data); {
		switch r := escapedRune(data[i:]); {
		case utf16.IsSurrogate(r):
			if utf16.DecodeRune(r, escapedRune(data[i+escapeLength:])) == utf8.RuneError {
				return true
			}
			i += 2 * escapeLength
		case data[i] == '\\':
			i += 2
		default:
			i++
		}
	}
	return false
}

// escapeLength is the number of bytes of an escape such as \u00e9.
const escapeLength = len(`\u0000`)

// escapedRune returns the rune of the escape that data begins with; -1: of none.
func escapedRune(data []byte) rune {
	if len(data) < escapeLength || data[0] != '\\' || data[1] != 'u' {
		return -1
	}
	var code [2]byte
	if _, err := hex.Decode(code[:], data[2:escapeLength]); err != nil {
		return -1
	}
	return rune(code[0])<<8 | rune(code[1])
}
