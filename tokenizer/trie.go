package tokenizer

import "fmt"

// Bounds of a trie. A search at each byte of a text reads at most maxKey bytes, so that its time
// is linear in the text.
const (
	maxNodes = 1<<24 - 1
	maxKey   = 512 // bytes
)

// trie finds the keys that begin at a place. Its edges are one hash table.
type trie struct {
	edges     []edge
	shift     uint8
	edgeCount int
	values    []int32 // by node; -1: no key ends here
}

// edge leads from a node by a byte to the next node. key is node<<8|byte, plus 1.
type edge struct{ key, next uint32 }

func newTrie() *trie { return &trie{edges: make([]edge, 1<<8), shift: 32 - 8, values: []int32{-1}} }

// step returns the node after a byte; -1 if there is none.
func (t *trie) step(node int32, b byte) int32 {
	key := uint32(node)<<8 | uint32(b) + 1
	mask := uint32(len(t.edges) - 1)
	for i := key * 2654435769 >> t.shift; ; i = (i + 1) & mask {
		switch e := &t.edges[i]; e.key {
		case key:
			return int32(e.next)
		case 0:
			return -1
		}
	}
}

// walk returns the node after the bytes of s; -1 if there is none.
func (t *trie) walk(node int32, s string) int32 {
	for i := 0; i < len(s) && node >= 0; i++ {
		node = t.step(node, s[i])
	}
	return node
}

// add makes value the value of a key. It returns an error if the key is too long or the trie is
// full.
func (t *trie) add(key string, value int32) error {
	if len(key) > maxKey {
		return fmt.Errorf("vocabulary: token %d, %.20q…, has %d bytes, at most %d are read", value, key, len(key), maxKey)
	}
	node := int32(0)
	for i := range len(key) {
		next := t.step(node, key[i])
		if next < 0 {
			if len(t.values) >= maxNodes {
				return fmt.Errorf("vocabulary: it has more than %d prefixes", maxNodes)
			}
			next = int32(len(t.values))
			t.values = append(t.values, -1)
			if 2*(t.edgeCount+1) > len(t.edges) {
				t.grow()
			}
			t.insert(edge{uint32(node)<<8 | uint32(key[i]) + 1, uint32(next)})
			t.edgeCount++
		}
		node = next
	}
	t.values[node] = value
	return nil
}

// insert stores an edge that is not there.
func (t *trie) insert(e edge) {
	mask := uint32(len(t.edges) - 1)
	i := e.key * 2654435769 >> t.shift
	for t.edges[i].key != 0 {
		i = (i + 1) & mask
	}
	t.edges[i] = e
}

// grow doubles the hash table.
func (t *trie) grow() {
	old := t.edges
	t.edges = make([]edge, 2*len(old))
	t.shift--
	for _, e := range old {
		if e.key != 0 {
			t.insert(e)
		}
	}
}
