package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/strict"
)

// bpe merges neighbours of a word, the pair of the lowest rank first.
type bpe struct {
	vocab          map[string]int32 // keys are bytes of a text
	pairs          map[uint64]merge
	bytes          *[256]int32 // ids of single bytes; nil: a word begins as characters
	fallback       *[256]int32 // ids of <0x00> to <0xFF>; nil: none
	unknown        int32       // -1: unknown characters have no token
	fuse           bool        // unknown characters in a row are one token
	ignoresMerges  bool        // a word that is a token is not merged
	prefix, suffix string      // prefix inside a word, suffix of its last character
}

// merge is the rank of a pair and the token that it becomes.
type merge struct{ rank, id int32 }

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

// symbol is a part of a word while it is merged. Places count from the start of the word.
type symbol struct{ id, prev, next, start, end int32 }

// bpeState holds the buffers of a merge.
type bpeState struct {
	symbols []symbol
	queue   mergeQueue
}

// mergeQueue holds the pairs of a long word that may be merged, by rank and leading symbol.
type mergeQueue struct {
	ranks minHeap // of lists
	lists map[int32]*pairList
	free  []*pairList
}

// pairList holds the leading symbols of the pairs of a rank.
type pairList struct {
	places []int32 // known when the first one is taken, and then sorted
	next   int     // of places
	heap   minHeap // of places that are added afterwards
	isOpen bool    // one is taken
}

// push adds a pair.
func (q *mergeQueue) push(rank, leading int32) {
	list := q.lists[rank]
	if list == nil {
		if n := len(q.free); n > 0 {
			list, q.free = q.free[n-1], q.free[:n-1]
		} else {
			list = &pairList{}
		}
		if q.lists == nil {
			q.lists = map[int32]*pairList{}
		}
		q.lists[rank] = list
		q.ranks.push(rank)
	}
	if list.isOpen {
		list.heap.push(leading)
	} else {
		list.places = append(list.places, leading)
	}
}

// pop removes the first pair. It reports whether there is one.
func (q *mergeQueue) pop() (rank, leading int32, ok bool) {
	for len(q.ranks) > 0 {
		rank = q.ranks[0]
		list := q.lists[rank]
		if !list.isOpen {
			list.isOpen = true
			slices.Sort(list.places)
		}
		switch {
		case list.next < len(list.places) && (len(list.heap) == 0 || list.places[list.next] <= list.heap[0]):
			list.next++
			return rank, list.places[list.next-1], true
		case len(list.heap) > 0:
			return rank, list.heap.pop(), true
		}
		q.ranks.pop()
		delete(q.lists, rank)
		*list = pairList{places: list.places[:0], heap: list.heap}
		q.free = append(q.free, list)
	}
	return 0, 0, false
}

// minHeap is a heap whose first number is the smallest.
type minHeap []int32

// push adds a number.
func (h *minHeap) push(x int32) {
	*h = append(*h, x)
	a := *h
	for i := len(a) - 1; i > 0 && a[i] < a[(i-1)/2]; i = (i - 1) / 2 {
		a[i], a[(i-1)/2] = a[(i-1)/2], a[i]
	}
}

// pop removes the smallest number.
func (h *minHeap) pop() int32 {
	a := *h
	first, n := a[0], len(a)-1
	a[0] = a[n]
	a = a[:n]
	*h = a
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < n && a[child+1] < a[child] {
			child++
		}
		if child >= n || a[i] <= a[child] {
			return first
		}
		a[i], a[child] = a[child], a[i]
		i = child
	}
}

// shortWord is the number of symbols up to which a scan for the lowest rank beats the heap.
const shortWord = 48

// tokenize appends the tokens of the word s of b.
func (m *bpe) tokenize(st *state, b []byte, s span, dst []piece) []piece {
	if m.ignoresMerges {
		if id, ok := m.vocab[string(b[s.start:s.end])]; ok {
			return append(dst, piece{id, s.start, s.end})
		}
	}
	symbols := m.symbols(b, s, st.bpe.symbols[:0])
	if len(symbols) <= shortWord {
		symbols = m.mergeShort(symbols)
	} else {
		m.mergeLong(symbols, &st.bpe.queue)
	}
	st.bpe.symbols = symbols
	for _, y := range symbols {
		if y.id >= 0 {
			dst = append(dst, piece{y.id, s.start + int(y.start), s.start + int(y.end)})
		}
	}
	return dst
}

// symbols appends the symbols that a word begins as.
func (m *bpe) symbols(b []byte, s span, dst []symbol) []symbol {
	fused := false
	if m.bytes != nil {
		for i := range s.end - s.start {
			id := m.bytes[b[s.start+i]]
			switch {
			case id < 0 && m.unknown < 0:
				continue
			case id < 0 && fused && m.fuse:
				dst[len(dst)-1].end = int32(i + 1)
				continue
			}
			if fused = id < 0; fused {
				id = m.unknown
			}
			dst = append(dst, symbol{id: id, start: int32(i), end: int32(i + 1)})
		}
		return dst
	}
	for i, n := s.start, 0; i < s.end; i += n {
		_, n = utf8.DecodeRune(b[i:s.end])
		id, ok := m.character(b[i:i+n], i > s.start, i+n == s.end)
		switch {
		case ok:
			dst = append(dst, symbol{id: id, start: int32(i - s.start), end: int32(i - s.start + n)})
			fused = false
			continue
		case m.fallback != nil && m.hasBytes(b[i:i+n]):
			for j := range n {
				dst = append(dst, symbol{id: m.fallback[b[i+j]], start: int32(i + j - s.start), end: int32(i + j - s.start + 1)})
			}
			fused = false
			continue
		case m.unknown < 0:
			continue
		case fused && m.fuse:
			dst[len(dst)-1].end = int32(i + n - s.start)
			continue
		}
		dst = append(dst, symbol{id: m.unknown, start: int32(i - s.start), end: int32(i - s.start + n)})
		fused = true
	}
	return dst
}

// character returns the id of a character of a word.
func (m *bpe) character(c []byte, inside, last bool) (int32, bool) {
	if m.prefix == "" && m.suffix == "" {
		id, ok := m.vocab[string(c)]
		return id, ok
	}
	key := string(c)
	if inside {
		key = m.prefix + key
	}
	if last {
		key += m.suffix
	}
	id, ok := m.vocab[key]
	return id, ok
}

// needsUnknown reports whether a text may have a character without a token.
func (m *bpe) needsUnknown() bool {
	ids := m.bytes
	if ids == nil {
		ids = m.fallback
	}
	for c := range 256 {
		if isTextByte(c) && (ids == nil || ids[c] < 0) {
			return true
		}
	}
	return false
}

// isTextByte reports whether UTF-8 has a byte.
func isTextByte(c int) bool { return c < 0xC0 || c > 0xC1 && c < 0xF5 }

// hasBytes reports whether each byte of c has a token.
func (m *bpe) hasBytes(c []byte) bool {
	for _, x := range c {
		if m.fallback[x] < 0 {
			return false
		}
	}
	return true
}

// mergeShort merges in place by scans for the lowest rank.
func (m *bpe) mergeShort(s []symbol) []symbol {
	var ranks [shortWord]merge
	none := merge{-1, -1}
	look := func(i int) {
		ranks[i] = none
		if i+1 < len(s) {
			if c, ok := m.pairs[pairKey(s[i].id, s[i+1].id)]; ok {
				ranks[i] = c
			}
		}
	}
	for i := range s {
		look(i)
	}
	for {
		best := -1
		for i := range s {
			if ranks[i].rank >= 0 && (best < 0 || ranks[i].rank < ranks[best].rank) {
				best = i
			}
		}
		if best < 0 {
			return s
		}
		s[best].id, s[best].end = ranks[best].id, s[best+1].end
		copy(ranks[best+1:], ranks[best+2:len(s)])
		s = append(s[:best+1], s[best+2:]...)
		look(best)
		if best > 0 {
			look(best - 1)
		}
	}
}

// mergeLong merges by a queue. Symbols that are merged into others get the id -1.
func (m *bpe) mergeLong(s []symbol, q *mergeQueue) {
	push := func(leading int32) {
		if next := s[leading].next; next >= 0 {
			if c, ok := m.pairs[pairKey(s[leading].id, s[next].id)]; ok {
				q.push(c.rank, leading)
			}
		}
	}
	for i := range s {
		s[i].prev, s[i].next = int32(i-1), int32(i+1)
	}
	s[len(s)-1].next = -1
	for i := range s {
		push(int32(i))
	}
	for {
		rank, leading, ok := q.pop()
		if !ok {
			return
		}
		l := &s[leading]
		if l.id < 0 || l.next < 0 {
			continue
		}
		r := &s[l.next]
		c, ok := m.pairs[pairKey(l.id, r.id)]
		if !ok || c.rank != rank { // the pair of an earlier time
			continue
		}
		l.id, l.end, l.next = c.id, r.end, r.next
		r.id = -1
		if l.next >= 0 {
			s[l.next].prev = leading
		}
		push(leading)
		if l.prev >= 0 {
			push(l.prev)
		}
	}
}

// mergeSpec is a pair of tokens, written as "a b" or ["a", "b"].
type mergeSpec [2]string

// UnmarshalJSON reads a pair in either of its two forms. It returns an error for another shape.
func (p *mergeSpec) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		var list []string
		if err := strict.Unmarshal(data, &list); err != nil {
			return err
		}
		if len(list) != 2 {
			return fmt.Errorf("%d tokens, not 2", len(list))
		}
		*p = mergeSpec(list)
		return nil
	}
	var s string
	if err := strict.Unmarshal(data, &s); err != nil {
		return err
	}
	a, b, ok := strings.Cut(s, " ")
	if !ok {
		return fmt.Errorf("%q is not a pair", s)
	}
	*p = mergeSpec{a, b}
	return nil
}

// bpeSpec is the JSON of a BPE model.
type bpeSpec struct {
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	Unknown      *string          `json:"unk_token"`
	Prefix       string           `json:"continuing_subword_prefix"`
	Suffix       string           `json:"end_of_word_suffix"`
	FuseUnknown  bool             `json:"fuse_unk"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocab        map[string]int32 `json:"vocab"`
	Merges       []mergeSpec      `json:"merges"`
}

// readBPE sets a BPE model.
func (t *Tokenizer) readBPE(raw json.RawMessage) error {
	var s bpeSpec
	if err := decodeStrict("model", raw, &s); err != nil {
		return err
	}
	if s.Dropout != nil && *s.Dropout != 0 {
		return fmt.Errorf("model: dropout is %v, not 0", *s.Dropout)
	}
	if t.byteTokens && s.Prefix+s.Suffix != "" {
		return fmt.Errorf("model: continuing_subword_prefix is %q and end_of_word_suffix %q behind a pre_tokenizer ByteLevel, only none are read", s.Prefix, s.Suffix)
	}
	if err := t.setVocabulary(s.Vocab); err != nil {
		return err
	}
	m := &bpe{vocab: s.Vocab, pairs: make(map[uint64]merge, len(s.Merges)), unknown: -1, fuse: s.FuseUnknown, ignoresMerges: s.IgnoreMerges,
		prefix: s.Prefix, suffix: s.Suffix}
	if s.Unknown != nil {
		if id, ok := s.Vocab[*s.Unknown]; ok {
			m.unknown = id
		}
	}
	for rank, p := range s.Merges {
		a, hasA := s.Vocab[p[0]]
		b, hasB := s.Vocab[p[1]]
		c, hasC := s.Vocab[p[0]+strings.TrimPrefix(p[1], s.Prefix)]
		if !hasA || !hasB || !hasC {
			return fmt.Errorf("model: merge %d, %q and %q, or its result is not in the vocabulary of %d", rank, p[0], p[1], len(s.Vocab))
		}
		m.pairs[pairKey(a, b)] = merge{int32(rank), c}
	}
	if s.ByteFallback {
		m.fallback = fallbackBytes(s.Vocab)
	}
	if t.byteTokens {
		m.bytes = new([256]int32)
		m.vocab = make(map[string]int32, len(s.Vocab))
		for key, id := range s.Vocab {
			if b, ok := alphabetBytes(key); ok {
				m.vocab[string(b)] = id
			}
		}
		for c := range 256 {
			m.bytes[c] = -1
			if id, ok := m.vocab[string([]byte{byte(c)})]; ok {
				m.bytes[c] = id
			} else if m.fallback != nil && isTextByte(c) && m.hasBytes([]byte(string(alphabet[c]))) {
				return fmt.Errorf("model: byte_fallback behind a pre_tokenizer ByteLevel is not read; byte 0x%02x has no other token", c)
			}
		}
	}
	if s.Unknown != nil && m.unknown < 0 && m.needsUnknown() {
		return fmt.Errorf("model: unk_token %q is not in the vocabulary of %d", *s.Unknown, len(s.Vocab))
	}
	t.model = m
	return nil
}

// fallbackBytes returns the ids of <0x00> to <0xFF>; -1 where there is none.
func fallbackBytes(vocab map[string]int32) *[256]int32 {
	ids := new([256]int32)
	for c := range ids {
		ids[c] = -1
		if id, ok := vocab[fmt.Sprintf("<0x%02X>", c)]; ok {
			ids[c] = id
		}
	}
	return ids
}

// alphabet holds the characters that byte-level BPE writes bytes as: printable characters of
// Latin-1 as themselves, others from U+0100 on.
var alphabet, alphabetIndex = func() (a [256]rune, index map[rune]byte) {
	index = map[rune]byte{}
	next := rune(256)
	for c := range a {
		a[c] = rune(c)
		if c < '!' || c > '~' && c < 0xA1 || c == 0xAD {
			a[c] = next
			next++
		}
		index[a[c]] = byte(c)
	}
	return a, index
}()

// alphabetBytes returns the bytes of a token of byte-level BPE. It returns false if a
// character is outside the alphabet.
func alphabetBytes(token string) ([]byte, bool) {
	b := make([]byte, 0, len(token))
	for _, r := range token {
		c, ok := alphabetIndex[r]
		if !ok {
			return nil, false
		}
		b = append(b, c)
	}
	return b, true
}
