package token

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/tokenizer"
)

// Vocabulary maps text to tokens 0 ≤ t < Size, and back. It is immutable, and its methods may be
// called concurrently.
type Vocabulary struct {
	chars     []rune // characters by code point; nil: bytes, or the tokens of a tokenizer
	index     map[rune]int32
	tokenizer *tokenizer.Tokenizer // nil: bytes or characters
}

// Kinds of vocabularies, as Vocabulary.Kind names them.
const (
	KindBytes = "bytes"
	KindChars = "chars"
	KindWords = "tokenizer"
)

// NewByteVocabulary returns the vocabulary of the 256 byte values.
func NewByteVocabulary() *Vocabulary { return &Vocabulary{} }

// NewTokenizerVocabulary returns the vocabulary of a tokenizer. Encode adds no special tokens, and
// Decode writes tokens as in the middle of a text. Decode gives back the encoded text only if the
// tokenizer rewrites nothing, as those of tokenizer.Train do.
func NewTokenizerVocabulary(t *tokenizer.Tokenizer) *Vocabulary { return &Vocabulary{tokenizer: t} }

// Tokenizer returns the tokenizer; nil for bytes and characters.
func (v *Vocabulary) Tokenizer() *tokenizer.Tokenizer { return v.tokenizer }

// NewCharVocabulary returns the vocabulary of the characters of text, numbered by code
// point. It returns an error if text is empty or not UTF-8.
func NewCharVocabulary(text []byte) (*Vocabulary, error) {
	if len(text) == 0 {
		return nil, fmt.Errorf("characters: the text is empty")
	}
	var ascii [utf8.RuneSelf]bool // most texts have little else
	seen := map[rune]struct{}{}
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			ascii[text[i]] = true
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return nil, fmt.Errorf("characters: byte 0x%02x at offset %d is not UTF-8", text[i], i)
		}
		seen[r] = struct{}{}
		i += n
	}
	chars := make([]rune, 0, len(seen)+len(ascii))
	for r, has := range ascii {
		if has {
			chars = append(chars, rune(r))
		}
	}
	for r := range seen {
		chars = append(chars, r)
	}
	slices.Sort(chars)
	return newCharVocabulary(chars), nil
}

// newCharVocabulary returns the vocabulary of sorted characters.
func newCharVocabulary(chars []rune) *Vocabulary {
	v := &Vocabulary{chars: chars, index: make(map[rune]int32, len(chars))}
	for i, r := range chars {
		v.index[r] = int32(i)
	}
	return v
}

// Kind returns KindBytes, KindChars or KindWords.
func (v *Vocabulary) Kind() string {
	if v.tokenizer != nil {
		return KindWords
	}
	if v.chars == nil {
		return KindBytes
	}
	return KindChars
}

// Size returns the number of tokens.
func (v *Vocabulary) Size() int {
	if v.tokenizer != nil {
		return v.tokenizer.Size()
	}
	if v.chars == nil {
		return 256
	}
	return len(v.chars)
}

// Encode appends the tokens of text to dst. It returns an error that names the character
// and its offset if a character is outside the vocabulary.
func (v *Vocabulary) Encode(dst []int32, text []byte) ([]int32, error) {
	return v.EncodeAt(dst, text, 0)
}

// EncodeAt is Encode for a part of a longer text. offset is added to offsets in errors. It returns
// an error where Encode does.
func (v *Vocabulary) EncodeAt(dst []int32, text []byte, offset int64) ([]int32, error) {
	if v.tokenizer != nil {
		return v.tokenizer.AppendIDs(dst, string(text), true), nil
	}
	dst = slices.Grow(dst, len(text))
	if v.chars == nil {
		for _, b := range text {
			dst = append(dst, int32(b))
		}
		return dst, nil
	}
	for i := 0; i < len(text); {
		t, size, err := v.nextToken(text, i, offset)
		if err != nil {
			return dst, err
		}
		dst = append(dst, t)
		i += size
	}
	return dst, nil
}

// Decode appends the text of tokens to dst. With a vocabulary of bytes, a character may be divided
// between calls; Writer joins its bytes. Decode returns an error if a token is outside the
// vocabulary.
func (v *Vocabulary) Decode(dst []byte, tokens ...int32) ([]byte, error) {
	for _, t := range tokens {
		switch {
		case t < 0 || int(t) >= v.Size():
			return dst, fault.Mark(fault.ErrInput, fmt.Errorf("token %d is not in the vocabulary of %d", t, v.Size()))
		case v.tokenizer != nil:
			dst = append(dst, v.tokenizer.Bytes(t)...)
		case v.chars == nil:
			dst = append(dst, byte(t))
		default:
			dst = utf8.AppendRune(dst, v.chars[t])
		}
	}
	return dst, nil
}

// CountBytes returns the number of text bytes of tokens. Tokens outside the vocabulary count as 0
// bytes.
func (v *Vocabulary) CountBytes(tokens []int32) int64 {
	var n int64
	for _, t := range tokens {
		switch {
		case t < 0 || int(t) >= v.Size():
		case v.tokenizer != nil:
			n += int64(len(v.tokenizer.Bytes(t)))
		case v.chars == nil:
			n++
		default:
			n += int64(utf8.RuneLen(v.chars[t]))
		}
	}
	return n
}
