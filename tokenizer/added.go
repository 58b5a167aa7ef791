package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// addedToken is an entry of added_tokens.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// match is an added token in a text.
type match struct {
	id         int32
	start, end int
}

// addedTokens finds added tokens in a text: at each place the longest.
type addedTokens struct {
	trie  *trie
	list  []addedToken // by the trie's value
	first [256]bool    // bytes that a token begins with
}

// newAddedTokens returns nil for an empty list.
func newAddedTokens(list []addedToken) (*addedTokens, error) {
	if len(list) == 0 {
		return nil, nil
	}
	a := &addedTokens{trie: newTrie(), list: list}
	for i, t := range list {
		if t.Content == "" {
			continue
		}
		a.first[t.Content[0]] = true
		if err := a.trie.add(t.Content, int32(i)); err != nil {
			return nil, fmt.Errorf("added_tokens: %w", err)
		}
	}
	return a, nil
}

// longest returns the index and the end of the longest added token at byte i of b; -1 and i if
// there is none.
func (a *addedTokens) longest(b []byte, i int) (best int32, end int) {
	best, end = -1, i
	if a == nil {
		return best, end
	}
	for j, node := i, int32(0); j < len(b); {
		if node = a.trie.step(node, b[j]); node < 0 {
			break
		}
		if j++; a.trie.values[node] >= 0 {
			best, end = a.trie.values[node], j
		}
	}
	return best, end
}

// find appends the added tokens of b to dst, in order. A token may begin in the spaces that the
// token before takes. A token of white space that the token before takes whole is not there.
func (a *addedTokens) find(b []byte, dst []match) []match {
	if a == nil {
		return dst
	}
	last := 0
	spaces := 0 // end of the last run of white space
	for i := 0; i < len(b); i++ {
		if !a.first[b[i]] {
			continue
		}
		best, end := a.longest(b, i)
		if best < 0 {
			continue
		}
		from, to, t := i, end, &a.list[best]
		i = end - 1
		if t.SingleWord && (endsInWord(b[:from]) || beginsWithWord(b[to:])) {
			continue
		}
		if t.LStrip {
			for from > last {
				r, n := utf8.DecodeLastRune(b[last:from])
				if !isSpace(r) {
					break
				}
				from -= n
			}
			if from = max(from, last); from >= to {
				continue
			}
		}
		if t.RStrip {
			if spaces <= to { // otherwise the rest of that run is after the token
				for spaces = to; spaces < len(b); {
					r, n := utf8.DecodeRune(b[spaces:])
					if !isSpace(r) {
						break
					}
					spaces += n
				}
			}
			to = spaces
		}
		dst = append(dst, match{t.ID, from, to})
		last = to
	}
	return dst
}

func endsInWord(b []byte) bool {
	r, n := utf8.DecodeLastRune(b)
	return n > 0 && isWordChar(r)
}

func beginsWithWord(b []byte) bool {
	r, n := utf8.DecodeRune(b)
	return n > 0 && isWordChar(r)
}
