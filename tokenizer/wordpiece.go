package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// piece is a token of a text: its id and its bytes.
type piece struct {
	id         int32
	start, end int
}

// wordPiece takes the longest token at each place of a word.
type wordPiece struct {
	trie     *trie
	prefix   int32 // node after the prefix of tokens inside a word
	unknown  int32
	maxChars int // longer words are unknown
}

// newWordPiece returns the model of a vocabulary. It returns an error if the unknown token is
// missing.
func newWordPiece(vocab map[string]int32, prefix, unknown string, maxChars int) (*wordPiece, error) {
	id, ok := vocab[unknown]
	if !ok {
		return nil, fmt.Errorf("model: unk_token %q is not in the vocabulary of %d", unknown, len(vocab))
	}
	m := &wordPiece{trie: newTrie(), unknown: id, maxChars: maxChars}
	for key, id := range vocab {
		if err := m.trie.add(key, id); err != nil {
			return nil, err
		}
	}
	m.prefix = m.trie.walk(0, prefix)
	return m, nil
}

// tokenize appends the tokens of the word s of b.
func (m *wordPiece) tokenize(_ *state, b []byte, s span, dst []piece) []piece {
	if s.end-s.start > m.maxChars && utf8.RuneCount(b[s.start:s.end]) > m.maxChars {
		return append(dst, piece{m.unknown, s.start, s.end})
	}
	begin, node := len(dst), int32(0)
	for at := s.start; at < s.end; {
		best, end := int32(-1), at
		for i := at; i < s.end && node >= 0; {
			if node = m.trie.step(node, b[i]); node < 0 {
				break
			}
			if i++; m.trie.values[node] >= 0 {
				best, end = m.trie.values[node], i
			}
		}
		if best < 0 {
			return append(dst[:begin], piece{m.unknown, s.start, s.end})
		}
		dst = append(dst, piece{best, at, end})
		at, node = end, m.prefix
	}
	return dst
}

// wordLevel has a token for each word.
type wordLevel struct {
	vocab   map[string]int32
	unknown int32
}

// hasSpaces reports whether a token has white space, so that texts keep theirs.
func (m *wordLevel) hasSpaces() bool {
	for token := range m.vocab {
		if strings.ContainsFunc(token, isSpace) {
			return true
		}
	}
	return false
}

// tokenize appends the token of the word s of b.
func (m *wordLevel) tokenize(_ *state, b []byte, s span, dst []piece) []piece {
	id, ok := m.vocab[string(b[s.start:s.end])]
	if !ok {
		id = m.unknown
	}
	return append(dst, piece{id, s.start, s.end})
}
