package token

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/internal/fault"
)

// EncodeExact is Encode for tokens whose bytes must be those of text, as bits per byte need them.
// continues says that text continues another one. A space that a tokenizer puts before a text is
// kept at the beginning of a text; a continuation gets the tokens that text has after a line break,
// if these lack the space. EncodeExact returns an error where Encode does, and if the tokenizer
// changes other bytes.
func (v *Vocabulary) EncodeExact(dst []int32, text []byte, continues bool) ([]int32, error) {
	n := len(dst)
	dst, err := v.Encode(dst, text)
	if err != nil || v.tokenizer == nil {
		return dst, err
	}
	at, spaces := v.matchBytes(text, dst[n:])
	if at == len(text) && spaces <= 1 && (spaces == 0 || !continues) {
		return dst, nil
	}
	if rest, ok := v.encodeBehindBreak(text); ok {
		if same, spaces := v.matchBytes(text, rest); same == len(text) && spaces == 0 {
			return append(dst[:n], rest...), nil
		}
	}
	if at < len(text) || spaces > 1 {
		return dst[:n], rewritten(text, at)
	}
	return dst, nil
}

// EncodeNext is Encode for text that continues another one: the space that a tokenizer puts before
// a text is left out. It returns an error where Encode does.
func (v *Vocabulary) EncodeNext(dst []int32, text []byte) ([]int32, error) {
	n := len(dst)
	dst, err := v.Encode(dst, text)
	if err != nil || v.tokenizer == nil {
		return dst, err
	}
	at, more := v.matchBytes(text, dst[n:])
	if more == 0 {
		return dst, nil
	}
	if rest, ok := v.encodeBehindBreak(text); ok {
		if end, left := v.matchBytes(text, rest); end > at || end == at && left < more {
			return append(dst[:n], rest...), nil
		}
	}
	return dst, nil
}

// encodeBehindBreak returns the tokens of text after a line break. It reports false if the line
// break and the text share a token.
func (v *Vocabulary) encodeBehindBreak(text []byte) (tokens []int32, ok bool) {
	lead := v.tokenizer.AppendIDs(nil, "\n", true)
	all := v.tokenizer.AppendIDs(nil, "\n"+string(text), true)
	if len(all) < len(lead) || !slices.Equal(all[:len(lead)], lead) {
		return nil, false
	}
	return all[len(lead):], true
}

// CheckExact returns the number of spaces, 0 or 1, that the tokens add before the text. It returns
// an error if their other bytes are not the text. For a slice, the whole text is checked.
func (s Sequence) CheckExact() (spaces int, err error) {
	if s.vocab == nil || s.vocab.tokenizer == nil {
		return 0, nil
	}
	at, spaces := s.vocab.matchBytes(s.text, s.ids)
	if at < len(s.text) || spaces > 1 {
		return 0, rewritten(s.text, at)
	}
	return spaces, nil
}

// matchBytes returns the number of bytes of text that tokens spell one after the other,
// and the bytes that tokens have more: 1 for a space before text, larger for others.
func (v *Vocabulary) matchBytes(text []byte, tokens []int32) (at, more int) {
	for i, t := range tokens {
		b := v.tokenizer.Bytes(t)
		if i == 0 && !bytes.HasPrefix(text, b) && len(b) > 0 && b[0] == ' ' {
			b, more = b[1:], 1
		}
		if !bytes.HasPrefix(text[at:], b) {
			return at, more + len(b) + 1
		}
		at += len(b)
	}
	return at, more
}

// rewritten returns the error of a text whose tokens have other bytes from offset at on.
func rewritten(text []byte, at int) error {
	const shown = 24
	return fault.Mark(fault.ErrInput, fmt.Errorf("the tokenizer changes the text from byte %d on, %q: bits per byte need every byte", at, text[at:min(at+shown, len(text))]))
}
