package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decodeStep rewrites the parts of a decoded text.
type decodeStep func(parts []string) []string

// tokenText says how a token stands inside a text.
type tokenText struct {
	space  string // stands for a space
	isWord bool   // a space goes before a token without prefix
	prefix string // of tokens that continue a word; "": none
}

// Decode returns the text of ids and leaves out special tokens. It returns an error if an id is
// outside the vocabulary.
func (t *Tokenizer) Decode(ids []int32) (string, error) {
	parts := make([]string, 0, len(ids))
	for _, id := range ids {
		if err := t.checkID(id); err != nil {
			return "", err
		}
		if !t.special[id] {
			parts = append(parts, t.tokens[id])
		}
	}
	if len(t.decode) == 0 {
		return strings.Join(parts, " "), nil
	}
	for _, step := range t.decode {
		parts = step(parts)
	}
	return strings.Join(parts, ""), nil
}

// readDecoder appends the steps of a decoder.
func (t *Tokenizer) readDecoder(raw json.RawMessage, b *bounds) error {
	const field = "decoder"
	kind, err := typeName(field, raw)
	if err != nil || kind == "" {
		return err
	}
	var s struct {
		Type           string            `json:"type"`
		Decoders       []json.RawMessage `json:"decoders"`
		Prefix         string            `json:"prefix"`
		Suffix         string            `json:"suffix"`
		Cleanup        *bool             `json:"cleanup"`
		Replacement    string            `json:"replacement"`
		PrependScheme  string            `json:"prepend_scheme"`
		AddPrefixSpace *bool             `json:"add_prefix_space"`
		TrimOffsets    bool              `json:"trim_offsets"`
		UseRegex       bool              `json:"use_regex"`
		Split          bool              `json:"split"`
		StrRep         string            `json:"str_rep"`
		Pattern        *patternSpec      `json:"pattern"`
		Content        string            `json:"content"`
		Start          int               `json:"start"`
		Stop           int               `json:"stop"`
	}
	if err := decodeStrict(field, raw, &s); err != nil {
		return err
	}
	add := func(step decodeStep) { t.decode = append(t.decode, step) }
	each := func(f func(i int, part string) string) {
		add(func(parts []string) []string {
			for i, p := range parts {
				parts[i] = f(i, p)
			}
			return parts
		})
	}
	switch kind {
	case "Sequence":
		if err := b.open(field); err != nil {
			return err
		}
		for _, raw := range s.Decoders {
			if err := t.readDecoder(raw, b); err != nil {
				return err
			}
		}
		b.depth--
	case "ByteLevel":
		add(decodeByteLevel)
		return b.grow(field, kind, 3, 2) // U+FFFD of a letter of the alphabet
	case "WordPiece":
		t.tokenText.isWord, t.tokenText.prefix = s.Prefix != "", s.Prefix
		cleanup := s.Cleanup == nil || *s.Cleanup
		each(func(i int, p string) string {
			if i > 0 {
				if rest, ok := strings.CutPrefix(p, s.Prefix); ok {
					p = rest
				} else {
					p = " " + p
				}
			}
			if cleanup {
				p = cleanSpaces.Replace(p)
			}
			return p
		})
	case "BPEDecoder":
		if s.Suffix == "" {
			return fmt.Errorf("%s: suffix is missing", field)
		}
		t.tokenText.space = s.Suffix
		add(func(parts []string) []string {
			for i, p := range parts {
				space := " "
				if i == len(parts)-1 {
					space = ""
				}
				parts[i] = strings.ReplaceAll(p, s.Suffix, space)
			}
			return parts
		})
	case "Metaspace":
		if utf8.RuneCountInString(s.Replacement) != 1 {
			return fmt.Errorf("%s: replacement is %q, not a character", field, s.Replacement)
		}
		t.tokenText.space = s.Replacement
		prefixed := s.PrependScheme == "always" || s.PrependScheme == "first" || s.PrependScheme == "" && (s.AddPrefixSpace == nil || *s.AddPrefixSpace)
		each(func(i int, p string) string {
			if i == 0 && prefixed { // all of them, as the reference
				return strings.ReplaceAll(p, s.Replacement, "")
			}
			return strings.ReplaceAll(p, s.Replacement, " ")
		})
	case "Replace":
		f, err := s.Pattern.compile(field)
		if err != nil {
			return err
		}
		n := replacement{f, []byte(s.Content)}
		each(func(_ int, p string) string {
			in, out := new(text), new(text)
			if in.set([]byte(p), 0); n.normalize(in, out) {
				return string(out.b)
			}
			return p
		})
		return b.grow(field, kind, len(s.Content), f.leastSize())
	case "Fuse":
		add(func(parts []string) []string { return []string{strings.Join(parts, "")} })
	case "Strip":
		if utf8.RuneCountInString(s.Content) != 1 {
			return fmt.Errorf("%s: content is %q, not a character", field, s.Content)
		}
		if s.Start < 0 || s.Stop < 0 {
			return fmt.Errorf("%s: start is %d and stop %d, not 0 or more", field, s.Start, s.Stop)
		}
		each(func(_ int, p string) string {
			for range s.Start {
				rest, ok := strings.CutPrefix(p, s.Content)
				if !ok {
					break
				}
				p = rest
			}
			for range s.Stop {
				rest, ok := strings.CutSuffix(p, s.Content)
				if !ok {
					break
				}
				p = rest
			}
			return p
		})
	case "ByteFallback":
		add(decodeFallback)
	default:
		return fmt.Errorf("%s: type is %q, which this program does not have", field, kind)
	}
	return nil
}

// cleanSpaces removes the spaces that WordPiece puts before punctuation of English.
var cleanSpaces = strings.NewReplacer(" .", ".", " ?", "?", " !", "!", " ,", ",", " ' ", "'", " n't", "n't", " 'm", "'m",
	" do not", " don't", " 's", "'s", " 've", "'ve", " 're", "'re")

// decodeByteLevel joins the bytes of tokens of byte-level BPE.
func decodeByteLevel(parts []string) []string {
	var all []byte
	for _, p := range parts {
		if b, ok := alphabetBytes(p); ok {
			all = append(all, b...)
		} else {
			all = append(all, p...)
		}
	}
	return []string{validText(all)}
}

// validText returns b as text. Each sequence that is cut short and each other byte that is not
// UTF-8 becomes U+FFFD.
func validText(b []byte) string {
	var s strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		for r == utf8.RuneError && n < len(b) && n < utf8.UTFMax && !utf8.FullRune(b[:n+1]) {
			n++
		}
		s.WriteRune(r)
		b = b[n:]
	}
	return s.String()
}

// fallbackByte returns the byte of a token as <0x41>.
func fallbackByte(token string) (byte, bool) {
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	c, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(c), err == nil
}

// decodeFallback joins tokens of bytes to characters. Bytes that make none are U+FFFD each.
func decodeFallback(parts []string) []string {
	var out []string
	var run []byte
	flush := func() {
		if utf8.Valid(run) {
			out = append(out, string(run))
		} else {
			out = append(out, strings.Repeat("\ufffd", len(run)))
		}
		run = run[:0]
	}
	for _, p := range parts {
		if c, ok := fallbackByte(p); ok {
			run = append(run, c)
			continue
		}
		if len(run) > 0 {
			flush()
		}
		out = append(out, p)
	}
	if len(run) > 0 {
		flush()
	}
	return out
}

// Bytes returns the bytes that a token adds inside a text when it is decoded. It returns nil for
// special tokens and ids outside the vocabulary. A token of byte-level BPE may be a part of a
// character, so its bytes need not be UTF-8.
func (t *Tokenizer) Bytes(id int32) []byte {
	if t.special[id] || t.checkID(id) != nil {
		return nil
	}
	token := t.tokens[id]
	if t.byteTokens || t.writesLetters() {
		if b, ok := alphabetBytes(token); ok {
			return b
		}
		return []byte(token)
	}
	if c, ok := fallbackByte(token); ok {
		return []byte{c}
	}
	if t.tokenText.isWord {
		if rest, ok := strings.CutPrefix(token, t.tokenText.prefix); ok && t.tokenText.prefix != "" {
			return []byte(rest)
		}
		return []byte(" " + token)
	}
	return []byte(strings.ReplaceAll(token, t.tokenText.space, " "))
}

// writesLetters reports whether the text itself is written in the alphabet of byte-level BPE.
func (t *Tokenizer) writesLetters() bool {
	return slices.Contains(t.normalize, normalizer(byteLetters{}))
}
