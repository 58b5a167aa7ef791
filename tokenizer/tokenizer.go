package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// Encoding holds the tokens of a text. Its slices have one element for each token.
type Encoding struct {
	IDs     []int32
	Offsets [][2]int // first byte and end of each token in the input; [0, 0] for special tokens of the template
	Types   []int32  // 0 for the text, 1 for its pair, unless the template says otherwise
}

// Tokenizer converts text to token ids.
type Tokenizer struct {
	source                   []byte          // tokenizer.json
	normalizer, preTokenizer json.RawMessage // of source
	normalize                []normalizer
	split                    []stage
	model                    encoder
	rawAdded                 *addedTokens // tokens that are found in the text as it was given
	added                    *addedTokens // tokens that are found in the normalized text
	single                   []templateItem
	pair                     []templateItem
	trim                     *offsetTrim // nil: offsets include the spaces
	decode                   []decodeStep
	tokenText                tokenText
	tokens                   []string // by id; "" where there is none
	ids                      map[string]int32
	special                  map[int32]bool
	isAdded                  map[int32]bool
	byteTokens               bool // the vocabulary is written in the alphabet of byte-level BPE
	cutsStart                bool // long texts lose their beginning: truncation.direction is Left
	notes                    []string
	hasTemplate, hasTrim     bool // a post-processor has set the templates, or trim
	states                   sync.Pool
}

// normalizer appends the rewritten in to an empty out, or returns false if nothing changes.
type normalizer interface {
	normalize(in, out *text) bool
}

// encoder finds the tokens of a word.
type encoder interface {
	tokenize(s *state, b []byte, word span, dst []piece) []piece
}

// stage divides a text into words. Its rewrite, if any, rewrites each word before split, if
// any, divides it.
type stage struct {
	rewrite func(in *text, word span, out *text)
	split   func(b []byte, word span, dst []span) []span
}

// state holds the buffers of one call.
type state struct {
	rawText  []byte
	text     [2]*text
	words    [2][]span
	found    []match
	inner    []match
	pieces   []piece
	wantsMap bool
	bpe      bpeState
	lattice  latticeState
}

// Encode returns the ids of a text with the special tokens of the template.
func (t *Tokenizer) Encode(text string) Encoding {
	var e Encoding
	for _, item := range t.single {
		t.appendItem(&e, item, text, "")
	}
	return e
}

// EncodePair returns the ids of a text and its pair with the special tokens of the template.
func (t *Tokenizer) EncodePair(text, pair string) Encoding {
	var e Encoding
	for _, item := range t.pair {
		t.appendItem(&e, item, text, pair)
	}
	return e
}

// EncodePlain returns the ids of a text and adds no special tokens. Those written in the text are
// recognised.
func (t *Tokenizer) EncodePlain(text string) Encoding {
	var e Encoding
	t.appendItem(&e, templateItem{id: sequenceA}, text, "")
	return e
}

// AppendIDs appends the ids of a text to dst: those of Encode, or with plain those of EncodePlain.
func (t *Tokenizer) AppendIDs(dst []int32, text string, plain bool) []int32 {
	if plain {
		return t.encode(dst, nil, text)
	}
	for _, item := range t.single {
		if item.id >= 0 {
			dst = append(dst, item.id)
		} else {
			dst = t.encode(dst, nil, text)
		}
	}
	return dst
}

// AppendStart appends to dst the special tokens that the template puts before a text.
func (t *Tokenizer) AppendStart(dst []int32) []int32 {
	for _, item := range t.single {
		if item.id < 0 {
			break
		}
		dst = append(dst, item.id)
	}
	return dst
}

// appendItem appends the tokens of an item of the template.
func (t *Tokenizer) appendItem(e *Encoding, item templateItem, text, pair string) {
	switch item.id {
	case sequenceA:
		e.IDs = t.encode(e.IDs, &e.Offsets, text)
	case sequenceB:
		e.IDs = t.encode(e.IDs, &e.Offsets, pair)
	default:
		e.IDs, e.Offsets = append(e.IDs, item.id), append(e.Offsets, [2]int{})
	}
	for len(e.Types) < len(e.IDs) {
		e.Types = append(e.Types, item.kind)
	}
}

// longText is the length of a text from which the memory of its encoding is not kept.
const longText = 1 << 18

// encode appends the ids of a text, and unless offsets is nil, their offsets.
func (t *Tokenizer) encode(ids []int32, offsets *[][2]int, input string) []int32 {
	s, _ := t.states.Get().(*state)
	if s == nil {
		s = &state{text: [2]*text{{}, {}}}
	}
	if len(input) <= longText {
		defer t.states.Put(s)
	}
	s.wantsMap = offsets != nil
	first := 0
	if offsets != nil {
		first = len(*offsets)
	}
	firstID := len(ids)
	s.rawText = append(s.rawText[:0], input...)
	s.found = t.rawAdded.find(s.rawText, s.found[:0])
	at := 0
	for _, m := range s.found {
		ids = t.encodePart(s, ids, offsets, span{at, m.start})
		ids = append(ids, m.id)
		if offsets != nil {
			*offsets = append(*offsets, [2]int{m.start, m.end})
		}
		at = m.end
	}
	ids = t.encodePart(s, ids, offsets, span{at, len(s.rawText)})
	if offsets != nil && t.trim != nil {
		t.trimOffsets(s.rawText, ids[firstID:], (*offsets)[first:])
	}
	return ids
}

// encodePart appends the ids of a part of the input without added tokens of its own.
func (t *Tokenizer) encodePart(s *state, ids []int32, offsets *[][2]int, part span) []int32 {
	if part.start >= part.end {
		return ids
	}
	s.text[0].set(s.rawText[part.start:part.end], part.start)
	s.text[0], s.text[1] = normalizeAll(t.normalize, s.text[0], s.text[1])
	s.inner = t.added.find(s.text[0].b, s.inner[:0])
	if len(s.inner) == 0 {
		return t.encodeWords(s, ids, offsets, span{0, len(s.text[0].b)})
	}
	normalized := *s.text[0] // encodeWords overwrites both texts
	s.text[0] = new(text)
	at := 0
	for i := 0; ; i++ {
		end := len(normalized.b)
		if i < len(s.inner) {
			end = s.inner[i].start
		}
		if at < end {
			s.text[0].reset()
			s.text[0].copy(&normalized, span{at, end})
			ids = t.encodeWords(s, ids, offsets, span{0, end - at})
		}
		if i == len(s.inner) {
			return ids
		}
		m := s.inner[i]
		ids = append(ids, m.id)
		if offsets != nil {
			o := normalized.offsets(span{m.start, m.end})
			*offsets = append(*offsets, [2]int{o.start, o.end})
		}
		at = m.end
	}
}

// normalizeAll rewrites in by each of list, and returns the result and the other text.
func normalizeAll(list []normalizer, in, other *text) (out, rest *text) {
	for _, n := range list {
		if other.reset(); n.normalize(in, other) {
			in, other = other, in
		}
	}
	return in, other
}

// encodeWords appends the ids of a part of the normalized text s.text[0].
func (t *Tokenizer) encodeWords(s *state, ids []int32, offsets *[][2]int, part span) []int32 {
	if part.start >= part.end {
		return ids
	}
	s.words[0] = append(s.words[0][:0], part)
	for i := range t.split {
		stage := &t.split[i]
		if stage.rewrite != nil {
			in, out := s.text[0], s.text[1]
			out.reset()
			for j, w := range s.words[0] {
				from := len(out.b)
				stage.rewrite(in, w, out)
				s.words[0][j] = span{from, len(out.b)}
			}
			s.text[0], s.text[1] = out, in
		}
		if stage.split == nil {
			continue
		}
		s.words[1] = s.words[1][:0]
		for _, w := range s.words[0] {
			if w.start < w.end {
				s.words[1] = stage.split(s.text[0].b, w, s.words[1])
			}
		}
		s.words[0], s.words[1] = s.words[1], s.words[0]
	}
	for _, w := range s.words[0] {
		if w.start >= w.end {
			continue
		}
		s.pieces = t.model.tokenize(s, s.text[0].b, w, s.pieces[:0])
		for _, p := range s.pieces {
			ids = append(ids, p.id)
			if offsets != nil {
				o := s.text[0].offsets(span{p.start, p.end})
				*offsets = append(*offsets, [2]int{o.start, o.end})
			}
		}
	}
	return ids
}

// Kind returns the name of the model: WordPiece, WordLevel, BPE, byte-level BPE or Unigram.
func (t *Tokenizer) Kind() string {
	switch t.model.(type) {
	case *wordPiece:
		return "WordPiece"
	case *wordLevel:
		return "WordLevel"
	case *unigram:
		return "Unigram"
	}
	if t.byteTokens {
		return "byte-level BPE"
	}
	return "BPE"
}

// Notes returns the settings of the folder's tokenizer that this package ignores.
func (t *Tokenizer) Notes() []string { return t.notes }

// Size returns one more than the largest id.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// ID returns the id of a token, written as in the vocabulary, and reports whether the vocabulary
// has it.
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Token returns the token id as the vocabulary writes it, or "" if id is outside the vocabulary.
func (t *Tokenizer) Token(id int32) string {
	if id < 0 || int(id) >= len(t.tokens) {
		return ""
	}
	return t.tokens[id]
}

// IsSpecial reports whether id is a special token.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.special[id] }

// IsLowercase reports whether texts are changed to lower case before they are split.
func (t *Tokenizer) IsLowercase() bool {
	for _, n := range t.normalize {
		if _, is := n.(lowercase); is {
			return true
		}
	}
	return false
}

// TruncationSide returns the side on which tokenizer.json wants long texts to be cut: left or
// right, which is the default. This package does not cut texts.
func (t *Tokenizer) TruncationSide() string {
	if t.cutsStart {
		return "left"
	}
	return "right"
}

// JSON returns the tokenizer as the bytes of a tokenizer.json. The caller must not change them. For
// a tokenizer that was read from a tokenizer.model they are an approximation: Parse of them may
// give other ids for texts with control or user-defined pieces.
func (t *Tokenizer) JSON() []byte { return t.source }

// checkID returns an error if an id is outside the vocabulary.
func (t *Tokenizer) checkID(id int32) error {
	if id < 0 || int(id) >= len(t.tokens) {
		return fmt.Errorf("token %d is not in the vocabulary of %d", id, len(t.tokens))
	}
	return nil
}

// setToken gives an id its token.
func (t *Tokenizer) setToken(id int32, token string) {
	if int(id) >= len(t.tokens) {
		t.tokens = append(t.tokens, slices.Repeat([]string{""}, int(id)+1-len(t.tokens))...)
	}
	t.tokens[id] = token
	t.ids[token] = id
}
