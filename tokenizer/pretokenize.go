package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// byteLevelSpec is the JSON of ByteLevel.
type byteLevelSpec struct {
	Type           string `json:"type"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets    bool   `json:"trim_offsets"`
	UseRegex       bool   `json:"use_regex"`
}

// readPreTokenizer appends the stages of a pre-tokenizer.
func (t *Tokenizer) readPreTokenizer(raw json.RawMessage, b *bounds) error {
	const field = "pre_tokenizer"
	kind, err := typeName(field, raw)
	if err != nil || kind == "" {
		return err
	}
	if t.byteTokens {
		return fmt.Errorf("%s: %s behind ByteLevel, which must be the last", field, kind)
	}
	var s struct {
		Type           string            `json:"type"`
		PreTokenizers  []json.RawMessage `json:"pretokenizers"`
		Pattern        *patternSpec      `json:"pattern"`
		Behavior       string            `json:"behavior"`
		Invert         bool              `json:"invert"`
		IndividualRest *bool             `json:"individual_digits"`
		Delimiter      string            `json:"delimiter"`
		Replacement    string            `json:"replacement"`
		PrependScheme  string            `json:"prepend_scheme"`
		Split          *bool             `json:"split"`
		AddPrefixSpace *bool             `json:"add_prefix_space"`
		StrRep         string            `json:"str_rep"`
		TrimOffsets    bool              `json:"trim_offsets"`
		UseRegex       *bool             `json:"use_regex"`
	}
	if err := decodeStrict(field, raw, &s); err != nil {
		return err
	}
	is := func(b *bool, missing bool) bool { return b == nil && missing || b != nil && *b }
	split := func(f func(b []byte, word span, dst []span) []span) {
		t.split = append(t.split, stage{split: f})
	}
	switch kind {
	case "Sequence":
		if err := b.open(field); err != nil {
			return err
		}
		for _, raw := range s.PreTokenizers {
			if err := t.readPreTokenizer(raw, b); err != nil {
				return err
			}
		}
		b.depth--
	case "BertPreTokenizer":
		split(splitBert)
	case "WhitespaceSplit":
		split(classSplit(isSpace, removed))
	case "Whitespace":
		split(splitWords)
	case "Punctuation":
		b, err := behaviorOf(field, s.Behavior, isolated)
		if err != nil {
			return err
		}
		split(classSplit(isPunctuation, b))
	case "Digits":
		if is(s.IndividualRest, false) {
			split(classSplit(isDigit, isolated))
		} else {
			split(classSplit(isDigit, contiguous))
		}
	case "CharDelimiterSplit":
		d, n := utf8.DecodeRuneInString(s.Delimiter)
		if n != len(s.Delimiter) || n == 0 {
			return fmt.Errorf("%s: delimiter is %q, not a character", field, s.Delimiter)
		}
		split(classSplit(func(r rune) bool { return r == d }, removed))
	case "Split":
		b, err := behaviorOf(field, s.Behavior, isolated)
		if err != nil {
			return err
		}
		p, err := s.Pattern.compile(field)
		if err != nil {
			return err
		}
		split(patternSplit(p, b, s.Invert))
	case "Metaspace":
		r, n := utf8.DecodeRuneInString(s.Replacement)
		if n == 0 || n != len(s.Replacement) {
			return fmt.Errorf("%s: replacement is %q, not a character", field, s.Replacement)
		}
		scheme := s.PrependScheme
		if scheme == "" {
			if scheme = "never"; is(s.AddPrefixSpace, true) {
				scheme = "always"
			}
		}
		if scheme != "always" && scheme != "first" && scheme != "never" {
			return fmt.Errorf("%s: prepend_scheme is %q, not always, first or never", field, scheme)
		}
		st := stage{rewrite: metaspace(r, scheme)}
		if is(s.Split, true) {
			st.split = classSplit(func(c rune) bool { return c == r }, mergedWithNext)
		}
		t.split = append(t.split, st)
		return b.grow(field, kind, 1+n, 1)
	case "ByteLevel":
		t.byteTokens = true
		var st stage
		if is(s.AddPrefixSpace, true) {
			st.rewrite = prefixSpace
		}
		if is(s.UseRegex, true) {
			st.split = splitGPT2
		}
		t.split = append(t.split, st)
	default:
		return fmt.Errorf("%s: type is %q, which this program does not have", field, kind)
	}
	return nil
}

// prefixSpace puts a space before a word that does not begin with one.
func prefixSpace(in *text, word span, out *text) {
	if word.start >= word.end {
		return
	}
	if in.b[word.start] != ' ' {
		out.put([]byte{' '}, in.source(word.start))
	}
	out.copy(in, word)
}

// metaspace writes spaces as r, and puts r before a word by scheme.
func metaspace(r rune, scheme string) func(in *text, word span, out *text) {
	mark := []byte(string(r))
	return func(in *text, word span, out *text) {
		if word.start >= word.end {
			return
		}
		first, _ := utf8.DecodeRune(in.b[word.start:])
		if first != ' ' && first != r && (scheme == "always" || scheme == "first" && in.source(word.start).start == 0) {
			out.put(mark, in.source(word.start))
		}
		at := word.start
		for i := word.start; i < word.end; i++ {
			if in.b[i] == ' ' {
				if at < i {
					out.copy(in, span{at, i})
				}
				out.put(mark, in.source(i))
				at = i + 1
			}
		}
		if at < word.end {
			out.copy(in, span{at, word.end})
		}
	}
}

// behavior says what becomes of the separators of a split.
type behavior int

const (
	removed behavior = iota
	isolated
	mergedWithPrevious
	mergedWithNext
	contiguous
)

// behaviorOf returns the behavior of a name.
func behaviorOf(field, name string, missing behavior) (behavior, error) {
	switch name {
	case "":
		return missing, nil
	case "Removed":
		return removed, nil
	case "Isolated":
		return isolated, nil
	case "MergedWithPrevious":
		return mergedWithPrevious, nil
	case "MergedWithNext":
		return mergedWithNext, nil
	case "Contiguous":
		return contiguous, nil
	}
	return 0, fmt.Errorf("%s: behavior is %q, which this program does not have", field, name)
}

// splitter collects the parts of a word by a behavior. Parts are added in order.
type splitter struct {
	dst      []span
	behavior behavior
	begun    bool
	previous bool // the last part was a separator
}

// add appends a part, which is a separator or text between two.
func (s *splitter) add(part span, separator bool) {
	if part.start >= part.end {
		return
	}
	join := false
	switch s.behavior {
	case removed:
		if separator {
			return
		}
	case mergedWithPrevious:
		join = separator && s.begun && !s.previous
	case mergedWithNext:
		join = !separator && s.begun && s.previous
	case contiguous:
		join = s.begun && s.previous == separator
	}
	s.begun, s.previous = true, separator
	if join {
		s.dst[len(s.dst)-1].end = part.end
		return
	}
	s.dst = append(s.dst, part)
}

// classSplit divides at single characters of a class.
func classSplit(is func(r rune) bool, b behavior) func(b []byte, word span, dst []span) []span {
	return func(text []byte, word span, dst []span) []span {
		s := splitter{dst: dst, behavior: b}
		at := word.start
		for i, n := word.start, 0; i < word.end; i += n {
			var r rune
			if r, n = utf8.DecodeRune(text[i:word.end]); is(r) {
				s.add(span{at, i}, false)
				s.add(span{i, i + n}, true)
				at = i + n
			}
		}
		s.add(span{at, word.end}, false)
		return s.dst
	}
}

// patternSplit divides at the matches of a pattern, or with invert, between them.
func patternSplit(p finder, b behavior, invert bool) func(b []byte, word span, dst []span) []span {
	return func(text []byte, word span, dst []span) []span {
		s := splitter{dst: dst, behavior: b}
		part := text[word.start:word.end]
		at := 0
		for m := range p.all(part) {
			s.add(span{word.start + at, word.start + m.start}, invert)
			s.add(span{word.start + m.start, word.start + m.end}, !invert)
			at = m.end
		}
		s.add(span{word.start + at, word.end}, invert)
		return s.dst
	}
}

// splitBert divides at white space, and puts each punctuation character apart.
func splitBert(b []byte, word span, dst []span) []span {
	at := word.start
	for i, n := word.start, 1; i < word.end; i += n {
		r := rune(b[i])
		n = 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(b[i:word.end])
		} else if 'a' <= r && r <= 'z' {
			continue
		}
		space := isSpace(r)
		if !space && !isPunctuation(r) {
			continue
		}
		if at < i {
			dst = append(dst, span{at, i})
		}
		if !space {
			dst = append(dst, span{i, i + n})
		}
		at = i + n
	}
	if at < word.end {
		dst = append(dst, span{at, word.end})
	}
	return dst
}

// splitWords divides into runs of word characters and runs of others, without white space.
func splitWords(b []byte, word span, dst []span) []span {
	last := -1 // class of the run that is open
	for i, n := word.start, 0; i < word.end; i += n {
		var r rune
		r, n = utf8.DecodeRune(b[i:word.end])
		class := 0
		switch {
		case isWordChar(r):
			class = 1
		case isSpace(r):
			last = -1
			continue
		}
		if class == last {
			dst[len(dst)-1].end = i + n
		} else {
			dst = append(dst, span{i, i + n})
		}
		last = class
	}
	return dst
}

// Classes of characters of GPT-2's pattern.
const (
	classOther = iota
	classSpace
	classLetter
	classNumber
)

var asciiClass = func() (c [utf8.RuneSelf]uint8) {
	for r := range rune(utf8.RuneSelf) {
		switch {
		case 'a' <= r|0x20 && r|0x20 <= 'z':
			c[r] = classLetter
		case '0' <= r && r <= '9':
			c[r] = classNumber
		case isSpace(r):
			c[r] = classSpace
		}
	}
	return c
}()

func charClass(r rune) uint8 {
	switch c := category(r)[0]; {
	case c == 'L':
		return classLetter
	case c == 'N':
		return classNumber
	case isSpace(r):
		return classSpace
	}
	return classOther
}

// classAt returns the class and the size of the character at b[i].
func classAt(b []byte, i int) (uint8, int) {
	if b[i] < utf8.RuneSelf {
		return asciiClass[b[i]], 1
	}
	r, n := utf8.DecodeRune(b[i:])
	return charClass(r), n
}

// splitGPT2 divides as GPT-2 does: into contractions, and runs of letters, numbers, others or
// spaces. A run takes one space before it.
func splitGPT2(b []byte, word span, dst []span) []span {
	b = b[:word.end]
	for i := word.start; i < len(b); {
		if n := contraction(b[i:]); n > 0 {
			dst = append(dst, span{i, i + n})
			i += n
			continue
		}
		start := i
		class, n := classAt(b, i)
		if b[i] == ' ' && i+1 < len(b) {
			if next, m := classAt(b, i+1); next != classSpace {
				class, n = next, 1+m
			}
		}
		i += n
		last := n // size of the last character
		for i < len(b) {
			c, n := classAt(b, i)
			if c != class {
				break
			}
			last = n
			i += n
		}
		if class == classSpace && i < len(b) && i-last > start {
			i -= last // the last space belongs to the next run, or stands alone
		}
		dst = append(dst, span{start, i})
	}
	return dst
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd at the beginning of b; 0 if
// there is none.
func contraction(b []byte) int {
	if len(b) < 2 || b[0] != '\'' {
		return 0
	}
	switch b[1] {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(b) > 2 {
		switch string(b[1:3]) {
		case "re", "ve", "ll":
			return 3
		}
	}
	return 0
}
