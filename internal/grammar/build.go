package grammar

import (
	"errors"
	"fmt"
)

// Limits of a grammar and its matchers.
const (
	maxStates  = 1 << 16 // of a grammar
	maxDepth   = 64      // of nested values, in a schema and in an answer
	maxConfigs = 256     // of a set
	maxSets    = 4096    // that a matcher keeps
	maxMasks   = 4 << 20 // bytes of the masks that a matcher keeps
)

// MatcherBytes bounds the memory of a Matcher in bytes.
const MatcherBytes = 14 << 20

// Grammar is a set of byte strings, described by an automaton. It is immutable.
type Grammar struct {
	states []state
	start  int32
}

// state is a state of the automaton.
type state struct {
	edges []edge
	free  []int32 // states that follow without a byte
	calls []call
	isEnd bool // of a rule: the state after its call follows
}

// edge leads to a state by one byte of a range.
type edge struct {
	low, high byte
	to        int32
}

// call leads through a rule to a state after it.
type call struct{ rule, behind int32 }

// part is a piece of a grammar from one state to another.
type part struct{ from, to int32 }

// builder makes states. After the first error it makes nothing.
type builder struct {
	states []state
	rules  map[string]int32 // first states, by the names of values that are used again
	err    error
}

func newBuilder() *builder { return &builder{rules: map[string]int32{}} }

// fail keeps the first error.
func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// add returns a new state.
func (b *builder) add() int32 {
	if len(b.states) >= maxStates {
		b.fail(fmt.Errorf("needs more than %d states", maxStates))
		return 0
	}
	b.states = append(b.states, state{})
	return int32(len(b.states) - 1)
}

// connect lets to follow from without a byte.
func (b *builder) connect(from, to int32) {
	if b.err == nil {
		b.states[from].free = append(b.states[from].free, to)
	}
}

// empty is the part of no bytes.
func (b *builder) empty() part {
	s := b.add()
	return part{s, s}
}

// bytes is the part of one byte of ranges: pairs of a first and a last byte.
func (b *builder) bytes(ranges string) part {
	p := part{b.add(), b.add()}
	for i := 0; i+1 < len(ranges) && b.err == nil; i += 2 {
		b.states[p.from].edges = append(b.states[p.from].edges, edge{ranges[i], ranges[i+1], p.to})
	}
	return p
}

// text is the part of one text.
func (b *builder) text(s string) part {
	p := b.empty()
	for i := range len(s) {
		p = b.join(p, b.bytes(s[i:i+1]+s[i:i+1]))
	}
	return p
}

// join is one part after another.
func (b *builder) join(list ...part) part {
	p := list[0]
	for _, next := range list[1:] {
		b.connect(p.to, next.from)
		p.to = next.to
	}
	return p
}

// either is one of several parts.
func (b *builder) either(list ...part) part {
	p := part{b.add(), b.add()}
	for _, x := range list {
		b.connect(p.from, x.from)
		b.connect(x.to, p.to)
	}
	return p
}

// maybe is x, or nothing.
func (b *builder) maybe(x part) part { return b.either(x, b.empty()) }

// repeat is x at least least times and at most most times; most < 0: any number. make returns x anew.
func (b *builder) repeat(make func() part, least, most int) part {
	p := b.empty()
	for range least {
		if b.err != nil {
			return p
		}
		p = b.join(p, make())
	}
	if most < 0 {
		x, end := make(), b.add()
		start := b.add()
		b.connect(start, x.from)
		b.connect(x.to, start)
		b.connect(start, end)
		return b.join(p, part{start, end})
	}
	end := b.add()
	for range most - least {
		if b.err != nil {
			return p
		}
		b.connect(p.to, end)
		p = b.join(p, make())
	}
	b.connect(p.to, end)
	return part{p.from, end}
}

// callRule is the part of the rule that begins at a state.
func (b *builder) callRule(rule int32) part {
	p := part{b.add(), b.add()}
	if b.err == nil {
		b.states[p.from].calls = append(b.states[p.from].calls, call{rule, p.to})
	}
	return p
}

// rule is the part of a named rule, which body makes at its first use.
func (b *builder) rule(name string, body func() part) part {
	start, ok := b.rules[name]
	if !ok {
		start = b.add()
		b.rules[name] = start // before its body, which may need it
		p := body()
		b.connect(start, p.from)
		if b.err == nil {
			b.states[p.to].isEnd = true
		}
	}
	return b.callRule(start)
}

// finish returns the grammar of p. It returns an error if a rule calls itself before a byte.
func (b *builder) finish(p part) (*Grammar, error) {
	if b.err != nil {
		return nil, b.err
	}
	b.states[p.to].isEnd = true
	const begun, done = 1, 2
	seen := make([]byte, len(b.states))
	var visit func(s int32) bool
	visit = func(s int32) bool {
		if seen[s] != 0 {
			return seen[s] == done
		}
		seen[s] = begun
		for _, to := range b.states[s].free {
			// A loop without a byte and without a call adds nothing.
			if seen[to] != begun && !visit(to) {
				return false
			}
		}
		for _, c := range b.states[s].calls {
			if !visit(c.rule) {
				return false
			}
		}
		seen[s] = done
		return true
	}
	for _, s := range b.states {
		for _, c := range s.calls {
			if seen[c.rule] == 0 && !visit(c.rule) {
				return nil, errors.New("a definition is nothing but itself")
			}
		}
	}
	return &Grammar{b.states, p.from}, nil
}
