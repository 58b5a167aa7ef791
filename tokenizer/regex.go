package tokenizer

import (
	"bytes"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// finder finds matches of a pattern. find returns the first match that begins at or behind at
// and is not empty; to is -1 if there is none.
type finder interface {
	find(b []byte, at int) span
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

func (p literal) find(b []byte, at int) span {
	i := bytes.Index(b[at:], []byte(p))
	if i < 0 {
		return span{0, -1}
	}
	return span{at + i, at + i + len(p)}
}

// matcher returns the end of a match that begins at i; -1 if there is none. Nodes are compiled
// with the matcher of the nodes behind them, so that a match backtracks.
type matcher func(b []byte, i int) int

// pattern is a regular expression, with lookahead as an addition to package syntax. It takes
// the first alternative that matches, and the longest run that lets the rest match.
type pattern struct{ match matcher }

// maxPattern bounds the length of a regular expression.
const maxPattern = 4096

func (p *pattern) find(b []byte, at int) span {
	for at < len(b) {
		if end := p.match(b, at); end > at {
			return span{at, end}
		}
		_, n := utf8.DecodeRune(b[at:])
		at += n
	}
	return span{0, -1}
}

// Marks of a lookahead, in place of (?= and (?!, which package syntax does not read.
const (
	markAhead    = "(?P<ahead%d>"
	markNotAhead = "(?P<notahead%d>"
)

// Members of the classes \s and \w. The numbers of Latin-1 are members of \w outside of classes.
const (
	spaceClass  = `\t-\r\x{85}\p{Z}`
	wordNumbers = `\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}`
	wordClass   = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}`
)

// newPattern compiles a regular expression. It returns an error for a construct that may take
// more than linear memory, and for a construct that package syntax does not read.
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
	if leastLength(re) == 0 {
		return nil, fmt.Errorf("it matches the empty text")
	}
	c := &compiler{budget: 4096}
	m, err := c.compile(re, func(_ []byte, i int) int { return i })
	return &pattern{m}, err
}

// translate writes a regular expression of the reference in the language of package syntax. It
// returns an error for a construct that package syntax reads in another way.
func translate(s string) (string, error) {
	var b strings.Builder
	class := -1 // byte behind the beginning of an open class
	for i, n := 0, 0; i < len(s); i++ {
		rest := s[i:]
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			text, err := escapeText(s[i], class >= 0)
			if err != nil {
				return "", err
			}
			b.WriteString(text)
			if end := strings.IndexByte(rest, '}'); end > 0 && rest[2:3] == "{" && strings.Contains("pPx", rest[1:2]) {
				b.WriteString(rest[2 : end+1])
				i += end - 1
			}
		case class >= 0:
			if s[i] == '[' || strings.HasPrefix(rest, "&&") {
				return "", fmt.Errorf("%q in a class is not read", rest[:min(2, len(rest))])
			}
			if s[i] == ']' && i > class {
				class = -1
			}
			b.WriteByte(s[i])
		case s[i] == '[':
			if class = i + 1; strings.HasPrefix(rest, "[^") {
				class++
				b.WriteByte(s[i])
				i++
			}
			b.WriteByte(s[i])
		case s[i] == '^' || s[i] == '$': // of a line
			b.WriteString("(?m:" + s[i:i+1] + ")")
		case strings.HasPrefix(rest, "{,"):
			return "", fmt.Errorf("%q is not read", rest[:2])
		case strings.HasPrefix(rest, "(?="):
			fmt.Fprintf(&b, markAhead, n)
			n, i = n+1, i+2
		case strings.HasPrefix(rest, "(?!"):
			fmt.Fprintf(&b, markNotAhead, n)
			n, i = n+1, i+2
		default:
			if flags, is := strings.CutPrefix(rest, "(?"); is {
				if end := strings.IndexAny(flags, ":)<"); end > 0 && strings.Trim(flags[:end], "-i") != "" {
					return "", fmt.Errorf("%q is not read, only the flag i is", rest[:end+3])
				}
			}
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}

// escapeText returns what package syntax reads as the escape of a character, in a class or
// outside. It returns an error for an escape that package syntax reads in another way.
func escapeText(c byte, inClass bool) (string, error) {
	class, not := "", false
	switch c {
	case 's', 'S': // Unicode, unlike in package syntax
		class, not = spaceClass, c == 'S'
	case 'w', 'W':
		if class, not = wordClass+wordNumbers, c == 'W'; inClass {
			class = wordClass
		}
	case 'd':
		return `\p{Nd}`, nil
	case 'Q', 'E':
		return "", fmt.Errorf(`\%c is not read`, c)
	default:
		return string([]byte{'\\', c}), nil
	}
	switch {
	case inClass && not: // refused by package syntax
		return `\p{NotSpace}`, nil
	case inClass:
		return class, nil
	case not:
		return "[^" + class + "]", nil
	}
	return "[" + class + "]", nil
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

// compiler bounds the size of a compiled expression.
type compiler struct{ budget int }

func (c *compiler) compile(re *syntax.Regexp, next matcher) (matcher, error) {
	if c.budget--; c.budget < 0 {
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
		return func(b []byte, i int) int {
			if n := set.size(b, i); n > 0 {
				return next(b, i+n)
			}
			return -1
		}, nil
	case syntax.OpCapture:
		body := re.Sub[0]
		ahead, not := strings.HasPrefix(re.Name, "ahead"), strings.HasPrefix(re.Name, "notahead")
		if !ahead && !not {
			return c.compile(body, next)
		}
		m, err := c.compile(body, func(_ []byte, i int) int { return i })
		return func(b []byte, i int) int {
			if m(b, i) >= 0 != ahead {
				return -1
			}
			return next(b, i)
		}, err
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
		return func(b []byte, i int) int {
			for _, m := range list {
				if end := m(b, i); end >= 0 {
					return end
				}
			}
			return -1
		}, nil
	case syntax.OpBeginText, syntax.OpBeginLine:
		return func(b []byte, i int) int {
			if i > 0 && (re.Op == syntax.OpBeginText || b[i-1] != '\n') {
				return -1
			}
			return next(b, i)
		}, nil
	case syntax.OpEndText, syntax.OpEndLine:
		return func(b []byte, i int) int {
			if i < len(b) && (re.Op == syntax.OpEndText || b[i] != '\n') {
				return -1
			}
			return next(b, i)
		}, nil
	case syntax.OpStar:
		return c.repeat(re, 0, -1, next)
	case syntax.OpPlus:
		return c.repeat(re, 1, -1, next)
	case syntax.OpQuest:
		return c.repeat(re, 0, 1, next)
	case syntax.OpRepeat:
		return c.repeat(re, re.Min, re.Max, next)
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
			return nil, fmt.Errorf("%s: only single characters are repeated without a bound", re)
		}
		last := next
		for k := most; k > 0; k-- {
			m, err := c.compile(body, next)
			if err != nil {
				return nil, err
			}
			if next = m; k > least { // to skip one is to skip all that follow
				next = func(b []byte, i int) int {
					if end := m(b, i); end >= 0 {
						return end
					}
					return last(b, i)
				}
			}
		}
		return next, nil
	}
	set := newCharSet(body)
	return func(b []byte, i int) int {
		count, at := 0, i
		for most < 0 || count < most {
			n := set.size(b, at)
			if n == 0 {
				break
			}
			count++
			at += n
		}
		for ; count >= least; count-- {
			if end := next(b, at); end >= 0 {
				return end
			}
			if count > 0 {
				_, n := utf8.DecodeLastRune(b[i:at])
				at -= n
			}
		}
		return -1
	}, nil
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
		list := []rune{r}
		if re.Flags&syntax.FoldCase != 0 {
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				list = append(list, f)
			}
		}
		slices.Sort(list)
		for _, r := range list {
			s.ranges = append(s.ranges, r, r)
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
