package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// form is a normalization form of Unicode.
type form struct {
	form    norm.Form
	compose bool
}

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

// decomposed is a character of a decomposition.
type decomposed struct {
	r       rune
	class   uint8 // canonical combining class
	sources int   // characters of the source that it stands for beyond those before it
}

func (f form) normalize(in, out *text) bool {
	if f.form.IsNormal(in.b) {
		return false
	}
	var list []decomposed
	for at := 0; at < len(in.b); {
		if n := f.form.QuickSpan(in.b[at:]); n > 0 {
			out.copy(in, span{at, at + n})
			at += n
			continue
		}
		end := at
		for {
			n := f.form.NextBoundary(in.b[end:], true)
			if n <= 0 {
				end = len(in.b)
				break
			}
			if end += n; end == len(in.b) || f.form.Properties(in.b[end:]).CCC() == 0 {
				break
			}
		}
		list = f.part(in, span{at, end}, out, list[:0])
		at = end
	}
	return true
}

// part appends the form of a part that combines with nothing outside. list is a buffer.
func (f form) part(in *text, s span, out *text, list []decomposed) []decomposed {
	table := norm.NFD
	if f.form == norm.NFKC || f.form == norm.NFKD {
		table = norm.NFKD
	}
	b := in.b[s.start:s.end]
	for i, size := 0, 0; i < len(b); i += size {
		var r rune
		r, size = utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			r = -rune(b[i]) - 1 // a byte that is not UTF-8
		}
		first := len(list)
		p := table.Properties(b[i:])
		switch d := p.Decomposition(); {
		case hangulFirst <= r && r < hangulFirst+hangulCount:
			h := r - hangulFirst
			list = append(list, decomposed{leadFirst + h/(vowels*tails), 0, 0}, decomposed{vowelFirst + h/tails%vowels, 0, 0})
			if h%tails > 0 {
				list = append(list, decomposed{tailFirst + h%tails, 0, 0})
			}
		case d == nil || newForms.has(r):
			list = append(list, decomposed{r, p.CCC(), 0})
		default:
			for len(d) > 0 {
				q, n := utf8.DecodeRune(d)
				list = append(list, decomposed{q, table.Properties(d).CCC(), 0})
				d = d[n:]
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
		list = compose(list)
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
func compose(list []decomposed) []decomposed {
	starter, n := -1, 0
	var lastClass uint8
	for _, d := range list {
		if starter >= 0 && (n-starter == 1 || lastClass < d.class && lastClass != 0) {
			if r := composePair(list[starter].r, d.r); r >= 0 {
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
func composePair(a, b rune) rune {
	switch {
	case a < 0 || b < 0:
		return -1
	case leadFirst <= a && a < leadFirst+leads && vowelFirst <= b && b < vowelFirst+vowels:
		return hangulFirst + ((a-leadFirst)*vowels+b-vowelFirst)*tails
	case hangulFirst <= a && a < hangulFirst+hangulCount && (a-hangulFirst)%tails == 0 && tailFirst < b && b < tailFirst+tails:
		return a + b - tailFirst
	}
	var pair, whole [4 * utf8.UTFMax]byte
	joined := norm.NFC.Append(whole[:0], utf8.AppendRune(utf8.AppendRune(pair[:0], a), b)...)
	r, n := utf8.DecodeRune(joined)
	if n != len(joined) {
		return -1
	}
	return r
}
