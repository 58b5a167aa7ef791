package tokenizer

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
)

// longestWord is the number of bytes at which training divides a word.
const longestWord = 256

// trainer counts the pairs of neighbours in the words of a text.
type trainer struct {
	words  [][]int32 // tokens of each word
	counts []int64   // of each word
	pairs  map[uint64]int64
	places map[uint64][]int32 // words in which a pair has been
	queue  pairQueue
}

// pairCount is a pair with its count when it entered the queue.
type pairCount struct {
	key   uint64
	count int64
}

// pairQueue is a heap of pairs: the highest count first, then the lowest ids.
type pairQueue []pairCount

func (a pairCount) precedes(b pairCount) bool {
	return a.count > b.count || a.count == b.count && a.key < b.key
}

// push adds a pair.
func (q *pairQueue) push(p pairCount) {
	*q = append(*q, p)
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h[i].precedes(h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

// pop removes the first pair.
func (q *pairQueue) pop() pairCount {
	h := *q
	first, n := h[0], len(h)-1
	h[0] = h[n]
	h = h[:n]
	*q = h
	for i := 0; ; {
		child := 2*i + 1
		if child >= n {
			return first
		}
		if child+1 < n && h[child+1].precedes(h[child]) {
			child++
		}
		if !h[child].precedes(h[i]) {
			return first
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// Train is TrainWith with a vocabulary of at most size tokens.
func Train(ctx context.Context, text []byte, size int) (*Tokenizer, error) {
	return TrainWith(ctx, text, TrainOptions{Size: size})
}

// TrainOptions holds the choices of TrainWith.
type TrainOptions struct {
	Size      int  // largest number of tokens
	Lowercase bool // the text, and texts to be encoded later, are changed to lower case
}

// TrainWith learns a byte-level BPE tokenizer from a text, split into words as GPT-2 splits it. Ids
// 0 to 255 are the bytes. Each further token joins the most frequent pair of neighbouring tokens;
// among equally frequent pairs, the one with the lowest ids. Training ends early if no pair occurs
// twice. TrainWith returns an error if the size is below 256 or above the number of possible ids,
// or if ctx ends.
func TrainWith(ctx context.Context, text []byte, o TrainOptions) (*Tokenizer, error) {
	size := o.Size
	if size < 256 || size > maxIDs {
		return nil, fmt.Errorf("vocabulary: size is %d, not in 256 to %d", size, maxIDs)
	}
	if o.Lowercase {
		text = bytes.Map(toLower, text)
	}
	t := newTrainer(text)
	vocab := make(map[string]int32, size)
	tokens := make([]string, 256, size)
	for c := range 256 {
		tokens[c] = string(alphabet[c])
		vocab[tokens[c]] = int32(c)
	}
	merges := [][]string{}
	for len(tokens) < size && len(t.queue) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p := t.queue.pop()
		if count := t.pairs[p.key]; count != p.count {
			if count > 1 {
				t.queue.push(pairCount{p.key, count})
			}
			continue
		}
		if p.count < 2 {
			break
		}
		a, b := tokens[p.key>>32], tokens[uint32(p.key)]
		if _, ok := vocab[a+b]; ok { // other parts of a token that is there
			delete(t.pairs, p.key)
			continue
		}
		id := int32(len(tokens))
		merges = append(merges, []string{a, b})
		tokens = append(tokens, a+b)
		vocab[a+b] = id
		t.merge(p.key, id)
	}
	level := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	parts := object{
		"added_tokens": []addedToken{}, "pre_tokenizer": level, "decoder": level,
		"model": object{"type": "BPE", "vocab": vocab, "merges": merges},
	}
	if o.Lowercase {
		parts["normalizer"] = object{"type": "Lowercase"}
	}
	return assemble(parts)
}

// newTrainer counts the words and pairs of a text.
func newTrainer(text []byte) *trainer {
	counts := map[string]int64{}
	var words []span
	for at := 0; at < len(text); { // by lines, so that the spans of few words are held
		end := min(at+1<<16, len(text))
		for end < len(text) && (text[end] == ' ' || text[end-1] != '\n') {
			end++
		}
		words = splitGPT2(text, span{at, end}, words[:0])
		for _, w := range words {
			for ; w.end-w.start > longestWord; w.start += longestWord {
				counts[string(text[w.start:w.start+longestWord])]++
			}
			counts[string(text[w.start:w.end])]++
		}
		at = end
	}
	t := &trainer{pairs: map[uint64]int64{}, places: map[uint64][]int32{}}
	for _, w := range slices.Sorted(maps.Keys(counts)) {
		ids := make([]int32, len(w))
		for i := range len(w) {
			ids[i] = int32(w[i])
		}
		t.words, t.counts = append(t.words, ids), append(t.counts, counts[w])
	}
	for w, ids := range t.words {
		t.count(int32(w), ids, 1, func(uint64) bool { return true })
	}
	for _, key := range slices.Sorted(maps.Keys(t.pairs)) {
		t.queue.push(pairCount{key, t.pairs[key]})
	}
	return t
}

// count adds sign times the pairs of a word, and its place to each pair for which keeps holds.
func (t *trainer) count(word int32, ids []int32, sign int64, keeps func(key uint64) bool) {
	for i := 1; i < len(ids); i++ {
		key := pairKey(ids[i-1], ids[i])
		t.pairs[key] += sign * t.counts[word]
		if keeps(key) {
			if list := t.places[key]; len(list) == 0 || list[len(list)-1] != word {
				t.places[key] = append(list, word)
			}
		}
	}
}

// merge makes token id of a pair wherever it is, and queues the pairs with the new token.
func (t *trainer) merge(key uint64, id int32) {
	a, b := int32(key>>32), int32(uint32(key))
	isNew := func(key uint64) bool { return int32(key>>32) == id || int32(uint32(key)) == id }
	var fresh []uint64
	for _, w := range t.places[key] {
		ids := t.words[w]
		found := false
		for i := 1; i < len(ids) && !found; i++ {
			found = ids[i-1] == a && ids[i] == b
		}
		if !found {
			continue
		}
		t.count(w, ids, -1, func(uint64) bool { return false })
		n := 0
		for i := 0; i < len(ids); i++ {
			if i+1 < len(ids) && ids[i] == a && ids[i+1] == b {
				ids[n] = id
				i++
			} else {
				ids[n] = ids[i]
			}
			n++
		}
		t.words[w] = ids[:n]
		t.count(w, ids[:n], 1, func(key uint64) bool {
			if !isNew(key) {
				return false
			}
			if len(t.places[key]) == 0 {
				fresh = append(fresh, key)
			}
			return true
		})
	}
	delete(t.pairs, key)
	delete(t.places, key)
	for _, key := range fresh {
		t.queue.push(pairCount{key, t.pairs[key]})
	}
}
