package serve

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"
)

// longText is the number of bytes from which a text is long.
const longText = 64 << 10

// encodeText returns the ids of a text, as Tokens does. It returns the error of Tokens or ctx.
func (s *Server) encodeText(ctx context.Context, text string, special bool) ([]int32, error) {
	return s.encodeInTurn(ctx, text, func(text string) ([]int32, error) { return s.o.Tokens.Encode(text, special) })
}

// encodeInTurn returns the ids that encode gives a text. It encodes few long texts at a time, since that takes many
// times their memory. It returns the error of encode or ctx.
func (s *Server) encodeInTurn(ctx context.Context, text string, encode func(text string) ([]int32, error)) ([]int32, error) {
	if len(text) >= longText {
		select {
		case s.texts <- struct{}{}:
			defer func() { <-s.texts }()
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return encode(text)
}

// textDecoder makes text of tokens. A character whose bytes belong to several tokens is in the
// text of the last; bytes that are not UTF-8 are U+FFFD.
type textDecoder struct {
	tokens Tokens
	ends   []int32 // ids that end a text, which have none
	rest   []byte  // of a character that is not complete
}

// add returns the text that id completes. It returns an error if id is outside the vocabulary.
func (d *textDecoder) add(id int32) (string, error) {
	if slices.Contains(d.ends, id) {
		return "", nil
	}
	var err error
	if d.rest, err = d.tokens.Bytes(d.rest, id); err != nil {
		return "", err
	}
	n := len(d.rest)
	for i := 1; i <= min(n, utf8.UTFMax-1); i++ {
		if b := d.rest[n-i:]; utf8.RuneStart(b[0]) {
			if !utf8.FullRune(b) {
				n -= i
			}
			break
		}
	}
	text := strings.ToValidUTF8(string(d.rest[:n]), "\ufffd")
	d.rest = append(d.rest[:0], d.rest[n:]...)
	return text, nil
}

// end returns the text of the bytes that are left.
func (d *textDecoder) end() string {
	text := strings.ToValidUTF8(string(d.rest), "\ufffd")
	d.rest = d.rest[:0]
	return text
}

// decode returns the text of ids. It returns an error if an id is outside the vocabulary.
func (d textDecoder) decode(ids []int32) (string, error) {
	var text strings.Builder
	for _, id := range ids {
		part, err := d.add(id)
		if err != nil {
			return "", err
		}
		text.WriteString(part)
	}
	text.WriteString(d.end())
	return text.String(), nil
}

// stopText is text that ends before the first of its stops.
type stopText struct {
	decoder textDecoder
	stops   []string
	held    string // may begin a stop
	isEnded bool   // a stop is found
}

// add returns the text that id adds, without an end that may begin a stop. It returns an error
// if id is outside the vocabulary.
func (t *stopText) add(id int32) (string, error) {
	if t.isEnded {
		return "", nil
	}
	part, err := t.decoder.add(id)
	if err != nil {
		return "", err
	}
	return t.split(t.held + part), nil
}

// end returns the text that is held.
func (t *stopText) end() string {
	if t.isEnded {
		return ""
	}
	text := t.split(t.held + t.decoder.end())
	if !t.isEnded {
		text += t.held
	}
	t.held = ""
	return text
}

// split returns the beginning of text that is in no stop, and holds the rest.
func (t *stopText) split(text string) string {
	first := len(text)
	for _, stop := range t.stops {
		if i := strings.Index(text, stop); i >= 0 && i < first {
			first, t.isEnded = i, true
		}
	}
	if t.isEnded {
		t.held = ""
		return text[:first]
	}
	keep := 0
	for _, stop := range t.stops {
		for n := min(len(stop)-1, len(text)); n > keep; n-- {
			if strings.HasSuffix(text, stop[:n]) {
				keep = n
				break
			}
		}
	}
	t.held = text[len(text)-keep:]
	return text[:len(text)-keep]
}
