package token

import (
	"fmt"
	"iter"
	"slices"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/fault"
)

// markEvery is the number of tokens between two offsets that a Sequence keeps. A read
// decodes at most this many tokens before its first, and the offsets take 1/32 of the
// text.
const markEvery = 256

// Sequence is a text read as tokens. It keeps the text and, if tokens have several bytes, offsets
// into it: at most 1.04 times the memory of the text, or four bytes a token with a tokenizer. Its
// methods may be called concurrently.
type Sequence struct {
	vocab      *Vocabulary
	text       []byte
	marks      []int // offset of every markEvery-th token; nil: one byte a token
	firstToken int   // first token in the tokens of the whole text
	count      int
	ids        []int32 // tokens of the whole text, with a tokenizer
}

// NewSequence returns text as tokens, without copying it. It returns an error where Encode does.
func (v *Vocabulary) NewSequence(text []byte) (Sequence, error) {
	s := Sequence{vocab: v, text: text}
	if v.tokenizer != nil {
		s.ids = v.tokenizer.AppendIDs(nil, string(text), true)
		s.count = len(s.ids)
		return s, nil
	}
	if v.chars == nil {
		s.count = len(text)
		return s, nil
	}
	ascii := v.asciiTokens()
	wide := false
	for i := 0; i < len(text); s.count++ {
		if s.count%markEvery == 0 {
			s.marks = append(s.marks, i)
		}
		if b := text[i]; b < utf8.RuneSelf && ascii[b] >= 0 {
			i++
			continue
		}
		_, size, err := v.nextToken(text, i, 0)
		if err != nil {
			return Sequence{}, err
		}
		wide = wide || size > 1
		i += size
	}
	if !wide {
		s.marks = nil
	}
	return s, nil
}

// asciiTokens returns the token of each one-byte character; -1 for characters outside the
// vocabulary.
func (v *Vocabulary) asciiTokens() (tokens [utf8.RuneSelf]int32) {
	for r := range tokens {
		tokens[r] = -1
	}
	for i, r := range v.chars {
		if r >= utf8.RuneSelf {
			break
		}
		tokens[r] = int32(i)
	}
	return tokens
}

// nextToken returns the token of the character at text[i], and its number of bytes.
// Offsets in errors count from offset.
func (v *Vocabulary) nextToken(text []byte, i int, offset int64) (token int32, size int, err error) {
	r, size := utf8.DecodeRune(text[i:])
	if r == utf8.RuneError && size == 1 {
		return 0, 0, fault.Mark(fault.ErrInput, fmt.Errorf("byte 0x%02x at offset %d is not UTF-8", text[i], offset+int64(i)))
	}
	token, ok := v.index[r]
	if !ok {
		return 0, 0, fault.Mark(fault.ErrInput, fmt.Errorf("character %q at offset %d is not in the vocabulary of %d characters", r, offset+int64(i), len(v.chars)))
	}
	return token, size, nil
}

// Len returns the number of tokens.
func (s Sequence) Len() int { return s.count }

// Slice returns tokens from ≤ i < to. It panics if the range is invalid, as a slice
// expression does.
func (s Sequence) Slice(from, to int) Sequence {
	if from < 0 || to < from || to > s.count {
		panic(fmt.Sprintf("token: slice [%d:%d] of %d tokens", from, to, s.count))
	}
	s.firstToken, s.count = s.firstToken+from, to-from
	return s
}

// All iterates over the tokens.
func (s Sequence) All() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		if s.count == 0 {
			return
		}
		if s.ids != nil {
			for _, t := range s.ids[s.firstToken : s.firstToken+s.count] {
				if !yield(t) {
					return
				}
			}
			return
		}
		i := s.tokenOffset(0)
		for range s.count {
			t, size := int32(s.text[i]), 1
			if s.vocab.chars != nil {
				t, size, _ = s.vocab.nextToken(s.text, i, 0)
			}
			if !yield(t) {
				return
			}
			i += size
		}
	}
}

// Append appends tokens from ≤ i < to to dst.
func (s Sequence) Append(dst []int32, from, to int) []int32 {
	dst = slices.Grow(dst, to-from)
	for t := range s.Slice(from, to).All() {
		dst = append(dst, t)
	}
	return dst
}

// Bytes returns the number of bytes in the text of the tokens.
func (s Sequence) Bytes() int64 {
	if s.ids != nil {
		return s.vocab.CountBytes(s.ids[s.firstToken : s.firstToken+s.count])
	}
	return int64(s.tokenOffset(s.count) - s.tokenOffset(0))
}

// tokenOffset returns the offset of token i in the text; i may be the number of tokens.
func (s Sequence) tokenOffset(i int) int {
	i += s.firstToken
	if s.marks == nil {
		return i
	}
	if i/markEvery >= len(s.marks) {
		return len(s.text)
	}
	at := s.marks[i/markEvery]
	for range i % markEvery {
		_, size := utf8.DecodeRune(s.text[at:])
		at += size
	}
	return at
}
