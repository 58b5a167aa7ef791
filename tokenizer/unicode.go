package tokenizer

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// The reference takes the classes of characters from tables of several versions of Unicode: 8 for
// punctuation and marks, 9 for normalization forms, 16 for patterns, 17 for letter case. unicode.bin
// has what it takes each character for, so that ids depend neither on the version of Unicode of
// package unicode nor on the one of golang.org/x/text. testdata/unicode.py measures and writes it.
//
// The file is a list of parts, whose numbers are unsigned varints; signed ones are 2n, or 2|n|+1.
// Runs are pairs of a length and a value, up to the last character. A text is the number of its
// characters, and signed differences between them.
//
//	categories     runs of indices in generalCategories
//	scripts        number of names, the names with their lengths, runs of indices + 1
//	classes        runs of the bits class… below
//	lower case     number; differences of characters; signed difference to the lower case
//	case orbits    the same for the next character that a pattern without case takes for equal
//	decompositions number; difference of characters, text of NFD, text of NFKD; empty if it is the
//	               character, or the first text
//	combining      runs of canonical combining classes
//	pairs          number; two characters and their composition
//
//go:embed unicode.bin
var unicodeFile []byte

// generalCategories are the names of general categories.
var generalCategories = strings.Fields("Cn Cc Cf Co Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs")

// Classes of characters. The bits below categoryBits hold the general category.
const (
	categoryBits = 5

	classControl     = 1 << (categoryBits + iota) // BertNormalizer removes it
	classPunctuation                              // Punctuation, BertPreTokenizer
	classAccent                                   // BertNormalizer removes it as an accent
	classMark                                     // StripAccents
	classDigit                                    // Digits
	classWord                                     // \w of Whitespace and single_word
	classExtension                                // it belongs to the grapheme before it
	classPrepended                                // it belongs to the grapheme after it
	classBreak                                    // a grapheme ends at both sides
	classPatternWord                              // \w of a pattern
)

// Limit of code points.
const maxRune = utf8.MaxRune + 1

// valueRun is a run of characters with one value. It ends where the next begins.
type valueRun struct {
	begin rune
	value uint32
}

// pages holds a value for each character, in blocks of 256 that are shared.
type pages struct {
	index  [maxRune >> 8]uint16
	blocks [][256]uint32
}

// newPages returns the pages of runs, the first of which begins at 0.
func newPages(runs []valueRun) *pages {
	p := new(pages)
	whole := map[uint32]uint16{} // blocks of one value
	at := 0
	for page := range p.index {
		first, end := rune(page)<<8, rune(page+1)<<8
		for at+1 < len(runs) && runs[at+1].begin <= first {
			at++
		}
		isWhole := at+1 == len(runs) || runs[at+1].begin >= end
		if known, has := whole[runs[at].value]; isWhole && has {
			p.index[page] = known
			continue
		}
		p.index[page] = uint16(len(p.blocks))
		if isWhole {
			whole[runs[at].value] = p.index[page]
		}
		var block [256]uint32
		for k, r := at, first; r < end; r++ {
			for k+1 < len(runs) && runs[k+1].begin <= r {
				k++
			}
			block[r-first] = runs[k].value
		}
		p.blocks = append(p.blocks, block)
	}
	return p
}

// at returns the value of a character; of a number that is none, the value of U+0000.
func (p *pages) at(r rune) uint32 {
	if uint32(r) >= maxRune {
		r = 0
	}
	return p.blocks[p.index[r>>8]][r&0xFF]
}

// unicodeReader reads unicode.bin, which is sound: a test reads it.
type unicodeReader struct{ b []byte }

func (u *unicodeReader) number() int {
	v, n := binary.Uvarint(u.b)
	u.b = u.b[n:]
	return int(v)
}

func (u *unicodeReader) signed() rune {
	v := rune(u.number())
	if v&1 != 0 {
		return -(v >> 1)
	}
	return v >> 1
}

func (u *unicodeReader) runs() (list []valueRun) {
	for at := 0; at < maxRune; {
		n := u.number()
		list = append(list, valueRun{rune(at), uint32(u.number())})
		at += n
	}
	return list
}

// deltas returns runs of the differences of characters to other characters.
func (u *unicodeReader) deltas() []valueRun {
	list := []valueRun{{0, 0}}
	at := rune(0)
	for range u.number() {
		at += rune(u.number())
		list = putRun(list, at, uint32(u.signed()))
	}
	return list
}

// putRun appends a run of one character to runs that end with a run of value 0.
func putRun(list []valueRun, r rune, value uint32) []valueRun {
	if last := &list[len(list)-1]; last.begin == r {
		last.value = value
	} else {
		list = append(list, valueRun{r, value})
	}
	return append(list, valueRun{r + 1, 0})
}

func (u *unicodeReader) text() string {
	var b []byte
	r := rune(0)
	for range u.number() {
		r += u.signed()
		b = utf8.AppendRune(b, r)
	}
	return string(b)
}

// unicodeTables are the tables of unicode.bin.
type unicodeTables struct {
	categories  []valueRun
	classRuns   []valueRun
	scripts     []valueRun
	scriptNames []string
	classes     *pages // with the categories
	lower       *pages // differences
	folds       *pages
	forms       *formTables
}

// tables returns the tables, which are read once.
var tables = sync.OnceValue(func() *unicodeTables {
	u, t := &unicodeReader{unicodeFile}, new(unicodeTables)
	t.categories = u.runs()
	for range u.number() {
		n := u.number()
		t.scriptNames = append(t.scriptNames, string(u.b[:n]))
		u.b = u.b[n:]
	}
	t.scripts, t.classRuns = u.runs(), u.runs()
	var both []valueRun
	for i, k := 0, 0; i < len(t.categories) && k < len(t.classRuns); {
		begin := max(t.categories[i].begin, t.classRuns[k].begin)
		both = append(both, valueRun{begin, t.categories[i].value | t.classRuns[k].value<<categoryBits<<1})
		next := func(list []valueRun, i int) rune {
			if i+1 < len(list) {
				return list[i+1].begin
			}
			return maxRune
		}
		a, b := next(t.categories, i), next(t.classRuns, k)
		if a <= b {
			i++
		}
		if b <= a {
			k++
		}
	}
	t.classes = newPages(both)
	t.lower, t.folds = newPages(u.deltas()), newPages(u.deltas())
	t.forms = newFormTables(u)
	return t
})

// isClass reports whether a character is of one of these classes.
func isClass(r rune, classes uint32) bool { return tables().classes.at(r)&classes != 0 }

// category returns the general category of a character.
func category(r rune) string {
	return generalCategories[tables().classes.at(r)&(1<<categoryBits-1)]
}

// toLower returns a character in lower case. U+0130 has two; see lowercase.
func toLower(r rune) rune {
	if r < utf8.RuneSelf {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	return r + rune(tables().lower.at(r))
}

// isSpace reports whether a character is white space, which no version of Unicode will change.
func isSpace(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return r == ' ' || '\t' <= r && r <= '\r'
	case r < 0x2000:
		return r == 0x85 || r == 0xA0 || r == 0x1680
	}
	return r <= 0x200A || r == 0x2028 || r == 0x2029 || r == 0x202F || r == 0x205F || r == 0x3000
}

// isWordChar reports whether a character is \w of a regular expression: alphabetic, a mark, a
// decimal digit, or a connector.
func isWordChar(r rune) bool {
	if r < utf8.RuneSelf {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z'
	}
	return isClass(r, classWord)
}

// isPunctuation reports whether a character is ASCII punctuation or of a class P.
func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~'
	}
	return isClass(r, classPunctuation)
}

// isControl reports whether a character is of a class C other than tab and line breaks.
func isControl(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 127
	}
	return isClass(r, classControl)
}

// isDigit reports whether a character is of a class N.
func isDigit(r rune) bool { return isClass(r, classDigit) }

// isAccent reports whether BertNormalizer strips a character as an accent.
func isAccent(r rune) bool { return isClass(r, classAccent) }

// isMark reports whether StripAccents strips a character.
func isMark(r rune) bool { return isClass(r, classMark) }

// isChinese reports whether a character lies in a block of CJK ideographs.
func isChinese(r rune) bool {
	return r >= 0x3400 && (r <= 0x4DBF || 0x4E00 <= r && r <= 0x9FFF || 0xF900 <= r && r <= 0xFAFF || 0x20000 <= r && r <= 0x2A6DF ||
		0x2A700 <= r && r <= 0x2B81F || 0x2B920 <= r && r <= 0x2CEAF || 0x2F800 <= r && r <= 0x2FA1F)
}

// graphemeSize returns the size of the grapheme cluster at the beginning of b, as far as the
// size matters that is less than 6: clusters of pictographs and flags are longer anyway.
func graphemeSize(b []byte) int {
	r, n := utf8.DecodeRune(b)
	if r == '\r' && n < len(b) && b[n] == '\n' {
		return 2
	}
	if isClass(r, classBreak) {
		return n
	}
	for n < len(b) {
		next, m := utf8.DecodeRune(b[n:])
		if !isClass(next, classExtension) && !(isClass(r, classPrepended) && !isClass(next, classBreak)) {
			break
		}
		r = next
		n += m
	}
	return n
}

// runeSet is a set of characters: pairs of ends, ascending.
type runeSet []rune

// setOf returns the characters of runs whose value is of the set.
func setOf(runs []valueRun, has func(value uint32) bool) (set runeSet) {
	for i, r := range runs {
		end := rune(utf8.MaxRune)
		if i+1 < len(runs) {
			end = runs[i+1].begin - 1
		}
		if has(r.value) {
			set = append(set, r.begin, end)
		}
	}
	return set.normal()
}

// normal returns the set with ends ascending and ranges apart. It overwrites s.
func (s runeSet) normal() runeSet {
	type pair struct{ first, last rune }
	list := make([]pair, 0, len(s)/2)
	for i := 0; i < len(s); i += 2 {
		list = append(list, pair{s[i], s[i+1]})
	}
	slices.SortFunc(list, func(a, b pair) int { return int(a.first - b.first) })
	s = s[:0]
	for _, p := range list {
		if n := len(s); n > 0 && p.first <= s[n-1]+1 {
			s[n-1] = max(s[n-1], p.last)
		} else {
			s = append(s, p.first, p.last)
		}
	}
	return s
}

// complement returns the characters outside of a set.
func (s runeSet) complement() (out runeSet) {
	next := rune(0)
	for i := 0; i < len(s); i += 2 {
		if next < s[i] {
			out = append(out, next, s[i]-1)
		}
		next = s[i+1] + 1
	}
	if next <= utf8.MaxRune {
		out = append(out, next, utf8.MaxRune)
	}
	return out
}

// fold returns the set with all characters that differ from a member in case alone.
func (s runeSet) fold() runeSet {
	out := slices.Clone(s)
	folds := tables().folds
	for i := 0; i < len(s); i += 2 {
		for r := s[i]; r <= s[i+1]; r++ {
			if r&0xFF == 0 && folds.blocks[folds.index[r>>8]] == ([256]uint32{}) {
				r |= 0xFF // no character of the block has case
				continue
			}
			for f := r + rune(folds.at(r)); f != r; f += rune(folds.at(f)) {
				out = append(out, f, f)
			}
		}
	}
	return out.normal()
}

// text returns the set as members of a class in the language of regular expressions.
func (s runeSet) text() string {
	var b strings.Builder
	for i := 0; i < len(s); i += 2 {
		fmt.Fprintf(&b, `\x{%X}-\x{%X}`, s[i], s[i+1])
	}
	return b.String()
}

// longNames are the long names of general categories, and the names of groups of them.
var longNames = func() map[string]string {
	names := map[string]string{}
	for _, pair := range strings.Fields(`C=other Cc=control Cf=format Cn=unassigned Co=privateuse L=letter LC=casedletter Ll=lowercaseletter Lm=modifierletter
		Lo=otherletter Lt=titlecaseletter Lu=uppercaseletter M=mark M=combiningmark Mc=spacingmark Me=enclosingmark Mn=nonspacingmark N=number Nd=decimalnumber
		Nl=letternumber No=othernumber P=punctuation P=punct Pc=connectorpunctuation Pd=dashpunctuation Pe=closepunctuation Pf=finalpunctuation
		Pi=initialpunctuation Po=otherpunctuation Ps=openpunctuation S=symbol Sc=currencysymbol Sk=modifiersymbol Sm=mathsymbol So=othersymbol
		Z=separator Zl=lineseparator Zp=paragraphseparator Zs=spaceseparator`) {
		short, long, _ := strings.Cut(pair, "=")
		names[long], names[strings.ToLower(short)] = short, short
	}
	return names
}()

// property returns the characters of a general category or a script. It reports whether there is
// one of that name. Case, spaces, hyphens and underscores do not count.
func property(name string) (runeSet, bool) {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
	}
	t := tables()
	name = plain(name)
	if name == "any" {
		return runeSet{0, utf8.MaxRune}, true
	}
	if short, has := longNames[name]; has {
		return setOf(t.categories, func(v uint32) bool {
			c := generalCategories[v]
			return c == short || c[:1] == short || short == "LC" && (c == "Ll" || c == "Lt" || c == "Lu")
		}), true
	}
	for i, script := range t.scriptNames {
		if plain(script) == name {
			return setOf(t.scripts, func(v uint32) bool { return int(v) == i+1 }), true
		}
	}
	return nil, false
}
