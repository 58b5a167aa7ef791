package tokenizer

import (
	"bytes"
	"fmt"
	"iter"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// finder finds matches of a pattern. all returns the matches in b that are not empty, each the
// first after the one before. leastSize returns the least number of bytes of a match.
type finder interface {
	all(b []byte) iter.Seq[span]
	leastSize() int
}

// patternSpec is {"String": …} or {"Regex": …}.
type patternSpec struct {
	String *string
	Regex  *string
}

// compile returns the finder of a pattern.
func (p *patternSpec) compile(field string) (finder, error) {
	switch {
	case p != nil && p.String != nil && *p.String != "":
		return literal(*p.String), nil
	case p != nil && p.Regex != nil:
		f, err := newPattern(*p.Regex)
		if err != nil {
			return nil, fmt.Errorf("%s: pattern %q: %w", field, *p.Regex, err)
		}
		return f, nil
	}
	return nil, fmt.Errorf("%s: pattern is missing", field)
}

// literal finds a string.
type literal string

func (p literal) all(b []byte) iter.Seq[span] {
	return func(yield func(span) bool) {
		for at := 0; ; {
			i := bytes.Index(b[at:], []byte(p))
			if i < 0 || !yield(span{at + i, at + i + len(p)}) {
				return
			}
			at += i + len(p)
		}
	}
}

func (p literal) leastSize() int { return len(p) }

// matcher returns the end of a match that begins at i; -1 if there is none. Nodes are compiled
// with the matcher of the nodes after them, so that a match backtracks.
type matcher func(s *search, b []byte, i int) int

// pattern is a regular expression, with lookahead as an addition to package syntax. It takes
// the first alternative that matches, and the longest run that lets the rest match.
type pattern struct {
	minLength int // characters of a match
	choices   int // nodes that may match in several ways
	match     matcher
}

// Bounds of a regular expression.
const (
	maxPattern  = 4096 // bytes
	maxCompiled = 4096 // nodes
	maxChoices  = 512
)

func (p *pattern) leastSize() int { return p.minLength }

func (p *pattern) all(b []byte) iter.Seq[span] {
	return p.search(&search{choices: p.choices, free: freeSteps * (len(b) + 1)}, b)
}

// search returns the matches that a new search finds.
func (p *pattern) search(s *search, b []byte) iter.Seq[span] {
	return func(yield func(span) bool) {
		for at := 0; at < len(b); {
			s.at = at
			if end := p.match(s, b, at); end > at {
				if !yield(span{at, end}) {
					return
				}
				at = end
				continue
			}
			_, n := utf8.DecodeRune(b[at:])
			at += n
		}
	}
}

// freeSteps is the number of steps for each byte of a text before results are recorded.
const freeSteps = 64

// search finds all matches of a pattern in a text. Whether a choice of the pattern matches at a
// byte does not depend on what comes before. Once the search has taken more steps than are free, it
// records for each choice and byte, in one bit, whether the choice has failed there, and for
// lookaheads whether it has matched. So no choice is tried twice at a byte, and the whole search
// takes time linear in the text.
type search struct {
	choices         int
	free            int // steps that are left without records
	at              int // where the match begins that is tried
	start           int // byte of the first bit
	failed, matched [][]uint64
}

// step takes n steps.
func (s *search) step(n int) {
	if s.free -= n; s.free < 0 && s.failed == nil {
		s.start, s.failed, s.matched = s.at, make([][]uint64, s.choices), make([][]uint64, s.choices)
	}
}

// has reports whether the record of a choice has byte i.
func (s *search) has(record [][]uint64, choice, i int) bool {
	if record == nil {
		return false
	}
	row, bit := record[choice], i-s.start
	return bit/64 < len(row) && row[bit/64]>>(bit%64)&1 != 0
}

// add puts bytes first to last in the record of a choice.
func (s *search) add(record [][]uint64, choice, first, last int) {
	if record == nil {
		return
	}
	row := record[choice]
	if n := (last-s.start)/64 + 1 - len(row); n > 0 {
		row = append(row, make([]uint64, n)...)
		record[choice] = row
	}
	for bit := first - s.start; bit <= last-s.start; bit++ {
		row[bit/64] |= 1 << (bit % 64)
	}
}

// Marks of a lookahead, in place of (?= and (?!, which package syntax does not read.
const (
	markAhead    = "(?P<ahead%d>"
	markNotAhead = "(?P<notahead%d>"
)

// newPattern compiles a regular expression. It returns an error for a construct that may take
// more than linear memory or time, and for a construct that package syntax does not read.
func newPattern(s string) (*pattern, error) {
	if len(s) > maxPattern {
		return nil, fmt.Errorf("%d bytes, at most %d are read", len(s), maxPattern)
	}
	text, err := translate(s)
	if err != nil {
		return nil, err
	}
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	least := leastLength(re)
	if least == 0 {
		return nil, fmt.Errorf("it matches the empty text")
	}
	c := new(compiler)
	m, err := c.compile(re, matchEnd)
	if err != nil {
		return nil, err
	}
	if c.choices > maxChoices {
		return nil, fmt.Errorf("it has %d choices, at most %d are read", c.choices, maxChoices)
	}
	return &pattern{minLength: least, choices: c.choices, match: m}, nil
}

// matchEnd ends a match.
func matchEnd(_ *search, _ []byte, i int) int { return i }

// translate writes a regular expression of the reference in the language of package syntax. Classes
// of Unicode and the flag i become classes of characters of our tables. It returns an error for a
// construct that package syntax reads in another way.
func translate(s string) (string, error) {
	var b strings.Builder
	folds := []bool{false} // the flag i, of the groups that are open
	lookaheads := 0
	for i := 0; i < len(s); i++ {
		rest, fold := s[i:], folds[len(folds)-1]
		switch {
		case s[i] == '\\' && i+1 < len(s):
			text, set, n, err := readEscape(rest, false)
			if err != nil {
				return "", err
			}
			i += n - 1
			if set != nil {
				text = "[" + set.text() + "]"
			}
			if fold && set == nil && text[1] == 'x' {
				if text, err = foldClass("["+text+"]", false); err != nil {
					return "", err
				}
			}
			b.WriteString(text)
		case s[i] == '[':
			text, not, n, err := readClass(rest)
			if err != nil {
				return "", err
			}
			i += n - 1
			if fold {
				if text, err = foldClass("["+text+"]", not); err != nil {
					return "", err
				}
			} else if text = "[" + text + "]"; not {
				text = "[^" + text[1:]
			}
			b.WriteString(text)
		case s[i] == '^' || s[i] == '$': // of a line
			b.WriteString("(?m:" + s[i:i+1] + ")")
		case strings.HasPrefix(rest, "{,"):
			return "", fmt.Errorf("%q is not read", rest[:2])
		case strings.HasPrefix(rest, "(?=") || strings.HasPrefix(rest, "(?!"):
			mark := markAhead
			if rest[2] == '!' {
				mark = markNotAhead
			}
			fmt.Fprintf(&b, mark, lookaheads)
			folds = append(folds, fold)
			lookaheads, i = lookaheads+1, i+2
		case s[i] == '(':
			flags, is := strings.CutPrefix(rest, "(?")
			end := strings.IndexAny(flags, ":)<")
			if !is || end <= 0 {
				folds = append(folds, fold)
				b.WriteByte(s[i])
				continue
			}
			on := flags[:end] == "i"
			if !on && flags[:end] != "-i" {
				return "", fmt.Errorf("%q is not read, only the flag i is", rest[:end+3])
			}
			if flags[end] == ')' {
				if i > 0 {
					return "", fmt.Errorf("%q is read at the beginning alone", rest[:end+3])
				}
				folds[0] = on
			} else {
				folds = append(folds, on)
				b.WriteString("(?:")
			}
			i += end + 2
		case s[i] == ')':
			if len(folds) == 1 {
				return "", fmt.Errorf("byte %d closes no group", i)
			}
			folds = folds[:len(folds)-1]
			b.WriteByte(s[i])
		default:
			r, n := utf8.DecodeRuneInString(rest)
			if set := (runeSet{r, r}).foldIf(fold); len(set) > 2 || set[0] < set[1] {
				b.WriteString("[" + set.text() + "]")
			} else {
				b.WriteString(rest[:n])
			}
			i += n - 1
		}
	}
	return b.String(), nil
}

// foldIf returns the set, with fold without regard to case.
func (s runeSet) foldIf(fold bool) runeSet {
	if !fold {
		return s
	}
	return s.fold()
}

// foldClass returns the class without regard to case, or with not its complement.
func foldClass(class string, not bool) (string, error) {
	re, err := syntax.Parse(class, syntax.Perl)
	if err != nil {
		return "", err
	}
	set := runeSet(slices.Clone(newCharSet(re).ranges)).normal().fold()
	if not {
		set = set.complement()
	}
	return "[" + set.text() + "]", nil
}

// readClass reads a class at the beginning of s, n bytes long. It returns its members in the
// language of package syntax.
func readClass(s string) (text string, not bool, n int, err error) {
	var b strings.Builder
	i := 1
	if strings.HasPrefix(s, "[^") {
		not, i = true, 2
	}
	for first := i; i < len(s); i++ {
		switch rest := s[i:]; {
		case s[i] == '\\' && i+1 < len(s):
			text, set, n, err := readEscape(rest, true)
			if err != nil {
				return "", false, 0, err
			}
			b.WriteString(text + set.text())
			i += n - 1
		case s[i] == '[' || strings.HasPrefix(rest, "&&"):
			return "", false, 0, fmt.Errorf("%q in a class is not read", rest[:min(2, len(rest))])
		case s[i] == ']' && i > first:
			return b.String(), not, i + 1, nil
		case s[i] == ']':
			b.WriteString(`\]`)
		default:
			b.WriteByte(s[i])
		}
	}
	return "", false, 0, fmt.Errorf("a class is not closed")
}

// readEscape reads an escape at the beginning of s, n bytes long, in a class or outside. It returns
// what package syntax reads, or a set of characters. It returns an error for an escape that package
// syntax reads in another way.
func readEscape(s string, inClass bool) (text string, set runeSet, n int, err error) {
	switch c := s[1]; c {
	case 's', 'S', 'w', 'W', 'd', 'D':
		switch c | 0x20 {
		case 's':
			set, _ = property("Z")
			set = append(runeSet{'\t', '\r', 0x85, 0x85}, set...).normal()
		case 'd':
			set, _ = property("Nd")
		default:
			set = setOf(tables().classRuns, func(v uint32) bool { return v<<(categoryBits+1)&classPatternWord != 0 })
			if inClass { // numbers of Latin-1 are members of \w outside of classes
				set = append(set.complement(), 0xB2, 0xB3, 0xB9, 0xB9, 0xBC, 0xBE).normal().complement()
			}
		}
		if c&0x20 == 0 {
			set = set.complement()
		}
		return "", set, 2, nil
	case 'p', 'P':
		name, end := "", 3
		if len(s) > 2 {
			name = s[2:3]
		}
		if name == "{" {
			if end = strings.IndexByte(s, '}') + 1; end == 0 {
				return "", nil, 0, fmt.Errorf("%.9q is not closed", s)
			}
			name = s[3 : end-1]
		}
		rest, not := strings.CutPrefix(name, "^")
		set, has := property(rest)
		if !has {
			return "", nil, 0, fmt.Errorf("%q is no general category or script that is read", s[:min(end, len(s))])
		}
		if not != (c == 'P') {
			set = set.complement()
		}
		return "", set, end, nil
	case 'Q', 'E':
		return "", nil, 0, fmt.Errorf(`\%c is not read`, c)
	case 'x':
		if end := strings.IndexByte(s, '}'); end > 0 && s[2] == '{' {
			return s[:end+1], nil, end + 1, nil
		}
		if len(s) > 3 {
			return s[:4], nil, 4, nil
		}
	}
	return s[:2], nil, 2, nil
}

// leastLength returns the least number of characters that a match may have.
func leastLength(re *syntax.Regexp) int {
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1
	case syntax.OpCapture:
		if strings.HasPrefix(re.Name, "ahead") || strings.HasPrefix(re.Name, "notahead") {
			return 0
		}
		return leastLength(re.Sub[0])
	case syntax.OpPlus:
		return leastLength(re.Sub[0])
	case syntax.OpRepeat:
		return re.Min * leastLength(re.Sub[0])
	case syntax.OpConcat:
		n := 0
		for _, sub := range re.Sub {
			n += leastLength(sub)
		}
		return n
	case syntax.OpAlternate:
		n := leastLength(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			n = min(n, leastLength(sub))
		}
		return n
	}
	return 0
}

// repeatBounds returns the bounds of a repetition. most < 0: without a bound.
func repeatBounds(re *syntax.Regexp) (least, most int) {
	switch re.Op {
	case syntax.OpStar:
		return 0, -1
	case syntax.OpPlus:
		return 1, -1
	case syntax.OpQuest:
		return 0, 1
	}
	return re.Min, re.Max
}

// compiler compiles an expression.
type compiler struct {
	nodes   int
	choices int
	ahead   bool // in a lookahead, where it matters whether a node matches, and not where it ends
}

// addChoice returns m as a choice, whose results are recorded.
func (c *compiler) addChoice(m matcher) matcher {
	choice, ahead := c.choices, c.ahead
	c.choices++
	return func(s *search, b []byte, i int) int {
		switch {
		case s.has(s.failed, choice, i):
			return -1
		case ahead && s.has(s.matched, choice, i):
			return i
		}
		s.step(1)
		end := m(s, b, i)
		if end < 0 {
			s.add(s.failed, choice, i, i)
		} else if ahead {
			s.add(s.matched, choice, i, i)
		}
		return end
	}
}

// isPatternWord reports whether r is a member of \w.
func isPatternWord(r rune) bool { return isClass(r, classPatternWord) }

func (c *compiler) compile(re *syntax.Regexp, next matcher) (matcher, error) {
	if c.nodes++; c.nodes > maxCompiled {
		return nil, fmt.Errorf("it is too large")
	}
	switch re.Op {
	case syntax.OpEmptyMatch:
		return next, nil
	case syntax.OpLiteral, syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		if re.Op == syntax.OpLiteral && len(re.Rune) != 1 {
			for i := len(re.Rune) - 1; i >= 0; i-- {
				one := &syntax.Regexp{Op: syntax.OpLiteral, Flags: re.Flags, Rune: re.Rune[i : i+1]}
				var err error
				if next, err = c.compile(one, next); err != nil {
					return nil, err
				}
			}
			return next, nil
		}
		set := newCharSet(re)
		return func(s *search, b []byte, i int) int {
			if n := set.size(b, i); n > 0 {
				return next(s, b, i+n)
			}
			return -1
		}, nil
	case syntax.OpCapture:
		body := re.Sub[0]
		ahead, not := strings.HasPrefix(re.Name, "ahead"), strings.HasPrefix(re.Name, "notahead")
		if !ahead && !not {
			return c.compile(body, next)
		}
		inside := c.ahead
		c.ahead = true
		m, err := c.compile(body, matchEnd)
		c.ahead = inside
		return c.addChoice(func(s *search, b []byte, i int) int {
			if m(s, b, i) >= 0 != ahead {
				return -1
			}
			return next(s, b, i)
		}), err
	case syntax.OpConcat:
		for i := len(re.Sub) - 1; i >= 0; i-- {
			var err error
			if next, err = c.compile(re.Sub[i], next); err != nil {
				return nil, err
			}
		}
		return next, nil
	case syntax.OpAlternate:
		list := make([]matcher, len(re.Sub))
		for i, sub := range re.Sub {
			var err error
			if list[i], err = c.compile(sub, next); err != nil {
				return nil, err
			}
		}
		return c.addChoice(func(s *search, b []byte, i int) int {
			for _, m := range list {
				if end := m(s, b, i); end >= 0 {
					return end
				}
			}
			return -1
		}), nil
	case syntax.OpBeginText, syntax.OpBeginLine:
		return func(s *search, b []byte, i int) int {
			if i > 0 && (re.Op == syntax.OpBeginText || b[i-1] != '\n') {
				return -1
			}
			return next(s, b, i)
		}, nil
	case syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return func(s *search, b []byte, i int) int {
			before, _ := utf8.DecodeLastRune(b[:i])
			after, _ := utf8.DecodeRune(b[i:])
			atBoundary := (i > 0 && isPatternWord(before)) != (i < len(b) && isPatternWord(after))
			if atBoundary != (re.Op == syntax.OpWordBoundary) {
				return -1
			}
			return next(s, b, i)
		}, nil
	case syntax.OpEndText, syntax.OpEndLine:
		return func(s *search, b []byte, i int) int {
			if i < len(b) && (re.Op == syntax.OpEndText || b[i] != '\n') {
				return -1
			}
			return next(s, b, i)
		}, nil
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		least, most := repeatBounds(re)
		return c.repeat(re, least, most, next)
	}
	return nil, fmt.Errorf("%s is not read", re)
}

// repeat compiles a repetition. most < 0: without a bound.
func (c *compiler) repeat(re *syntax.Regexp, least, most int, next matcher) (matcher, error) {
	if re.Flags&syntax.NonGreedy != 0 {
		return nil, fmt.Errorf("%s: only greedy repetitions are read", re)
	}
	body := re.Sub[0]
	for body.Op == syntax.OpCapture && body.Name == "" {
		body = body.Sub[0]
	}
	single := body.Op == syntax.OpCharClass || body.Op == syntax.OpAnyChar || body.Op == syntax.OpAnyCharNotNL ||
		body.Op == syntax.OpLiteral && len(body.Rune) == 1
	if !single {
		if most < 0 {
			unit := fixedSets(nil, body)
			if unit == nil {
				return nil, fmt.Errorf("%s: only groups of a fixed number of characters are repeated without a bound", re)
			}
			if c.nodes += len(unit); least > 1 {
				tail, err := c.repeat(re, 0, most, next)
				if err != nil {
					return nil, err
				}
				return c.repeat(re, least, least, tail)
			}
			return c.runGroup(unit, least, next), nil
		}
		last := next
		for k := most; k > 0; k-- {
			m, err := c.compile(body, next)
			if err != nil {
				return nil, err
			}
			if next = m; k > least { // to skip one is to skip all that follow
				next = c.addChoice(func(s *search, b []byte, i int) int {
					if end := m(s, b, i); end >= 0 {
						return end
					}
					return last(s, b, i)
				})
			}
		}
		return next, nil
	}
	if most < 0 && least > 1 { // least of them, and then any number
		tail, err := c.repeat(re, 0, most, next)
		if err != nil {
			return nil, err
		}
		return c.repeat(re, least, least, tail)
	}
	set := newCharSet(body)
	if most < 0 {
		return c.run(set, least, next), nil
	}
	return c.addChoice(func(s *search, b []byte, i int) int {
		count, at := 0, i
		for count < most {
			n := set.size(b, at)
			if n == 0 {
				break
			}
			count++
			at += n
		}
		s.step(count)
		for ; count >= least; count-- {
			if end := next(s, b, at); end >= 0 {
				return end
			}
			if count > 0 {
				_, n := utf8.DecodeLastRune(b[i:at])
				at -= n
			}
		}
		return -1
	}), nil
}

// run compiles a repetition of a character without a bound. least is 0 or 1.
func (c *compiler) run(set *charSet, least int, next matcher) matcher {
	choice, ahead := c.choices, c.ahead
	c.choices++
	return func(s *search, b []byte, i int) int {
		at := i
		for !s.has(s.failed, choice, at) { // or next fails wherever a longer run ends
			if ahead && s.has(s.matched, choice, at) {
				s.add(s.matched, choice, i, at)
				return at
			}
			n := set.size(b, at)
			if n == 0 {
				break
			}
			at += n
		}
		s.step(at - i + 1)
		for j := at; j > i || j == i && least == 0; {
			if end := next(s, b, j); end >= 0 {
				if ahead {
					s.add(s.matched, choice, i, j-least)
				}
				return end
			}
			_, n := utf8.DecodeLastRune(b[i:j])
			j -= max(n, 1)
		}
		s.add(s.failed, choice, i, at)
		return -1
	}
}

// fixedSets appends to sets one for each character of a node that matches in one way alone: characters
// one after the other. It returns nil for other nodes, and for more than maxUnit characters.
func fixedSets(sets []*charSet, re *syntax.Regexp) []*charSet {
	switch re.Op {
	case syntax.OpLiteral:
		for i := range re.Rune {
			sets = append(sets, newCharSet(&syntax.Regexp{Op: re.Op, Flags: re.Flags, Rune: re.Rune[i : i+1]}))
		}
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		sets = append(sets, newCharSet(re))
	case syntax.OpConcat, syntax.OpRepeat, syntax.OpCapture:
		times := 1
		if re.Op == syntax.OpRepeat {
			if times = re.Min; re.Min != re.Max {
				return nil
			}
		}
		if re.Name != "" { // a lookahead
			return nil
		}
		for range times {
			for _, sub := range re.Sub {
				if sets = fixedSets(sets, sub); sets == nil || len(sets) > maxUnit {
					return nil
				}
			}
		}
	default:
		return nil
	}
	if len(sets) > maxUnit {
		return nil
	}
	return sets
}

// maxUnit bounds the characters of a group that is repeated without a bound.
const maxUnit = 64

// runGroup is run of a group of characters.
func (c *compiler) runGroup(unit []*charSet, least int, next matcher) matcher {
	choice, ahead := c.choices, c.ahead
	c.choices++
	return func(s *search, b []byte, i int) int {
		// record adds the beginnings of groups from byte i to last.
		record := func(of [][]uint64, last int) {
			for at := i; of != nil && at <= last; {
				s.add(of, choice, at, at)
				n := groupSize(unit, b, at)
				if n == 0 {
					break
				}
				at += n
			}
		}
		at, count := i, 0
		for !s.has(s.failed, choice, at) {
			if ahead && s.has(s.matched, choice, at) {
				record(s.matched, at)
				return at
			}
			n := groupSize(unit, b, at)
			if n == 0 {
				break
			}
			at += n
			count++
		}
		s.step((at - i) + 1)
		for j := at; count >= least; count-- {
			if end := next(s, b, j); end >= 0 {
				if ahead {
					record(s.matched, j-least)
				}
				return end
			}
			for range unit {
				if j > i {
					_, n := utf8.DecodeLastRune(b[i:j])
					j -= n
				}
			}
		}
		record(s.failed, at)
		return -1
	}
}

// groupSize returns the bytes of the characters of unit at b[i]; 0 if they are others.
func groupSize(unit []*charSet, b []byte, i int) int {
	at := i
	for _, set := range unit {
		n := set.size(b, at)
		if n == 0 {
			return 0
		}
		at += n
	}
	return at - i
}

// charSet is a set of characters.
type charSet struct {
	ascii  [utf8.RuneSelf]bool
	ranges []rune // pairs of ends, ascending
}

// newCharSet returns the set of a node that matches one character.
func newCharSet(re *syntax.Regexp) *charSet {
	s := new(charSet)
	switch re.Op {
	case syntax.OpLiteral:
		r := re.Rune[0]
		s.ranges = []rune{r, r}
		if re.Flags&syntax.FoldCase != 0 { // what package syntax makes of a class of the two characters, and of no other
			f := unicode.SimpleFold(r)
			s.ranges = runeSet{r, r, f, f}.normal()
		}
	case syntax.OpCharClass:
		s.ranges = re.Rune
	case syntax.OpAnyCharNotNL:
		s.ranges = []rune{0, '\n' - 1, '\n' + 1, utf8.MaxRune}
	default:
		s.ranges = []rune{0, utf8.MaxRune}
	}
	for r := range rune(utf8.RuneSelf) {
		s.ascii[r] = s.has(r)
	}
	return s
}

// has reports whether a character is in the set.
func (s *charSet) has(r rune) bool {
	lo, hi := 0, len(s.ranges)/2
	for lo < hi {
		mid := (lo + hi) / 2
		switch {
		case r < s.ranges[2*mid]:
			hi = mid
		case r > s.ranges[2*mid+1]:
			lo = mid + 1
		default:
			return true
		}
	}
	return false
}

// size returns the size of the character at b[i] if it is in the set; 0 if not.
func (s *charSet) size(b []byte, i int) int {
	if i >= len(b) {
		return 0
	}
	if b[i] < utf8.RuneSelf {
		if s.ascii[b[i]] {
			return 1
		}
		return 0
	}
	if r, n := utf8.DecodeRune(b[i:]); s.has(r) {
		return n
	}
	return 0
}
