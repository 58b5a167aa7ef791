package tokenizer

import (
	"slices"
	"unicode/utf8"
)

// span is a range of bytes of a text.
type span struct{ start, end int }

// run maps bytes of a text, from at to the next run, to bytes of the input. With to < 0 they
// are copies of the input from byte from on. Otherwise each of them stands for [from, to).
type run struct{ begin, start, end int }

// text is a part of the input, rewritten, with its map to the input.
type text struct {
	b    []byte
	runs []run
}

// set makes t a copy of b, which begins at byte from of the input.
func (t *text) set(b []byte, from int) {
	t.b = append(t.b[:0], b...)
	t.runs = append(t.runs[:0], run{0, from, -1})
}

// reset makes t empty.
func (t *text) reset() { t.b, t.runs = t.b[:0], t.runs[:0] }

// find returns the index of the run of byte i.
func (t *text) find(i int) int {
	if len(t.runs) == 1 {
		return 0
	}
	n, found := slices.BinarySearchFunc(t.runs, i, func(r run, i int) int { return r.begin - i })
	if !found {
		n--
	}
	return n
}

// source returns the range of the input that the character of byte i stands for.
func (t *text) source(i int) span {
	r := t.runs[t.find(i)]
	if r.end >= 0 {
		return span{r.start, r.end}
	}
	start := i
	for start > r.begin && start > i-utf8.UTFMax+1 && !utf8.RuneStart(t.b[start]) {
		start--
	}
	_, n := utf8.DecodeRune(t.b[start:])
	if i >= start+n { // bytes that are not UTF-8
		start, n = i, 1
	}
	return span{r.start + start - r.begin, r.start + start - r.begin + n}
}

// offsets returns the range of the input that bytes s of t stand for.
func (t *text) offsets(s span) span {
	if s.start >= s.end {
		if s.start < len(t.b) {
			a := t.source(s.start)
			return span{a.start, a.start}
		}
		if s.start == 0 {
			return span{}
		}
		a := t.source(s.start - 1)
		return span{a.end, a.end}
	}
	return span{t.source(s.start).start, t.source(s.end - 1).end}
}

// copy appends bytes s of in, with their map.
func (t *text) copy(in *text, s span) {
	for n := in.find(s.start); s.start < s.end; n++ {
		end := s.end
		if n+1 < len(in.runs) {
			end = min(end, in.runs[n+1].begin)
		}
		r := in.runs[n]
		if r.end < 0 {
			r.start += s.start - r.begin
		}
		t.mark(r.start, r.end)
		t.b = append(t.b, in.b[s.start:end]...)
		s.start = end
	}
}

// mark begins a run at the end of t, unless the last run goes on.
func (t *text) mark(from, to int) {
	if n := len(t.runs); n > 0 {
		last := t.runs[n-1]
		if last.end == to && (to >= 0 && last.start == from || to < 0 && from-last.start == len(t.b)-last.begin) {
			return
		}
	}
	t.runs = append(t.runs, run{len(t.b), from, to})
}

// putRune appends a character that stands for source s of the input.
func (t *text) putRune(r rune, s span) {
	t.mark(s.start, s.end)
	t.b = utf8.AppendRune(t.b, r)
}

// put appends bytes that stand for source s of the input.
func (t *text) put(b []byte, s span) {
	t.mark(s.start, s.end)
	t.b = append(t.b, b...)
}
