package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// Types of pieces in tokenizer.model.
const (
	pieceNormal  = 1
	pieceUnknown = 2
	pieceControl = 3
	pieceUser    = 4
	pieceByte    = 6
)

// spPiece is a piece of tokenizer.model.
type spPiece struct {
	text  string
	score float32
	kind  uint64
}

// spModel is what tokenizer.model says.
type spModel struct {
	pieces                         []spPiece
	kind                           uint64 // 1: Unigram, 2: BPE
	fallback, suffix               bool
	charsmap                       []byte
	keepsDummy, keepsExtra, plains bool // the negations of flags that are true by default
	roberta                        bool // ids and template are XLM-RoBERTa's
}

// eachField calls do for each field of a message of protocol buffers. It returns an error if
// the message is damaged.
func eachField(b []byte, do func(number int, value uint64, bytes []byte) error) error {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29 {
			return fmt.Errorf("a field's tag is damaged, %d bytes before the end", len(b))
		}
		b = b[n:]
		var value uint64
		var bytes []byte
		switch tag & 7 {
		case 0:
			if value, n = binary.Uvarint(b); n <= 0 {
				return fmt.Errorf("field %d is damaged", tag>>3)
			}
			b = b[n:]
		case 1, 5:
			size := 8
			if tag&7 == 5 {
				size = 4
			}
			if len(b) < size {
				return fmt.Errorf("field %d has %d bytes of %d", tag>>3, len(b), size)
			}
			if size == 4 {
				value = uint64(binary.LittleEndian.Uint32(b))
			} else {
				value = binary.LittleEndian.Uint64(b)
			}
			b = b[size:]
		case 2:
			size, n := binary.Uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) {
				return fmt.Errorf("field %d has %d bytes of %d", tag>>3, len(b), size)
			}
			bytes, b = b[n:n+int(size)], b[n+int(size):]
		default:
			return fmt.Errorf("field %d has wire type %d", tag>>3, tag&7)
		}
		if err := do(int(tag>>3), value, bytes); err != nil {
			return err
		}
	}
	return nil
}

// readModelProto reads tokenizer.model.
func readModelProto(data []byte) (*spModel, error) {
	m := &spModel{kind: 1}
	err := eachField(data, func(number int, _ uint64, b []byte) error {
		switch number {
		case 1:
			if len(m.pieces) >= maxIDs {
				return fmt.Errorf("more than %d pieces", maxIDs)
			}
			p := spPiece{kind: pieceNormal}
			err := eachField(b, func(number int, value uint64, b []byte) error {
				switch number {
				case 1:
					p.text = string(b)
				case 2:
					p.score = math.Float32frombits(uint32(value))
				case 3:
					p.kind = value
				}
				return nil
			})
			if p.text == "" || !utf8.ValidString(p.text) || p.score != p.score || math.IsInf(float64(p.score), 0) {
				return fmt.Errorf("piece %d is %q with score %v", len(m.pieces), p.text, p.score)
			}
			m.pieces = append(m.pieces, p)
			return err
		case 2:
			return eachField(b, func(number int, value uint64, _ []byte) error {
				switch number {
				case 3:
					m.kind = value
				case 24:
					m.suffix = value != 0
				case 35:
					m.fallback = value != 0
				}
				return nil
			})
		case 3:
			return eachField(b, func(number int, value uint64, b []byte) error {
				switch number {
				case 2:
					m.charsmap = b
				case 3:
					m.keepsDummy = value == 0
				case 4:
					m.keepsExtra = value == 0
				case 5:
					m.plains = value == 0
				}
				return nil
			})
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("tokenizer.model: %w", err)
	case len(m.pieces) == 0:
		return nil, fmt.Errorf("tokenizer.model: it has no pieces")
	case m.kind != 1 && m.kind != 2:
		return nil, fmt.Errorf("tokenizer.model: model_type is %d, not 1 (Unigram) or 2 (BPE)", m.kind)
	case m.suffix:
		return nil, fmt.Errorf("tokenizer.model: treat_whitespace_as_suffix is not read")
	case m.plains:
		return nil, fmt.Errorf("tokenizer.model: escape_whitespaces is false, only true is read")
	}
	return m, nil
}

// parseSentencePiece reads the bytes of a tokenizer.model. bos puts the piece <s> before each text,
// and eos puts </s> after it. With neither, control pieces are not recognised in texts.
// parseSentencePiece returns an error if the file is damaged or is neither BPE nor Unigram.
func parseSentencePiece(data []byte, bos, eos bool) (*Tokenizer, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("tokenizer.model: %d bytes, at most %d are read", len(data), maxFile)
	}
	m, err := readModelProto(data)
	if err != nil {
		return nil, err
	}
	return m.assemble(bos, eos)
}

// parseXLMRoberta reads the bytes of a sentencepiece.bpe.model and numbers the pieces as
// XLM-RoBERTa does (Conneau et al. 2020, arXiv 1911.02116, in fairseq): <s>, <pad>, </s>, <unk>,
// then the pieces after the first three, then <mask>. It returns an error where parseSentencePiece
// does, and if the first three pieces are not the expected ones.
func parseXLMRoberta(data []byte) (*Tokenizer, error) {
	m, err := readModelProto(data)
	if err != nil {
		return nil, err
	}
	for i, text := range []string{"<unk>", "<s>", "</s>"} {
		if i >= len(m.pieces) || m.pieces[i].text != text {
			return nil, fmt.Errorf("sentencepiece.bpe.model: piece %d is not %s, with which XLM-RoBERTa's begins", i, text)
		}
	}
	control := func(text string) spPiece { return spPiece{text: text, kind: pieceControl} }
	first := []spPiece{m.pieces[1], control("<pad>"), m.pieces[2], m.pieces[0]}
	m.pieces = append(append(first, m.pieces[3:]...), control("<mask>"))
	m.roberta = true
	return m.assemble(true, true)
}

// assemble returns the tokenizer of m for parseSentencePiece.
func (m *spModel) assemble(bos, eos bool) (*Tokenizer, error) {
	chars, err := newCharsmap(m.charsmap)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.model: precompiled_charsmap: %w", err)
	}
	vocab := make(map[string]int32, len(m.pieces))
	special := []addedToken{}
	unknown := int32(-1)
	bosID, eosID := int32(-1), int32(-1)
	var user []addedToken
	for i, p := range m.pieces {
		id := int32(i)
		if _, ok := vocab[p.text]; ok {
			return nil, fmt.Errorf("tokenizer.model: piece %q is there twice", p.text)
		}
		vocab[p.text] = id
		switch {
		case p.kind == pieceUnknown:
			unknown = id
			special = append(special, addedToken{ID: id, Content: p.text, Special: true})
		case p.kind == pieceControl:
			special = append(special, addedToken{ID: id, Content: p.text, Special: true, LStrip: m.roberta && p.text == "<mask>"})
			switch p.text {
			case "<s>", "<bos>":
				bosID = id
			case "</s>", "<eos>":
				eosID = id
			}
		case p.kind == pieceUser:
			// Without other rules, a piece is found in the normalized text by its own bytes.
			plain := m.keepsDummy && m.keepsExtra && len(m.charsmap) == 0
			user = append(user, addedToken{ID: id, Content: p.text, Normalized: plain})
		}
	}
	if unknown < 0 {
		return nil, fmt.Errorf("tokenizer.model: there is no unknown piece")
	}
	parts := m.parts(vocab, slices.Concat(special, user), unknown)
	if post := m.template(bos && bosID >= 0, bosID, eos && eosID >= 0, eosID); post != nil {
		parts["post_processor"] = post
	}
	t, err := assemble(parts)
	if err != nil {
		return nil, err
	}
	// The rules of SentencePiece replace what tokenizer.json expresses in other ways.
	if t.added, err = newAddedTokens(user); err != nil {
		return nil, err
	}
	t.normalize = []normalizer{spNormalizer{chars, t.added, !m.keepsDummy, !m.keepsExtra}}
	t.split = nil
	t.rawAdded = nil
	if bos || eos {
		if t.rawAdded, err = newAddedTokens(special); err != nil {
			return nil, err
		}
	}
	if m.kind == 2 {
		m.rank(t.model.(*bpe), vocab)
		return t, nil
	}
	u := t.model.(*unigram)
	u.trie = newTrie()
	lowest := math.Inf(1)
	for i, p := range m.pieces {
		if p.kind != pieceNormal && p.kind != pieceUser {
			continue
		}
		lowest = min(lowest, float64(p.score))
		if err := u.trie.add(p.text, int32(i)); err != nil {
			return nil, err
		}
	}
	u.penalty, u.single = lowest-10, true
	return t, nil
}

// template returns the JSON of the post-processor; nil if it adds nothing.
func (m *spModel) template(bos bool, bosID int32, eos bool, eosID int32) object {
	if !bos && !eos {
		return nil
	}
	special := object{}
	var single, pair []any
	put := func(list []any, id, kind int32) []any {
		text := m.pieces[id].text
		special[text] = object{"id": text, "ids": []int32{id}, "tokens": []string{text}}
		return append(list, object{"SpecialToken": object{"id": text, "type_id": kind}})
	}
	for kind, name := range []string{"A", "B"} {
		first := bosID
		if m.roberta && kind > 0 { // </s></s> between the texts, and one type
			first, kind = eosID, 0
		}
		if bos {
			pair = put(pair, first, int32(kind))
		}
		pair = append(pair, object{"Sequence": object{"id": name, "type_id": kind}})
		if eos {
			pair = put(pair, eosID, int32(kind))
		}
		if name == "A" {
			single = append(single, pair...)
		}
	}
	return object{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
}

// parts returns the parts of the tokenizer.json that comes nearest.
func (m *spModel) parts(vocab map[string]int32, added []addedToken, unknown int32) object {
	var steps []any
	if len(m.charsmap) > 0 {
		steps = append(steps, object{"type": "Precompiled", "precompiled_charsmap": base64.StdEncoding.EncodeToString(m.charsmap)})
	}
	if !m.keepsExtra {
		steps = append(steps, object{"type": "Strip", "strip_left": true, "strip_right": true},
			object{"type": "Replace", "pattern": object{"Regex": " {2,}"}, "content": " "})
	}
	if !m.keepsDummy {
		steps = append(steps, object{"type": "Prepend", "prepend": "▁"})
	}
	steps = append(steps, object{"type": "Replace", "pattern": object{"String": " "}, "content": "▁"})
	decoders := []any{object{"type": "Replace", "pattern": object{"String": "▁"}, "content": " "}, object{"type": "ByteFallback"}, object{"type": "Fuse"}}
	if !m.keepsDummy {
		decoders = append(decoders, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	parts := object{
		"added_tokens": added,
		"normalizer":   object{"type": "Sequence", "normalizers": steps},
		"decoder":      object{"type": "Sequence", "decoders": decoders},
	}
	if m.kind == 1 {
		list := make([]any, len(m.pieces))
		for i, p := range m.pieces {
			list[i] = []any{p.text, p.score}
		}
		parts["model"] = object{"type": "Unigram", "unk_id": unknown, "vocab": list, "byte_fallback": m.fallback}
		return parts
	}
	merges := [][]string{}
	order := make([]int, 0, len(m.pieces))
	for i, p := range m.pieces {
		if p.kind == pieceNormal {
			order = append(order, i)
		}
	}
	sort.SliceStable(order, func(i, j int) bool { return m.pieces[order[i]].score > m.pieces[order[j]].score })
	for _, i := range order {
		for _, s := range m.splits(i, vocab) {
			merges = append(merges, []string{s[0], s[1]})
		}
	}
	parts["model"] = object{"type": "BPE", "unk_token": m.pieces[unknown].text, "fuse_unk": true, "byte_fallback": m.fallback,
		"vocab": vocab, "merges": merges}
	return parts
}

// splits returns the pairs of normal pieces that piece i is made of.
func (m *spModel) splits(i int, vocab map[string]int32) (list [][2]string) {
	text := m.pieces[i].text
	for at := range text {
		if at == 0 {
			continue
		}
		a, hasA := vocab[text[:at]]
		b, hasB := vocab[text[at:]]
		if hasA && hasB && m.pieces[a].kind == pieceNormal && m.pieces[b].kind == pieceNormal {
			list = append(list, [2]string{text[:at], text[at:]})
		}
	}
	return list
}

// rank makes the rank of a merge the place of its score: pairs of one score merge from the
// left.
func (m *spModel) rank(b *bpe, vocab map[string]int32) {
	scores := make([]float32, 0, len(m.pieces))
	for _, p := range m.pieces {
		scores = append(scores, -p.score)
	}
	sort.Slice(scores, func(i, j int) bool { return scores[i] < scores[j] })
	for key, c := range b.pairs {
		score := -m.pieces[c.id].score
		c.rank = int32(sort.Search(len(scores), func(i int) bool { return scores[i] >= score }))
		b.pairs[key] = c
	}
	for text, id := range vocab { // control pieces are no characters of a text
		if k := m.pieces[id].kind; k != pieceNormal && k != pieceUser {
			delete(b.vocab, text)
		}
	}
}

// spNormalizer normalizes as SentencePiece does: by the longest keys of its map, with spaces
// as ▁. User-defined pieces stay as they are.
type spNormalizer struct {
	chars        *charsmap
	user         *addedTokens
	dummy, strip bool
}

func (n spNormalizer) normalize(in, out *text) bool {
	const mark = "▁"
	pending := n.dummy // a mark goes before the next character
	spaced := n.strip  // spaces are swallowed
	for i := 0; i < len(in.b); {
		value, length := n.chars.lookup(in.b[i:], false)
		if piece, end := n.user.longest(in.b, i); piece >= 0 {
			value, length = in.b[i:end], end-i
		}
		at, same := i, length == 0
		if same {
			_, length = utf8.DecodeRune(in.b[i:])
			value = in.b[i : i+length]
		}
		source := in.offsets(span{i, i + length})
		i += length
		for size := 0; len(value) > 0; value = value[size:] {
			_, size = utf8.DecodeRune(value)
			space := value[0] == ' '
			if space && spaced {
				continue
			}
			if pending {
				out.put([]byte(mark), source)
				pending = false
			}
			switch spaced = space && n.strip; {
			case space:
				out.put([]byte(mark), source)
			case same:
				out.copy(in, span{at, i})
			default:
				out.put(value[:size], source)
			}
		}
	}
	if n.strip {
		for strings.HasSuffix(string(out.b[max(0, len(out.b)-len(mark)):]), mark) {
			out.b = out.b[:len(out.b)-len(mark)]
			for len(out.runs) > 0 && out.runs[len(out.runs)-1].begin >= len(out.b) {
				out.runs = out.runs[:len(out.runs)-1]
			}
		}
	}
	return true
}
