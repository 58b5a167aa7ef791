package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/strict"
)

// unigram takes the tokens of the highest sum of scores.
type unigram struct {
	trie     *trie
	scores   []float64
	unknown  int32
	fallback *[256]int32
	penalty  float64 // score of an unknown character
	single   bool    // sums are float32, as SentencePiece's
}

// latticeState holds the buffers of a search: at each byte, the best token that ends there.
type latticeState struct {
	best  []float64
	start []int
	id    []int32
}

// unigramEntry is ["token", score].
type unigramEntry struct {
	token string
	score float64
}

// UnmarshalJSON reads an entry of a piece and its score. It returns an error for another shape.
func (e *unigramEntry) UnmarshalJSON(data []byte) error {
	var list []json.RawMessage
	if err := strict.Unmarshal(data, &list); err != nil {
		return err
	}
	if len(list) != 2 {
		return fmt.Errorf("%d values, not a token and its score", len(list))
	}
	if err := strict.Unmarshal(list[0], &e.token); err != nil {
		return err
	}
	return strict.Unmarshal(list[1], &e.score)
}

// unigramSpec is the JSON of a Unigram model.
type unigramSpec struct {
	Type         string         `json:"type"`
	Unknown      *int32         `json:"unk_id"`
	Vocab        []unigramEntry `json:"vocab"`
	ByteFallback bool           `json:"byte_fallback"`
}

// readUnigram sets a Unigram model.
func (t *Tokenizer) readUnigram(raw json.RawMessage) error {
	var s unigramSpec
	if err := decodeStrict("model", raw, &s); err != nil {
		return err
	}
	if s.Unknown == nil {
		return errors.New("model: unk_id is missing")
	}
	if *s.Unknown < 0 || int(*s.Unknown) >= len(s.Vocab) {
		return fmt.Errorf("model: unk_id is %d, not in a vocabulary of %d", *s.Unknown, len(s.Vocab))
	}
	m := &unigram{trie: newTrie(), unknown: *s.Unknown, scores: make([]float64, len(s.Vocab))}
	vocab := make(map[string]int32, len(s.Vocab))
	lowest := math.Inf(1)
	for i, e := range s.Vocab {
		vocab[e.token] = int32(i)
		m.scores[i] = e.score
		lowest = min(lowest, e.score)
		if err := m.trie.add(e.token, int32(i)); err != nil {
			return err
		}
	}
	m.penalty = lowest - 10
	if s.ByteFallback {
		m.fallback = fallbackBytes(vocab)
	}
	t.model = m
	if err := t.setVocabulary(vocab); err != nil {
		return err
	}
	for i, e := range s.Vocab { // a token that is there twice keeps both ids
		if int(i) < len(t.tokens) {
			t.tokens[i] = e.token
		}
	}
	return nil
}

// tokenize appends the tokens of the word s of b.
func (m *unigram) tokenize(st *state, b []byte, s span, dst []piece) []piece {
	b = b[:s.end]
	l, n := &st.lattice, s.end-s.start+1
	for len(l.best) < n {
		l.best, l.start, l.id = append(l.best, 0), append(l.start, 0), append(l.id, 0)
	}
	best, start, ids := l.best[:n], l.start[:n], l.id[:n]
	for i := range best {
		start[i] = -1
	}
	best[0] = 0
	for i, size := 0, 0; i+1 < n; i += size {
		_, size = utf8.DecodeRune(b[s.start+i:])
		single, node := false, int32(0)
		for j := i; j+1 < n; {
			if node = m.trie.step(node, b[s.start+j]); node < 0 {
				break
			}
			j++
			id := m.trie.values[node]
			if id < 0 {
				continue
			}
			if score := m.sum(best[i], m.scores[id]); start[j] < 0 || score > best[j] {
				best[j], start[j], ids[j] = score, i, id
			}
			single = single || j-i == size
		}
		if j := i + size; !single {
			if score := m.sum(best[i], m.penalty); start[j] < 0 || score > best[j] {
				best[j], start[j], ids[j] = score, i, -1
			}
		}
	}
	begin := len(dst)
	for j := n - 1; j > 0; j = start[j] {
		last := len(dst) - 1
		if ids[j] < 0 && last >= begin && dst[last].id < 0 { // unknown characters in a row are one token
			dst[last].start = s.start + start[j]
			continue
		}
		dst = append(dst, piece{ids[j], s.start + start[j], s.start + j})
	}
	for i, j := begin, len(dst)-1; i < j; i, j = i+1, j-1 {
		dst[i], dst[j] = dst[j], dst[i]
	}
	return m.resolve(b, dst, begin)
}

// sum adds a score.
func (m *unigram) sum(a, b float64) float64 {
	if m.single {
		return float64(float32(a + b))
	}
	return a + b
}

// resolve gives unknown pieces the tokens of their bytes, or the unknown token.
func (m *unigram) resolve(b []byte, dst []piece, begin int) []piece {
	known := true
	for _, p := range dst[begin:] {
		known = known && p.id >= 0
	}
	if known {
		return dst
	}
	end := len(dst)
	for i := begin; i < end; i++ {
		p := dst[i]
		switch {
		case p.id >= 0:
			dst = append(dst, p)
		case m.fallback != nil && m.hasBytes(b[p.start:p.end]):
			for _, c := range b[p.start:p.end] {
				dst = append(dst, piece{m.fallback[c], p.start, p.end})
			}
		default:
			dst = append(dst, piece{m.unknown, p.start, p.end})
		}
	}
	return dst[:begin+copy(dst[begin:], dst[end:])]
}

// hasBytes reports whether each byte has a token.
func (m *unigram) hasBytes(b []byte) bool {
	for _, c := range b {
		if m.fallback[c] < 0 {
			return false
		}
	}
	return true
}
