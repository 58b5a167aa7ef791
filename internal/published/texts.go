package published

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tokenizer"
)

// tokenizerFiles are the names of files with a tokenizer.
var tokenizerFiles = []string{"tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"}

// embedTokens is the number of tokens of a batch of texts, with padding.
const embedTokens = 4096

// textReader makes inputs of texts.
type textReader struct {
	words  *tokenizer.Tokenizer // nil: err says why
	target *tokenizer.Tokenizer // of targets, where it is another one
	err    error
	limit  int  // tokens that learned positions allow; 0: any number
	pad    int  // id after the tokens of a text; below 0: 0
	types  bool // the model gets types of tokens

	size  int      // tokens of the model, of which a tokenizer may have more
	notes []string // what the tokenizer differs in from the model or from its settings

	cutsStart bool // long texts lose their beginning, not their end
}

// newTextReader reads the tokenizer of a folder, if there is one, or the characters of
// config.json.
func newTextReader(dir string, p *plan, config []byte) textReader {
	r := textReader{size: p.config.Vocab, err: fmt.Errorf("%s: has no tokenizer", dir), pad: p.padPosition, types: p.config.TokenTypes > 1}
	if p.config.Pool == model.PoolLast {
		r.pad = p.padding
	}
	if p.config.Positions == model.Learned {
		r.limit = p.config.Context
	}
	for _, name := range tokenizerFiles {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			r.words, r.err = tokenizer.Open(dir)
			if r.err == nil && p.vision == nil && r.words.Size() > r.size {
				r.notes = append(r.notes, fmt.Sprintf("the tokenizer has %d tokens, the model %d: texts with the others are refused", r.words.Size(), r.size))
			}
			if r.err == nil {
				r.notes = append(r.notes, r.words.Notes()...)
			}
			if r.err == nil {
				r.cutsStart, r.err = HasLeftTruncation(dir, r.words)
			}
			if r.err == nil && r.types {
				r.types, r.err = hasTypeInputs(dir)
			}
			if r.err != nil {
				r.words = nil
			}
			return r
		}
	}
	if p.config.Kind == model.EncoderDecoder {
		if words, target, err := charTokenizers(config); err != nil {
			r.err = fmt.Errorf("%s: %w", filepath.Join(dir, configFile), err)
		} else if words != nil {
			r.words, r.target, r.err = words, target, nil
		}
	}
	return r
}

// HasLeftTruncation reports whether long texts lose their beginning, not their end, in the model of
// the folder dir: truncation_side of tokenizer_config.json is left, or it is absent and the
// tokenizer words says so. It returns an error if the file cannot be read.
func HasLeftTruncation(dir string, words *tokenizer.Tokenizer) (bool, error) {
	side := words.TruncationSide()
	f, err := readFields(filepath.Join(dir, tokenizerConfigFile))
	if f != nil {
		side = f.text("truncation_side", side)
	}
	return side == "left", err
}

// encode returns the tokens of a text, cut to most unless most is 0, and their number
// before the cut. It returns an error if there are none.
func (r *textReader) encode(text string, most int) (e tokenizer.Encoding, all int, err error) {
	e = r.words.Encode(text)
	all = len(e.IDs)
	if all == 0 {
		return e, 0, errors.New("has no tokens")
	}
	if most > 0 && all > most {
		if err := r.cut(&e, most); err != nil {
			return e, all, err
		}
	}
	return e, all, r.checkIDs(e.IDs)
}

// checkIDs returns an error that names the first token that the model does not have.
func (r *textReader) checkIDs(ids []int32) error {
	for _, id := range ids {
		if int(id) >= r.size {
			return fmt.Errorf("token %q: has the id %d, the model has %d tokens", infile.Shorten(r.words.Token(id)), id, r.size)
		}
	}
	return nil
}

// encodePair is encode of a text and its pair. The longer of both is cut first.
func (r *textReader) encodePair(text, pair string, most int) (e tokenizer.Encoding, all int, err error) {
	if e, all, err = r.cutPair(text, pair, most); err == nil {
		err = r.checkIDs(e.IDs)
	}
	return e, all, err
}

// cutPair is encodePair without a check of the tokens.
func (r *textReader) cutPair(text, pair string, most int) (e tokenizer.Encoding, all int, err error) {
	e = r.words.EncodePair(text, pair)
	all = len(e.IDs)
	if all == 0 {
		return e, 0, errors.New("has no tokens")
	}
	if most == 0 || all <= most {
		return e, all, nil
	}
	a, b := len(r.words.EncodePlain(text).IDs), len(r.words.EncodePlain(pair).IDs)
	room := most - (all - a - b)
	if room < 2 {
		return e, all, fmt.Errorf("max tokens: %d leave no room beside special tokens", most)
	}
	first, last := 0, all
	for first < all && r.isTemplate(&e, first) {
		first++
	}
	for last > 0 && r.isTemplate(&e, last-1) {
		last--
	}
	short, long := min(a, b), room-min(a, b)
	if long < short {
		short, long = room/2, room-room/2
	}
	if a > b {
		short, long = long, short
	}
	if r.cutsStart {
		e = dropTokens(e, last-b, last-long)
		return dropTokens(e, first, first+a-short), all, nil
	}
	e = dropTokens(e, last-b+long, last)
	return dropTokens(e, first+short, first+a), all, nil
}

// EncodePair returns the ids [tokens] of a text and its pair with special tokens, and the types
// [tokens] of these tokens, which are nil if the model has no types or model_input_names leaves
// them out. The longer text is cut first, until the pair has at most most tokens; 0: as many as
// there are learned positions. EncodePair returns an error if the model has no tokenizer, if the
// pair has no tokens, or if special tokens leave no room.
func (m *Model) EncodePair(text, pair string, most int) (ids, types []int32, err error) {
	if m.texts.words == nil {
		return nil, nil, m.texts.err
	}
	if limit := m.texts.limit; limit > 0 && (most == 0 || most > limit) {
		most = limit
	}
	e, _, err := m.texts.encodePair(text, pair, most)
	if err != nil || !m.texts.types {
		return e.IDs, nil, err
	}
	return e.IDs, e.Types, nil
}

// dropTokens returns e without tokens from ≤ i < to.
func dropTokens(e tokenizer.Encoding, from, to int) tokenizer.Encoding {
	e.IDs, e.Offsets, e.Types = slices.Delete(e.IDs, from, to), slices.Delete(e.Offsets, from, to), slices.Delete(e.Types, from, to)
	return e
}

// cut removes tokens of the text, and keeps special tokens at both ends. It returns an error
// if no token of the text is left.
func (r *textReader) cut(e *tokenizer.Encoding, most int) error {
	first, last := r.body(e)
	keep := most - (len(e.IDs) - last) // with the special tokens before
	if keep <= first {
		return fmt.Errorf("max tokens: %d leave no room beside special tokens", most)
	}
	from, to := keep, last
	if r.cutsStart {
		from, to = first, last-(keep-first)
	}
	*e = dropTokens(tokenizer.Encoding{IDs: slices.Clone(e.IDs), Offsets: slices.Clone(e.Offsets), Types: slices.Clone(e.Types)}, from, to)
	return nil
}

// isTemplate reports whether token i is a special token that the template adds.
func (r *textReader) isTemplate(e *tokenizer.Encoding, i int) bool {
	return e.Offsets[i] == [2]int{} && r.words.IsSpecial(e.IDs[i])
}

// eachBatch calls do with inputs of encoded texts and their numbers. Texts of similar
// length share batches, the longest first.
func (r *textReader) eachBatch(list []tokenizer.Encoding, do func(texts []int, in *Input) error) error {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(list[b].IDs), len(list[a].IDs)) })
	for len(order) > 0 {
		n := len(list[order[0]].IDs)
		size := min(max(embedTokens/n, 1), len(order))
		if err := do(order[:size], r.packTexts(list, order[:size], n)); err != nil {
			return err
		}
		order = order[size:]
	}
	return nil
}

// packTexts returns the input of texts with at most n tokens.
func (r *textReader) packTexts(list []tokenizer.Encoding, texts []int, n int) *Input {
	in := &Input{B: len(texts), N: n, IDs: make([]int32, len(texts)*n), Mask: make([]bool, len(texts)*n)}
	for i, text := range texts {
		ids := list[text].IDs
		if types := list[text].Types; r.types && slices.Contains(types, 1) { // of a pair
			if in.Types == nil {
				in.Types = make([]int32, len(texts)*n)
			}
			copy(in.Types[i*n:], types[:len(ids)])
		}
		for j := range n {
			at := i*n + j
			if in.Mask[at] = j < len(ids); in.Mask[at] {
				in.IDs[at] = ids[j]
			} else if r.pad >= 0 {
				in.IDs[at] = int32(r.pad)
			}
		}
	}
	return in
}
