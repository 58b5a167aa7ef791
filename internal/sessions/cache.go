package sessions

import (
	"container/list"
	"slices"
	"sync"

	"github.com/farfield-ml/farfield/model"
)

// cache is the trie of prefixes: states after sequences of tokens, in memory and on disk.
// Its nodes are the keys of whole chunks. What it forgets is computed a second time, so
// every entry may be dropped.
type cache struct {
	mu      sync.Mutex
	entries map[prefixKey]*entry
	parts   map[prefixKey][]int // of a node, the numbers of tokens of its entries after it

	memory, disk           list.List // entries by their last use, the latest in front
	memoryBytes, diskBytes int64
	savingBytes            int64 // of memoryBytes, of entries that wait for the disk

	// nodes has the nodes of past prompts, at most maxNodes, with and without entries.
	nodes    map[prefixKey]struct{}
	nodeList []prefixKey // a ring
	nodeAt   int
}

// maxNodes bounds cache.nodes.
const maxNodes = 1 << 16

// entry is the state after a sequence of tokens.
type entry struct {
	key    prefixKey
	prefix prefix

	state    *model.Session // nil: not in memory; nothing steps it
	bytes    int64          // of state
	fileSize int64          // on disk; 0: none
	pins     int            // sessions whose last snapshot it is
	isSaving bool           // the state stays in memory until it is on disk

	inMemory, onDisk *list.Element
}

// newCache returns an empty cache.
func newCache() *cache {
	return &cache{entries: map[prefixKey]*entry{}, parts: map[prefixKey][]int{}, nodes: map[prefixKey]struct{}{}}
}

// observe returns the number of leading tokens of a prompt whose nodes were in an earlier
// prompt. It adds all nodes of the prompt.
func (c *cache) observe(keys []prefixKey) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := 0
	for i, k := range keys[1:] {
		if _, ok := c.nodes[k]; ok {
			if known == i {
				known = i + 1
			}
			continue
		}
		if len(c.nodeList) < maxNodes {
			c.nodeList = append(c.nodeList, k)
		} else {
			delete(c.nodes, c.nodeList[c.nodeAt])
			c.nodeList[c.nodeAt] = k
			c.nodeAt = (c.nodeAt + 1) % maxNodes
		}
		c.nodes[k] = struct{}{}
	}
	return known * chunkTokens
}

// find returns the entry of the longest prefix of ids, and its number of tokens from the
// root on. keys are chainKeys of ids. It returns nil if there is none.
func (c *cache) find(keys []prefixKey, ids []int32) (*entry, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(keys) - 1; i >= 0; i-- {
		from := i * chunkTokens
		sizes := c.parts[keys[i]]
		for j := len(sizes) - 1; j >= 0; j-- {
			if end := from + sizes[j]; end <= len(ids) {
				if e := c.entries[keys[i].extend(ids[from:end])]; e != nil {
					c.touch(e)
					return e, end
				}
			}
		}
		if e := c.entries[keys[i]]; e != nil && i > 0 {
			c.touch(e)
			return e, from
		}
	}
	return nil, 0
}

// lookup returns the entry of a key, or nil.
func (c *cache) lookup(key prefixKey) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e != nil {
		c.touch(e)
	}
	return e
}

// touch moves e to the front of its lists.
func (c *cache) touch(e *entry) {
	if e.inMemory != nil {
		c.memory.MoveToFront(e.inMemory)
	}
	if e.onDisk != nil {
		c.disk.MoveToFront(e.onDisk)
	}
}

// has reports whether a key has an entry.
func (c *cache) has(key prefixKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[key] != nil
}

// put holds state, which nothing may step any more, as the entry of p.
func (c *cache) put(p prefix, state *model.Session) *entry {
	key := p.key()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entryOf(key, p)
	if e.state == nil {
		e.prefix = p.clone() // an entry of a file knows the number of tokens alone
		e.state, e.bytes = state, state.HeapBytes()
		c.memoryBytes += e.bytes
		e.inMemory = c.memory.PushFront(e)
	}
	c.touch(e)
	return e
}

// entryOf returns the entry of key, which may be new. c.mu is held.
func (c *cache) entryOf(key prefixKey, p prefix) *entry {
	e := c.entries[key]
	if e == nil {
		e = &entry{key: key, prefix: p.clone()}
		c.entries[key] = e
		if n := len(p.rest); n > 0 {
			sizes := c.parts[p.chain]
			at, _ := slices.BinarySearch(sizes, n)
			c.parts[p.chain] = slices.Insert(sizes, at, n)
		}
	}
	return e
}

// addFile records that key has a file of size bytes.
func (c *cache) addFile(e *entry, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setFile(e, size)
}

// setFile sets the size of the file of e. 0: it has none. c.mu is held.
func (c *cache) setFile(e *entry, size int64) {
	c.diskBytes += size - e.fileSize
	e.fileSize = size
	switch {
	case size > 0 && e.onDisk == nil:
		e.onDisk = c.disk.PushFront(e)
	case size == 0 && e.onDisk != nil:
		c.disk.Remove(e.onDisk)
		e.onDisk = nil
	}
}

// dropMemory forgets the state in memory of e. c.mu is held.
func (c *cache) dropMemory(e *entry) {
	if e.inMemory != nil {
		c.memory.Remove(e.inMemory)
		c.memoryBytes -= e.bytes
		e.state, e.inMemory = nil, nil
	}
	c.forget(e)
}

// forget removes e if it has neither memory nor file. c.mu is held.
func (c *cache) forget(e *entry) {
	if e.state != nil || e.fileSize > 0 || c.entries[e.key] != e {
		return
	}
	delete(c.entries, e.key)
	if n := len(e.prefix.rest); n > 0 {
		sizes := c.parts[e.prefix.chain]
		if at, ok := slices.BinarySearch(sizes, n); ok {
			sizes = slices.Delete(sizes, at, at+1)
		}
		if c.parts[e.prefix.chain] = sizes; len(sizes) == 0 {
			delete(c.parts, e.prefix.chain)
		}
	}
}

// victim returns the entry of a list that is used the longest ago; snapshots of
// sessions come last. It returns nil if there is none. c.mu is held.
func victim(l *list.List, isMemory bool) *entry {
	var pinned *entry
	for at := l.Back(); at != nil; at = at.Prev() {
		e := at.Value.(*entry)
		switch {
		case isMemory && e.isSaving:
		case !isMemory && e.pins > 0:
			if pinned == nil {
				pinned = e
			}
		default:
			return e
		}
	}
	return pinned
}

// setSaving says whether e waits for the disk.
func (c *cache) setSaving(e *entry, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is == e.isSaving {
		return
	}
	e.isSaving = is
	if is {
		c.savingBytes += e.bytes
		return
	}
	c.savingBytes -= e.bytes
	if e.fileSize > 0 {
		c.dropMemory(e)
	}
}

// isWaitFull reports whether e and others that wait for the disk take more than limit. e alone may.
func (c *cache) isWaitFull(e *entry, limit int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.savingBytes > max(limit, e.bytes)
}

// pin changes the number of sessions whose last snapshot e is; nil: nothing.
func (c *cache) pin(e *entry, n int) {
	if e == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.pins += n
}

// bytes returns the bytes in memory and on disk.
func (c *cache) bytes() (memory, disk int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memoryBytes, c.diskBytes
}
