package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tokenizer"
)

// TruncationReporter is implemented by sources that cut long inputs.
type TruncationReporter interface {
	Source
	// CountTruncated returns the number of inputs that are cut, and the number of all inputs.
	CountTruncated() (cut, all int)
}

// Default lengths of texts in tokens: the least multiple of lengthStep that leaves
// lengthShare of the texts whole, at most defaultTokens.
const (
	lengthStep    = 32
	lengthShare   = 0.9
	defaultTokens = 512
)

// Tokens says in which tokens a model reads texts.
type Tokens struct {
	Vocabulary *token.Vocabulary
	Size       int  // number of different tokens of the model, which may be more than the vocabulary has
	CutsStart  bool // long texts lose their beginning, not their end
}

// encode returns the tokens of a text, with special tokens. It returns an error if there are
// none, or a character is not in the vocabulary.
func (k *Tokens) encode(text []byte) (ids []int32, err error) {
	if words := k.Vocabulary.Tokenizer(); words != nil {
		ids = words.AppendIDs(nil, string(text), false)
	} else {
		ids, err = k.Vocabulary.Encode(nil, text)
	}
	if err == nil && len(ids) == 0 {
		err = errEmpty
	}
	return ids, err
}

// textEnds are the numbers of special tokens that begin and end each text, and the end that is
// cut.
type textEnds struct {
	opening, closing int
	cutsStart        bool
}

// findEnds returns the ends of texts.
func (k *Tokens) findEnds() textEnds {
	ends := textEnds{cutsStart: k.CutsStart}
	words := k.Vocabulary.Tokenizer()
	if words == nil {
		return ends
	}
	e := words.Encode("a")
	for _, span := range slices.Backward(e.Offsets) {
		if span != [2]int{} {
			break
		}
		ends.closing++
	}
	for i, span := range e.Offsets {
		if span != [2]int{} || !words.IsSpecial(e.IDs[i]) {
			break
		}
		ends.opening++
	}
	return ends
}

// errByteLabels is the error of labels of bytes for a model that reads other tokens.
var errByteLabels = errors.New("target: labels are of bytes, the model reads tokens")

// appendTruncated appends ids, cut to length positions before the closing tokens or after the
// opening ones.
func (e textEnds) appendTruncated(dst, ids []int32, length int) []int32 {
	if len(ids) <= length {
		return append(dst, ids...)
	}
	last := min(e.closing, length)
	if e.cutsStart {
		last = length - min(e.opening, length)
	}
	dst = append(dst, ids[:length-last]...)
	return append(dst, ids[len(ids)-last:]...)
}

// Limits of a learned vocabulary.
const (
	learnedBytes = 1 << 24 // of texts that it is learned from, to the end of a text
	learnedSize  = 8192    // tokens by default
)

// parseVocabulary returns the most tokens of the vocabulary that a setting names. It returns
// an error if the name is of none.
func parseVocabulary(name string) (size int, err error) {
	switch number, ok := strings.CutPrefix(name, "bpe="); {
	case name == "bpe":
		return learnedSize, nil
	case !ok:
		return 0, fmt.Errorf("%q is neither bpe nor bpe=N", name)
	default:
		if size, err = strconv.Atoi(number); err != nil {
			return 0, fmt.Errorf("%q is not bpe=N with a number of tokens", name)
		}
		return size, nil
	}
}

// sampleTexts returns training texts, each with a line feed: all, or where they have more than
// limit bytes, texts that the seed draws until they do. It returns an error if a text cannot
// be read.
func (t *OwnTexts) sampleTexts(limit int, seed uint64) (all []byte, err error) {
	part := t.parts[Train]
	read := func(place func(i int) int) error {
		all = all[:0]
		for i := 0; i < len(part) && len(all) <= limit; i++ {
			text, err := part[place(i)].read(math.MaxInt)
			if err != nil {
				return err
			}
			all = append(append(all, text...), '\n')
		}
		return nil
	}
	if err = read(func(i int) int { return i }); err == nil && len(all) > limit { // classes lie in order
		key := rng.New(seed).Fold(4)
		err = read(func(i int) int { return key.Permute(i, len(part)) })
	}
	return all, err
}

// learnTokens returns the vocabulary that setting name describes, learned from the training
// set. It returns an error if name describes none, or a text cannot be read.
func (t *OwnTexts) learnTokens(name string, seed uint64) (*Tokens, error) {
	size, err := parseVocabulary(name)
	if err != nil {
		return nil, err
	}
	all, err := t.sampleTexts(learnedBytes, seed)
	if err != nil {
		return nil, err
	}
	words, err := tokenizer.TrainWith(context.Background(), all, tokenizer.TrainOptions{Size: size, Lowercase: true})
	if err != nil {
		return nil, err
	}
	return &Tokens{Vocabulary: token.NewTokenizerVocabulary(words), Size: words.Size()}, nil
}

// Tokens returns the tokens in which the texts are read; nil: bytes.
func (t *OwnTexts) Tokens() *Tokens { return t.tokens }

// TokenReporter is implemented by sources whose samples have tokens of a vocabulary.
type TokenReporter interface {
	Source
	// Tokens returns the tokens; nil: the task's own.
	Tokens() *Tokens
}

// encodeTexts replaces the texts by their tokens. length of 0 is derived from the texts. most
// bounds it; 0: there is no bound. It returns an error if a text cannot be read or has no
// tokens.
func (t *OwnTexts) encodeTexts(tokens *Tokens, length, most int) error {
	if t.kind == Labels {
		return errByteLabels
	}
	t.tokens, t.ends = tokens, tokens.findEnds()
	var lengths []int
	for _, part := range t.parts {
		for i := range part {
			text, err := part[i].read(math.MaxInt)
			if err != nil {
				return err
			}
			if part[i].ids, err = tokens.encode(text); err != nil {
				return fmt.Errorf("%s: %w", t.place(&part[i]), err)
			}
			lengths = append(lengths, len(part[i].ids))
		}
	}
	if most == 0 {
		most = 1 << 24
	}
	switch {
	case length == 0:
		slices.Sort(lengths)
		whole := lengths[int(lengthShare*float64(len(lengths)-1))]
		t.length = min((whole+lengthStep-1)/lengthStep*lengthStep, defaultTokens, most)
	case length > most:
		return fmt.Errorf("length: %d tokens, the model has %d positions", length, most)
	}
	return nil
}

// encodePairs replaces the pairs by their tokens and types. It returns an error if encode does.
func (t *OwnTexts) encodePairs(tokens *Tokens, encode func(text, pair string, most int) (ids, types []int32, err error), most int) error {
	t.tokens = tokens
	for _, part := range t.parts {
		for i := range part {
			own := &part[i]
			var err error
			if own.ids, own.types, err = encode(string(own.text), string(own.pair), most); err == nil && len(own.ids) == 0 {
				err = errEmpty
			}
			if err != nil {
				return fmt.Errorf("%s: %w", t.place(own), err)
			}
		}
	}
	return nil
}

// read returns the first most bytes of the text, and of a pair all of both. A file in UTF-16
// with a byte order mark is decoded. It returns an error if the file cannot be read or is empty.
func (o *ownText) read(most int) ([]byte, error) {
	if o.pair != nil {
		return slices.Concat(o.text, []byte("\n"), o.pair), nil
	}
	if o.path == "" {
		return o.text, nil
	}
	text, err := dataset.ReadFile(o.path, func(r io.Reader) ([]byte, error) {
		return io.ReadAll(io.LimitReader(infile.NewText(r), int64(most)))
	})
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("%s: it is empty", o.path)
	}
	return text, err
}

// SampleLength returns the number of positions in sample i of a split, or 0 for a text in a file
// that is not read yet.
func (t *OwnTexts) SampleLength(split Split, i int) int {
	own := &t.parts[split][i]
	if t.tokens != nil {
		return min(len(own.ids), t.length)
	}
	return min(len(own.text), t.length)
}

// CountTruncated returns the number of texts that are cut, and the number of all texts. Texts in
// files that are read as bytes count as whole.
func (t *OwnTexts) CountTruncated() (cut, all int) {
	for _, part := range t.parts {
		all += len(part)
		for i := range part {
			if len(part[i].ids) > t.length || t.tokens == nil && len(part[i].text) > t.length {
				cut++
			}
		}
	}
	return cut, all
}
