package tokenizer

import "unicode/utf8"

// precompiled rewrites by a charsmap, as the reference's tokenizer.json does: a grapheme of
// less than 6 bytes becomes what its shortest key becomes; longer ones go by character.
type precompiled struct{ chars *charsmap }

func (n precompiled) normalize(in, out *text) bool {
	for i, size := 0, 0; i < len(in.b); i += size {
		if size = graphemeSize(in.b[i:]); size >= 6 {
			end := i + size
			for k := i; k < end; {
				_, c := utf8.DecodeRune(in.b[k:])
				n.one(in, span{k, k + c}, out)
				k += c
			}
			continue
		}
		n.one(in, span{i, i + size}, out)
	}
	return true
}

// one rewrites a grapheme or a character.
func (n precompiled) one(in *text, s span, out *text) {
	value, length := n.chars.lookup(in.b[s.start:s.end], true)
	switch {
	case length == 0:
		out.copy(in, s)
	case len(value) > 0:
		out.put(value, in.source(s.start))
	}
}
