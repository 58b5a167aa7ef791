package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// isWordChar reports whether a character is \w of a regular expression: alphabetic, a mark, a
// decimal digit, or a connector.
func isWordChar(r rune) bool {
	if r < 128 {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z'
	}
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic) || r == 0x200C || r == 0x200D
}

// isPunctuation reports whether a character is ASCII punctuation or of a class P.
func isPunctuation(r rune) bool {
	if r < 128 {
		return '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~'
	}
	return unicode.IsPunct(r) && !newPunctuation.has(r) || r == 0x166D || r == 0x111C9
}

// isControl reports whether a character is of a class C other than tab and line breaks.
func isControl(r rune) bool {
	if r < 128 {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 127
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs) && !newFormats.has(r)
}

// isChinese reports whether a character lies in a block of CJK ideographs.
func isChinese(r rune) bool {
	return r >= 0x3400 && (r <= 0x4DBF || 0x4E00 <= r && r <= 0x9FFF || 0xF900 <= r && r <= 0xFAFF || 0x20000 <= r && r <= 0x2A6DF ||
		0x2A700 <= r && r <= 0x2B81F || 0x2B920 <= r && r <= 0x2CEAF || 0x2F800 <= r && r <= 0x2FA1F)
}

// graphemeSize returns the size of the grapheme cluster at the beginning of b, as far as the
// size matters that is less than 6: clusters of pictographs and flags are longer anyway.
func graphemeSize(b []byte) int {
	r, n := utf8.DecodeRune(b)
	if r == '\r' && n < len(b) && b[n] == '\n' {
		return 2
	}
	if isBreak(r) {
		return n
	}
	for n < len(b) {
		next, m := utf8.DecodeRune(b[n:])
		if !isExtension(next) && !(isPrepended(r) && !isBreak(next)) {
			break
		}
		r = next
		n += m
	}
	return n
}

// isBreak reports whether a grapheme ends at both sides of a control character.
func isBreak(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) && r != 0x200C && r != 0x200D && !isPrepended(r) && !(0xE0020 <= r && r <= 0xE007F)
}

// isExtension reports whether a character belongs to the grapheme before it.
func isExtension(r rune) bool {
	return r >= 0x300 && (unicode.In(r, unicode.Mn, unicode.Me, unicode.Mc, unicode.Other_Grapheme_Extend) ||
		r == 0x200D || r == 0xE33 || r == 0xEB3 || 0x1F3FB <= r && r <= 0x1F3FF || 0xE0020 <= r && r <= 0xE007F)
}

// isPrepended reports whether a character belongs to the grapheme behind it.
func isPrepended(r rune) bool {
	return r >= 0x600 && (unicode.Is(unicode.Prepended_Concatenation_Mark, r) || r == 0xD4E || r == 0x111C2 || r == 0x111C3)
}
