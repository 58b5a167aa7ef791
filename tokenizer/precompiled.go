package tokenizer

import "unicode/utf8"

// precompiled rewrites by a charsmap, as the reference's tokenizer.json does: a grapheme of
// less than 6 bytes becomes what its shortest key becomes. Longer ones, and graphemes without
// a key, go by character.
type precompiled struct{ chars *charsmap }

func (n precompiled) normalize(in, out *text) bool {
	for i, size := 0, 0; i < len(in.b); i += size {
		size = graphemeSize(in.b[i:])
		end, length := i+size, 0
		if size < 6 {
			_, length = n.chars.lookup(in.b[i:end], true)
		}
		if length > 0 {
			n.rewrite(in, span{i, end}, out)
			continue
		}
		for k := i; k < end; {
			_, c := utf8.DecodeRune(in.b[k:])
			n.rewrite(in, span{k, k + c}, out)
			k += c
		}
	}
	return true
}

// rewrite appends what a grapheme or a character becomes. Each character of it stands for the
// character of the same place, or for the last one.
func (n precompiled) rewrite(in *text, s span, out *text) {
	value, length := n.chars.lookup(in.b[s.start:s.end], true)
	if length == 0 {
		out.copy(in, s)
		return
	}
	at := s.start
	for size := 0; len(value) > 0; value = value[size:] {
		_, size = utf8.DecodeRune(value)
		out.put(value[:size], in.source(at))
		if _, n := utf8.DecodeRune(in.b[at:]); at+n < s.end {
			at += n
		}
	}
}
