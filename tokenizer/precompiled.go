package tokenizer

import "unicode/utf8"

// precompiled rewrites by a charsmap, as the reference's tokenizer.json does: a grapheme of
// less than 6 bytes becomes what its shortest key becomes. Longer ones, and graphemes without
// a key, go by character.
type precompiled struct{ chars *charsmap }

// rewriting is a text while it is rewritten. Sources are taken in order, also beyond removed
// characters, as the reference does.
type rewriting struct {
	in, out *text
	next    int // byte of in whose source is taken next
	last    span
}

// take returns the next source.
func (w *rewriting) take() span {
	if w.next < len(w.in.b) {
		w.last = w.in.source(w.next)
		_, n := utf8.DecodeRune(w.in.b[w.next:])
		w.next += n
	}
	return w.last
}

func (n precompiled) normalize(in, out *text) bool {
	w := &rewriting{in: in, out: out}
	for i, size := 0, 0; i < len(in.b); i += size {
		size = graphemeSize(in.b[i:])
		end, length := i+size, 0
		if size < 6 {
			_, length = n.chars.lookup(in.b[i:end], true)
		}
		if length > 0 {
			n.rewrite(w, span{i, end})
			continue
		}
		for k := i; k < end; {
			_, c := utf8.DecodeRune(in.b[k:])
			n.rewrite(w, span{k, k + c})
			k += c
		}
	}
	return true
}

// rewrite rewrites a grapheme or a character.
func (n precompiled) rewrite(w *rewriting, s span) {
	old := w.in.b[s.start:s.end]
	value, length := n.chars.lookup(old, true)
	if length == 0 && w.next == s.start {
		w.out.copy(w.in, s)
		w.last = w.in.source(s.end - 1)
		w.next = s.end
		return
	}
	taken := utf8.RuneCount(old)
	if length == 0 {
		value = old
	}
	for size := 0; len(value) > 0; value = value[size:] {
		_, size = utf8.DecodeRune(value)
		source := w.last
		if taken > 0 {
			source = w.take()
			taken--
		}
		for ; taken > 0 && size == len(value); taken-- {
			w.take()
		}
		w.out.put(value[:size], source)
	}
}
