package grammar

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Vocab holds the bytes of tokens. It is immutable.
type Vocab struct {
	size   int
	ids    []int32  // tokens that have bytes, sorted by their bytes
	texts  [][]byte // bytes of these tokens
	shared []int    // number of first bytes that each shares with the one before
	byID   [][]byte
}

// NewVocab returns the vocabulary of n tokens. text appends the bytes of a token to its argument.
// Tokens without bytes, and tokens for which text returns an error, are never allowed.
func NewVocab(n int, text func(dst []byte, id int32) ([]byte, error)) *Vocab {
	v := &Vocab{size: n, byID: make([][]byte, n)}
	for id := range int32(n) {
		b, err := text(nil, id)
		if err != nil || len(b) == 0 {
			continue
		}
		v.byID[id] = b
		v.ids = append(v.ids, id)
	}
	slices.SortFunc(v.ids, func(a, b int32) int { return cmp.Or(bytes.Compare(v.byID[a], v.byID[b]), cmp.Compare(a, b)) })
	for i, id := range v.ids {
		b, n := v.byID[id], 0
		if i > 0 {
			for last := v.texts[i-1]; n < min(len(b), len(last)) && b[n] == last[n]; n++ {
			}
		}
		v.texts, v.shared = append(v.texts, b), append(v.shared, n)
	}
	return v
}

// config is a state of the automaton, and the states behind the calls that led to it.
type config struct {
	state int32
	stack int32 // of Matcher.frames; 0: none
}

// frame is the top of a stack.
type frame struct {
	behind int32
	rest   int32
	depth  int32
}

// set is the configurations that the bytes so far lead to.
type set struct {
	configs []config
	isEnd   bool       // the bytes are a whole value
	next    [256]int32 // the set after each byte plus 1; 0: not known yet; dead: none
	mask    []uint64   // tokens that it allows; nil: not known yet
}

// dead is the next of a byte that is not allowed.
const dead = -1

// Matcher follows a grammar along tokens. It must not be used concurrently.
type Matcher struct {
	g      *Grammar
	v      *Vocab
	frames []frame
	stacks map[frame]int32
	sets   []*set
	known  map[string]int32
	at     int32
	masks  int // size of the masks in bytes

	path  []int32 // sets after the bytes of a token
	err   error
	added []config
	key   []byte
}

// errDead is the error of a token that the grammar does not allow.
var errDead = errors.New("grammar: the token is not allowed")

// Match returns a matcher of an empty text.
func (g *Grammar) Match(v *Vocab) *Matcher {
	m := &Matcher{g: g, v: v}
	m.reset([]config{{state: g.start}})
	return m
}

// reset forgets all sets but that of configurations, whose stacks are in m.frames.
func (m *Matcher) reset(configs []config) {
	old := m.frames
	m.frames, m.stacks = []frame{{}}, map[frame]int32{}
	m.sets, m.known, m.masks = nil, map[string]int32{}, 0
	var move func(stack int32) int32
	move = func(stack int32) int32 {
		if stack == 0 {
			return 0
		}
		return m.push(old[stack].behind, move(old[stack].rest))
	}
	m.added = m.added[:0]
	isEnd := false
	for _, c := range configs {
		m.follow(config{c.state, move(c.stack)}, &isEnd)
	}
	m.at = m.keep(isEnd)
}

// push returns the stack of a state on a stack; 0: it would be too deep.
func (m *Matcher) push(behind, rest int32) int32 {
	f := frame{behind, rest, 1}
	if rest != 0 {
		f.depth = m.frames[rest].depth + 1
	}
	// A nested value takes few calls.
	if f.depth > 4*maxDepth {
		return 0
	}
	at, ok := m.stacks[f]
	if !ok {
		m.frames = append(m.frames, f)
		at = int32(len(m.frames) - 1)
		m.stacks[f] = at
	}
	return at
}

// follow adds c, and what follows it without a byte, to m.added. It sets isEnd where the text may end.
func (m *Matcher) follow(c config, isEnd *bool) {
	if slices.Contains(m.added, c) {
		return
	}
	if len(m.added) >= 8*maxConfigs {
		m.err = fmt.Errorf("grammar: more than %d readings of the text are possible", maxConfigs)
		return
	}
	m.added = append(m.added, c)
	s := &m.g.states[c.state]
	for _, to := range s.free {
		m.follow(config{to, c.stack}, isEnd)
	}
	for _, x := range s.calls {
		if stack := m.push(x.behind, c.stack); stack != 0 {
			m.follow(config{x.rule, stack}, isEnd)
		}
	}
	switch {
	case !s.isEnd:
	case c.stack == 0:
		*isEnd = true
	default:
		f := m.frames[c.stack]
		m.follow(config{f.behind, f.rest}, isEnd)
	}
}

// keep returns the set of those of m.added that a byte may follow, which may be a known one.
func (m *Matcher) keep(isEnd bool) int32 {
	list := slices.DeleteFunc(m.added, func(c config) bool { return len(m.g.states[c.state].edges) == 0 })
	slices.SortFunc(list, func(a, b config) int { return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(a.stack, b.stack)) })
	m.key = m.key[:0]
	for _, c := range list {
		m.key = binary.LittleEndian.AppendUint32(m.key, uint32(c.state))
		m.key = binary.LittleEndian.AppendUint32(m.key, uint32(c.stack))
	}
	if isEnd {
		m.key = append(m.key, 1)
	}
	if at, ok := m.known[string(m.key)]; ok {
		return at
	}
	if len(list) > maxConfigs {
		m.err = fmt.Errorf("grammar: more than %d readings of the text are possible", maxConfigs)
	}
	m.sets = append(m.sets, &set{configs: slices.Clone(list), isEnd: isEnd})
	at := int32(len(m.sets) - 1)
	m.known[string(m.key)] = at
	return at
}

// step returns the set after a byte, or dead.
func (m *Matcher) step(at int32, c byte) int32 {
	s := m.sets[at]
	switch next := s.next[c]; {
	case next == dead:
		return dead
	case next > 0:
		return next - 1
	}
	if len(m.sets) > 2*maxSets {
		m.err = errors.New("grammar: needs too much memory")
		return dead
	}
	m.added = m.added[:0]
	isEnd := false
	for _, x := range s.configs {
		for _, e := range m.g.states[x.state].edges {
			if e.low <= c && c <= e.high {
				m.follow(config{e.to, x.stack}, &isEnd)
			}
		}
	}
	if len(m.added) == 0 {
		s.next[c] = dead
		return dead
	}
	next := m.keep(isEnd)
	if x := m.sets[next]; len(x.configs) == 0 && !x.isEnd { // beyond the depth
		s.next[c] = dead
		return dead
	}
	s.next[c] = next + 1
	return next
}

// Allowed returns a bit for each token that may come next, and reports whether the text may end
// here. The bits are valid until the next call of a method. Allowed returns an error if the grammar
// needs too much memory.
func (m *Matcher) Allowed() (mask []uint64, isEnd bool, err error) {
	s := m.sets[m.at]
	if s.mask == nil {
		s.mask = m.findTokens()
		if m.masks += 8 * len(s.mask); m.masks > maxMasks {
			for _, x := range m.sets {
				if x != s {
					x.mask = nil
				}
			}
			m.masks = 8 * len(s.mask)
		}
	}
	return s.mask, s.isEnd, m.err
}

// findTokens returns a bit for each token that the current set allows.
func (m *Matcher) findTokens() []uint64 {
	mask := make([]uint64, (m.v.size+63)/64)
	m.path = append(m.path[:0], m.at)
	failed := int(^uint(0) >> 1) // bytes of the last token up to the one that is not allowed
	for i, text := range m.v.texts {
		n := m.v.shared[i]
		if n >= failed {
			continue
		}
		failed = int(^uint(0) >> 1)
		m.path = m.path[:n+1]
		for j := n; j < len(text); j++ {
			next := m.step(m.path[j], text[j])
			if next == dead {
				failed = j + 1
				break
			}
			m.path = append(m.path, next)
		}
		if id := m.v.ids[i]; failed > len(text) {
			mask[id/64] |= 1 << (id % 64)
		}
	}
	return mask
}

// IsComplete reports whether the text is complete, so that nothing may follow.
func (m *Matcher) IsComplete() bool {
	s := m.sets[m.at]
	return s.isEnd && len(s.configs) == 0
}

// Accept adds a token to the text. It returns an error if the token is not allowed.
func (m *Matcher) Accept(id int32) error {
	if id < 0 || int(id) >= m.v.size || len(m.v.byID[id]) == 0 {
		return errDead
	}
	for _, c := range m.v.byID[id] {
		next := m.step(m.at, c)
		if next == dead {
			return cmp.Or(m.err, errDead)
		}
		m.at = next
	}
	if len(m.sets) > maxSets {
		m.reset(m.sets[m.at].configs)
	}
	return m.err
}
