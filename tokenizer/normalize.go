package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Bytes that normalizers may make of a byte, and of a capital letter.
const (
	formGrowth           = 3  // U+0390, U+1D160
	compatibleGrowth     = 11 // U+FDFA
	lowerSize, upperSize = 3, 2
)

// readNormalizer returns the steps of a normalizer.
func readNormalizer(raw json.RawMessage, b *bounds) ([]normalizer, error) {
	const field = "normalizer"
	kind, err := typeName(field, raw)
	if err != nil || kind == "" {
		return nil, err
	}
	var s struct {
		Type         string            `json:"type"`
		Normalizers  []json.RawMessage `json:"normalizers"`
		CleanText    *bool             `json:"clean_text"`
		Chinese      *bool             `json:"handle_chinese_chars"`
		StripAccents *bool             `json:"strip_accents"`
		Lowercase    *bool             `json:"lowercase"`
		StripLeft    *bool             `json:"strip_left"`
		StripRight   *bool             `json:"strip_right"`
		Charsmap     []byte            `json:"precompiled_charsmap"`
		Pattern      *patternSpec      `json:"pattern"`
		Content      string            `json:"content"`
		Prepend      string            `json:"prepend"`
	}
	if err := decodeStrict(field, raw, &s); err != nil {
		return nil, err
	}
	is := func(b *bool) bool { return b == nil || *b }
	switch kind {
	case "Sequence":
		if err := b.open(field); err != nil {
			return nil, err
		}
		var list []normalizer
		for _, raw := range s.Normalizers {
			steps, err := readNormalizer(raw, b)
			if err != nil {
				return nil, err
			}
			list = append(list, steps...)
		}
		b.depth--
		return list, nil
	case "BertNormalizer":
		var list []normalizer
		size, of := 1, 1
		if is(s.Chinese) {
			size, of = 5, 3 // two spaces
		}
		if is(s.CleanText) || is(s.Chinese) {
			list = append(list, newBertCleaner(is(s.CleanText), is(s.Chinese)))
		}
		lower := is(s.Lowercase)
		if s.StripAccents != nil && *s.StripAccents || s.StripAccents == nil && lower {
			list = append(list, form{false, false}, removal{isAccent})
			size *= formGrowth
		}
		if lower {
			list = append(list, lowercase{})
			size, of = size*lowerSize, of*upperSize
		}
		return list, b.grow(field, kind, size, of)
	case "NFC":
		return []normalizer{form{false, true}}, b.grow(field, kind, formGrowth, 1)
	case "NFD":
		return []normalizer{form{false, false}}, b.grow(field, kind, formGrowth, 1)
	case "NFKC":
		return []normalizer{form{true, true}}, b.grow(field, kind, compatibleGrowth, 1)
	case "NFKD":
		return []normalizer{form{true, false}}, b.grow(field, kind, compatibleGrowth, 1)
	case "Lowercase":
		return []normalizer{lowercase{}}, b.grow(field, kind, lowerSize, upperSize)
	case "StripAccents":
		return []normalizer{removal{isMark}}, nil
	case "Strip":
		return []normalizer{strip{is(s.StripLeft), is(s.StripRight)}}, nil
	case "Nmt":
		return []normalizer{nmt{}}, nil
	case "Prepend":
		return []normalizer{prepend{[]byte(s.Prepend)}}, b.grow(field, kind, 1+len(s.Prepend), 1)
	case "Precompiled":
		m, err := newCharsmap(s.Charsmap)
		if err != nil {
			return nil, fmt.Errorf("%s: precompiled_charsmap: %w", field, err)
		}
		return []normalizer{precompiled{m}}, b.grow(field, kind, m.longest, 1)
	case "ByteLevel":
		return []normalizer{byteLetters{}}, b.grow(field, kind, 2, 1)
	case "Replace":
		p, err := s.Pattern.compile(field)
		if err != nil {
			return nil, err
		}
		return []normalizer{replacement{p, []byte(s.Content)}}, b.grow(field, kind, len(s.Content), p.leastSize())
	}
	return nil, fmt.Errorf("%s: type is %q, which this program does not have", field, kind)
}

// isASCII reports whether b has no byte above 127.
func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// bertCleaner removes control characters, writes white space as a space, and puts spaces
// around CJK ideographs.
type bertCleaner struct {
	clean, chinese bool
	ascii          [utf8.RuneSelf]byte // 0: removed
}

func newBertCleaner(clean, chinese bool) *bertCleaner {
	n := &bertCleaner{clean: clean, chinese: chinese}
	for r := range rune(utf8.RuneSelf) {
		switch n.ascii[r] = byte(r); {
		case !clean:
		case isControl(r):
			n.ascii[r] = 0
		case isSpace(r):
			n.ascii[r] = ' '
		}
	}
	return n
}

func (n *bertCleaner) normalize(in, out *text) bool {
	changed := false
	for i, size := 0, 0; i < len(in.b); i += size {
		start := i
		for i < len(in.b) && in.b[i] < utf8.RuneSelf && (!n.clean || in.b[i] != 0 && n.ascii[in.b[i]] == in.b[i]) {
			i++
		}
		if start < i {
			out.copy(in, span{start, i})
		}
		if i == len(in.b) {
			break
		}
		var r rune
		r, size = utf8.DecodeRune(in.b[i:])
		switch {
		case n.clean && (r == 0 || r == utf8.RuneError || isControl(r)):
			changed = true
		case n.clean && isSpace(r):
			changed = true
			out.putRune(' ', in.source(i))
		case n.chinese && isChinese(r):
			changed = true
			s := in.source(i)
			out.putRune(' ', s)
			out.putRune(r, s)
			out.putRune(' ', s)
		default:
			out.copy(in, span{i, i + size})
		}
	}
	return changed
}

// lowercase writes each character in lower case.
type lowercase struct{}

func (lowercase) normalize(in, out *text) bool {
	if isASCII(in.b) {
		out.copy(in, span{0, len(in.b)})
		for i, c := range out.b {
			if 'A' <= c && c <= 'Z' {
				out.b[i] = c + 'a' - 'A'
			}
		}
		return true
	}
	for i, size := 0, 0; i < len(in.b); i += size {
		var r rune
		r, size = utf8.DecodeRune(in.b[i:])
		switch lower := toLower(r); {
		case r == 'İ':
			out.putRune('i', in.source(i))
			out.putRune(0x307, in.source(i))
		case lower == r:
			out.copy(in, span{i, i + size})
		case utf8.RuneLen(lower) == size:
			out.copy(in, span{i, i + size})
			utf8.AppendRune(out.b[:len(out.b)-size], lower)
		default:
			out.putRune(lower, in.source(i))
		}
	}
	return true
}

// removal removes the characters of a class.
type removal struct{ has func(r rune) bool }

func (n removal) normalize(in, out *text) bool {
	if isASCII(in.b) {
		return false
	}
	for i, size := 0, 0; i < len(in.b); i += size {
		var r rune
		if r, size = utf8.DecodeRune(in.b[i:]); !n.has(r) {
			out.copy(in, span{i, i + size})
		}
	}
	return true
}

// strip removes white space at the ends.
type strip struct{ leading, trailing bool }

func (n strip) normalize(in, out *text) bool {
	s := span{0, len(in.b)}
	if n.leading {
		s.start = len(in.b) - len(bytes.TrimLeftFunc(in.b, isSpace))
	}
	if n.trailing {
		s.end = max(s.start, len(bytes.TrimRightFunc(in.b, isSpace)))
	}
	if s.end-s.start == len(in.b) {
		return false
	}
	if s.start < s.end {
		out.copy(in, s)
	}
	return true
}

// prepend puts a string before a text that is not empty.
type prepend struct{ content []byte }

func (n prepend) normalize(in, out *text) bool {
	if len(in.b) == 0 || len(n.content) == 0 {
		return false
	}
	out.put(n.content, in.source(0))
	out.copy(in, span{0, len(in.b)})
	return true
}

// replacement writes content for each match of a pattern.
type replacement struct {
	pattern finder
	content []byte
}

func (n replacement) normalize(in, out *text) bool {
	at := 0
	for m := range n.pattern.all(in.b) {
		if at < m.start {
			out.copy(in, span{at, m.start})
		}
		if len(n.content) > 0 {
			out.put(n.content, in.source(m.end-1))
		}
		at = m.end
	}
	if at == 0 {
		return false
	}
	if at < len(in.b) {
		out.copy(in, span{at, len(in.b)})
	}
	return true
}

// nmt removes control characters and writes separators as a space, as SentencePiece's rules
// for translation do.
type nmt struct{}

func (nmt) normalize(in, out *text) bool {
	for i, size := 0, 0; i < len(in.b); i += size {
		var r rune
		r, size = utf8.DecodeRune(in.b[i:])
		switch {
		case 1 <= r && r <= 8, r == 0xB, 0xE <= r && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
		case r == 9, r == 0xA, r == 0xC, r == 0xD, r == 0x1680, 0x200B <= r && r <= 0x200F, r == 0x2028, r == 0x2029,
			r == 0x2581, r == 0xFEFF, r == 0xFFFD:
			out.putRune(' ', in.source(i))
		default:
			out.copy(in, span{i, i + size})
		}
	}
	return true
}

// byteLetters writes each byte as its letter of byte-level BPE.
type byteLetters struct{}

func (byteLetters) normalize(in, out *text) bool {
	for i, c := range in.b {
		if rune(c) == alphabet[c] && c < utf8.RuneSelf {
			out.copy(in, span{i, i + 1})
		} else {
			out.putRune(alphabet[c], in.source(i))
		}
	}
	return true
}
