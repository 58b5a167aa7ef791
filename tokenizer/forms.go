package tokenizer

import (
	"slices"
	"unicode/utf8"
)

// form is a normalization form of Unicode.
type form struct{ compatible, compose bool }

// The syllables of Hangul, which are composed by arithmetic.
const (
	hangulFirst = 0xAC00
	leadFirst   = 0x1100
	vowelFirst  = 0x1161
	tailFirst   = 0x11A7
	leads       = 19
	vowels      = 21
	tails       = 28
	hangulCount = leads * vowels * tails
)

// formTables are the tables of the forms.
type formTables struct {
	canonical, compatible map[rune]string // decompositions; of NFKD only those that differ from NFD's
	pairs                 map[uint64]rune // compositions
	flags                 *pages
}

// Flags of a character: its canonical combining class, and by form, that the form of the
// character alone is another, and that it may combine with what is before it.
const (
	flagClass = 0xFF

	flagChanges = 1 << 8  // by the index of the form
	flagJoins   = 1 << 12 // likewise
)

// index returns the number of a form.
func (f form) index() (i int) {
	if f.compatible {
		i |= 1
	}
	if f.compose {
		i |= 2
	}
	return i
}

// newFormTables reads the tables of the forms.
func newFormTables(u *unicodeReader) *formTables {
	t := &formTables{canonical: map[rune]string{}, compatible: map[rune]string{}, pairs: map[uint64]rune{}}
	at := rune(0)
	flags := map[rune]uint32{}
	for range u.number() {
		at += rune(u.number())
		a, b := u.text(), u.text()
		if a != "" {
			t.canonical[at] = a
		}
		if b != "" {
			t.compatible[at] = b
		}
		flags[at] = 0
	}
	class := map[rune]uint32{}
	runs := u.runs()
	for i, run := range runs {
		for r := run.begin; run.value != 0 && i+1 < len(runs) && r < runs[i+1].begin; r++ {
			class[r], flags[r] = run.value, run.value
		}
	}
	isSecond := map[rune]bool{}
	for range u.number() {
		a, b := rune(u.number()), rune(u.number())
		t.pairs[pairKey(a, b)] = rune(u.number())
		isSecond[b] = true
		flags[b] |= 0
	}
	for r := rune(vowelFirst); r < vowelFirst+vowels; r++ {
		isSecond[r], flags[r] = true, 0
	}
	for r := rune(tailFirst + 1); r < tailFirst+tails; r++ {
		isSecond[r], flags[r] = true, 0
	}
	var list []decomposed
	for r := range flags {
		for i := range 4 {
			f := form{i&1 != 0, i&2 != 0}
			list = t.decompose(f, r, list[:0])
			first := list[0].r
			if class[first] != 0 || f.compose && isSecond[first] {
				flags[r] |= flagJoins << i
			}
			for k := range list {
				list[k].class = uint8(class[list[k].r])
			}
			if f.compose {
				list = t.compose(list)
			}
			if len(list) != 1 || list[0].r != r {
				flags[r] |= flagChanges << i
			}
		}
	}
	keys := make([]rune, 0, len(flags))
	for r := range flags {
		keys = append(keys, r)
	}
	slices.Sort(keys)
	all := []valueRun{{0, 0}}
	putHangul := func() {
		all = append(all, valueRun{hangulFirst, flagChanges | flagChanges<<1}, valueRun{hangulFirst + hangulCount, 0})
	}
	for _, r := range keys {
		if r > hangulFirst && all[len(all)-1].begin < hangulFirst {
			putHangul()
		}
		all = putRun(all, r, flags[r])
	}
	t.flags = newPages(all)
	return t
}

// decomposed is a character of a decomposition.
type decomposed struct {
	r       rune
	class   uint8 // canonical combining class
	sources int   // characters of the source that it stands for beyond those before it
}

func (f form) normalize(in, out *text) bool {
	if isASCII(in.b) {
		return false
	}
	t := tables().forms
	changes, joins := uint32(flagChanges<<f.index()), uint32(flagJoins<<f.index())
	var list []decomposed
	done := 0 // bytes that are written
	for at := 0; at < len(in.b); {
		if in.b[at] < utf8.RuneSelf && (at+1 == len(in.b) || in.b[at+1] < utf8.RuneSelf) {
			at++
			continue
		}
		r, n := utf8.DecodeRune(in.b[at:])
		end, changed := at+n, t.flags.at(r)&changes != 0
		for end < len(in.b) {
			r, n := utf8.DecodeRune(in.b[end:])
			if t.flags.at(r)&joins == 0 {
				break
			}
			end += n
			changed = true
		}
		if changed {
			if done < at {
				out.copy(in, span{done, at})
			}
			list = t.part(f, in, span{at, end}, out, list[:0])
			done = end
		}
		at = end
	}
	if done == 0 {
		return false
	}
	if done < len(in.b) {
		out.copy(in, span{done, len(in.b)})
	}
	return true
}

// decompose appends the decomposition of a character, without its classes.
func (t *formTables) decompose(f form, r rune, list []decomposed) []decomposed {
	if hangulFirst <= r && r < hangulFirst+hangulCount {
		h := r - hangulFirst
		list = append(list, decomposed{leadFirst + h/(vowels*tails), 0, 0}, decomposed{vowelFirst + h/tails%vowels, 0, 0})
		if h%tails > 0 {
			list = append(list, decomposed{tailFirst + h%tails, 0, 0})
		}
		return list
	}
	d, has := "", false
	if f.compatible {
		d, has = t.compatible[r]
	}
	if !has {
		d, has = t.canonical[r]
	}
	if !has {
		return append(list, decomposed{r, 0, 0})
	}
	for _, q := range d {
		list = append(list, decomposed{q, 0, 0})
	}
	return list
}

// part appends the form of a part that combines with nothing outside. list is a buffer.
func (t *formTables) part(f form, in *text, s span, out *text, list []decomposed) []decomposed {
	b := in.b[s.start:s.end]
	for i, size := 0, 0; i < len(b); i += size {
		var r rune
		r, size = utf8.DecodeRune(b[i:])
		first := len(list)
		if r == utf8.RuneError && size == 1 { // a byte that is not UTF-8
			list = append(list, decomposed{-rune(b[i]) - 1, 0, 0})
		} else {
			list = t.decompose(f, r, list)
			for k := first; k < len(list); k++ {
				list[k].class = uint8(t.flags.at(list[k].r) & flagClass)
			}
		}
		list[first].sources = 1
	}
	for i := 0; i < len(list); { // canonical order
		if list[i].class == 0 {
			i++
			continue
		}
		end := i
		for end < len(list) && list[end].class != 0 {
			end++
		}
		slices.SortStableFunc(list[i:end], func(x, y decomposed) int { return int(x.class) - int(y.class) })
		i = end
	}
	if f.compose {
		list = t.compose(list)
	}
	next, last := s.start, span{}
	for _, d := range list {
		first := last
		for k := range d.sources {
			if last = in.source(next); k == 0 {
				first = last
			}
			_, n := utf8.DecodeRune(in.b[next:])
			next += n
		}
		if d.r < 0 {
			out.put([]byte{byte(-d.r - 1)}, first)
		} else {
			out.putRune(d.r, first)
		}
	}
	return list
}

// compose joins characters with the starters before them, in place.
func (t *formTables) compose(list []decomposed) []decomposed {
	starter, n := -1, 0
	var lastClass uint8
	for _, d := range list {
		if starter >= 0 && (n-starter == 1 || lastClass < d.class && lastClass != 0) {
			if r := t.composePair(list[starter].r, d.r); r >= 0 {
				list[starter].r = r
				list[starter].sources += d.sources
				continue
			}
		}
		if d.class == 0 {
			starter = n
		}
		lastClass = d.class
		list[n] = d
		n++
	}
	return list[:n]
}

// composePair returns the composition of two characters; -1 if there is none.
func (t *formTables) composePair(a, b rune) rune {
	switch {
	case a < 0 || b < 0:
		return -1
	case leadFirst <= a && a < leadFirst+leads && vowelFirst <= b && b < vowelFirst+vowels:
		return hangulFirst + ((a-leadFirst)*vowels+b-vowelFirst)*tails
	case hangulFirst <= a && a < hangulFirst+hangulCount && (a-hangulFirst)%tails == 0 && tailFirst < b && b < tailFirst+tails:
		return a + b - tailFirst
	}
	if r, has := t.pairs[pairKey(a, b)]; has {
		return r
	}
	return -1
}
