package task

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tokenizer"
)

// The names of the tasks of a Text.
const (
	CharLM = "charlm" // the tokens are characters
	ByteLM = "bytelm" // the tokens are bytes
)

// Text predicts each token of a text from the tokens before it, in windows.
type Text struct {
	Corpus *Corpus
	Vocab  *token.Vocabulary

	length int     // tokens in a window
	stride int     // tokens from the start of a validation window to the next; 0: length
	begin  []int32 // tokens before each window, which are not predicted
	size   int     // number of different tokens of the model; 0: as many as Vocab has
	seed   uint64
	tokens token.Sequence
	parts  [3]token.Sequence // by split
}

// textSet is a text of the data sets.
type textSet struct {
	files   []string // alternative names
	hasTest bool     // the last twentieth is the test set
}

var textSets = map[string]textSet{
	"tinyshakespeare": {files: []string{"input.txt"}},
	"enwik8":          {files: []string{"enwik8", "enwik8-first-4000000.gz"}, hasTest: true},
	"warandpeace":     {files: []string{"2600-0.txt", "2600-0.txt.gz"}},
}

// textWindow is the default length of a window.
const textWindow = 1024

var textSettings = []Setting{
	{"data", "", "tinyshakespeare, enwik8, warandpeace, or the path of a file (plain, gzip or zstd) or folder; empty for the source of the Go toolchain, or a text that the program writes itself"},
	{"vocabulary", "", "bpe=N: N tokens of byte-level BPE, learned from the training set; empty for bytes or characters"},
	{"length", fmt.Sprint(textWindow), "tokens of a window, for callers of the library; train takes --context"},
}

func openCharLM(o *settingsReader) (Source, error) { return openText(o, token.KindChars) }
func openByteLM(o *settingsReader) (Source, error) { return openText(o, token.KindBytes) }

// openText opens a text with a kind of vocabulary.
func openText(o *settingsReader, kind string) (Source, error) {
	length := o.int("length")
	if err := checkRange("length", length, 1, 1<<24); err != nil {
		return nil, err
	}
	data := o.text("data")
	inMemory := o.text("vocabulary") != ""
	if o.Tokens != nil {
		inMemory = o.Tokens.Vocabulary.Tokenizer() != nil
	}
	c, err := ReadText(data, o.Folder, kind, inMemory)
	if err != nil {
		return nil, err
	}
	t, err := newOpenText(o, c, kind)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	t.length, t.seed = length, o.Seed
	if o.Tokens != nil {
		t.size = o.Tokens.Size
	}
	if textSets[data].hasTest {
		t.halveValidation()
	}
	return t, nil
}

// newOpenText returns NewText of c in the vocabulary of the settings.
func newOpenText(o *settingsReader, c *Corpus, kind string) (*Text, error) {
	var vocab *token.Vocabulary
	var err error
	switch name := o.text("vocabulary"); {
	case o.Tokens != nil:
		vocab = o.Tokens.Vocabulary
		if own := vocab.Kind(); own != kind && (own != token.KindWords || kind != token.KindBytes) {
			return nil, fmt.Errorf("the model reads other tokens than %s", kind)
		}
	case name != "":
		if vocab, err = learnVocabulary(c, name, kind); err != nil {
			return nil, err
		}
	case kind == token.KindBytes:
		vocab = token.NewByteVocabulary()
	default:
		if vocab, err = token.NewCharVocabulary(c.Text); err != nil {
			return nil, fmt.Errorf("%s: %w; bytelm takes any bytes", c.Name, err)
		}
	}
	return NewText(c, vocab)
}

// learnVocabulary returns the vocabulary that setting name describes, learned from the first
// nine tenths of the text.
func learnVocabulary(c *Corpus, name, kind string) (*token.Vocabulary, error) {
	number, ok := strings.CutPrefix(name, "bpe=")
	size, err := strconv.Atoi(number)
	switch {
	case !ok || err != nil:
		return nil, fmt.Errorf("setting vocabulary: %q is not bpe=N with a number of tokens", name)
	case kind != token.KindBytes:
		return nil, fmt.Errorf("setting vocabulary: %s is for task %s, not %s", name, ByteLM, CharLM)
	}
	if err := c.checkTokens(); err != nil {
		return nil, err
	}
	t, err := tokenizer.Train(context.Background(), c.Text[:len(c.Text)/10*9], size)
	if err != nil {
		return nil, fmt.Errorf("setting vocabulary: %w", err)
	}
	return token.NewTokenizerVocabulary(t), nil
}

// checkTokens returns an error if the text is not in memory, where a tokenizer needs it and its tokens.
func (c *Corpus) checkTokens() error {
	if c.IsMapped {
		return fmt.Errorf("%s: a text of %d bytes exceeds half of the free memory, %d bytes, and tokens of a vocabulary need it whole; bytes and characters do not", c.Name, len(c.Text), freeMemory())
	}
	return nil
}

// halveValidation makes the second half of the validation set the test set.
func (t *Text) halveValidation() {
	valid := t.parts[Valid]
	half := valid.Len() / 2
	t.parts[Valid], t.parts[Test] = valid.Slice(0, half), valid.Slice(half, valid.Len())
}

// ReadText reads the text that data names: a data set below folder, a path, or, if data is "", the
// default corpus. If kind is a vocabulary of characters, files that are not UTF-8 are skipped. inMemory is as in ReadCorpus.
// ReadText returns an error if the text is missing or cannot be read.
func ReadText(data, folder, kind string, inMemory bool) (*Corpus, error) {
	if data == "" {
		return DefaultCorpus(), nil
	}
	set, ok := textSets[data]
	if !ok {
		return ReadCorpus(data, kind == token.KindChars, inMemory)
	}
	path, err := findFile(filepath.Join(folder, data), set.files...)
	if err != nil {
		return nil, err
	}
	b, err := dataset.ReadFile(path, io.ReadAll)
	return &Corpus{Name: path, Text: b, Files: 1}, err
}

// NewText returns the task that predicts the tokens of c in windows of 1024 tokens. The first nine
// tenths are the training set and the rest is the validation set, as in nanoGPT; Open divides the
// rest of enwik8 into validation and test sets. NewText returns an error if a token is not in the
// vocabulary or the text is too short.
func NewText(c *Corpus, vocab *token.Vocabulary) (*Text, error) {
	t, err := NewWholeText(c, vocab)
	if err != nil {
		return nil, err
	}
	all := t.tokens.Len()
	n := all / 10 * 9
	n += all % 10 * 9 / 10
	if n < 2 || all-n < 2 {
		return nil, fmt.Errorf("%s: %d tokens do not make a part to learn from and a part to validate", c.Name, all)
	}
	t.parts[Train], t.parts[Valid] = t.tokens.Slice(0, n), t.tokens.Slice(n, all)
	return t, nil
}

// NewWholeText is NewText with the whole text as the validation set and an empty training set. It
// returns an error if a token is not in the vocabulary.
func NewWholeText(c *Corpus, vocab *token.Vocabulary) (*Text, error) {
	if vocab.Tokenizer() != nil {
		if err := c.checkTokens(); err != nil {
			return nil, err
		}
	}
	tokens, err := vocab.NewSequence(c.Text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	t := &Text{Corpus: c, Vocab: vocab, length: textWindow, tokens: tokens}
	t.parts[Valid] = tokens
	return t, nil
}

// Tokens returns the tokens of a split.
func (t *Text) Tokens(split Split) token.Sequence { return t.parts[split] }

// ValidationOnly returns the task with the whole text as the validation set and an empty training
// set.
func (t *Text) ValidationOnly() *Text {
	w := *t
	w.parts = [3]token.Sequence{Valid: t.tokens}
	return &w
}

// WithWindow returns the same task with windows of length tokens.
func (t *Text) WithWindow(length int) WindowSource {
	w := *t
	w.length = length
	return &w
}

// WithStride returns the same task with overlapping validation and test windows, each of which
// begins stride tokens after the one before. In the first window all tokens are predicted, in the
// others only the last stride tokens, so that every token but the first of the text is predicted
// once. WithStride returns an error if stride is not from 1 to the length of a window.
func (t *Text) WithStride(stride int) (*Text, error) {
	if stride < 1 || stride > t.length {
		return nil, fmt.Errorf("stride: is %d, a window has 1 to %d tokens", stride, t.length)
	}
	w := *t
	w.stride = stride
	return &w, nil
}

// validationStride returns the tokens from a validation window to the next.
func (t *Text) validationStride() int {
	if t.stride == 0 {
		return t.length
	}
	return t.stride
}

// ForModel returns the same task for a model of size different tokens, which has at least those of
// Vocab. Before each window the model reads the tokens begin, which are not predicted.
func (t *Text) ForModel(size int, begin []int32) *Text {
	w := *t
	w.size, w.begin = size, begin
	return &w
}

// Digest returns the SHA-256 of the text.
func (t *Text) Digest() string {
	sum := sha256.Sum256(t.Corpus.Text)
	return hex.EncodeToString(sum[:])
}

// Spec returns the specification of the samples. Training windows begin anywhere. Validation and
// test windows are consecutive, or overlap with a stride; the last one may be shorter.
func (t *Text) Spec() Spec {
	name := ByteLM
	if t.Vocab.Kind() == token.KindChars {
		name = CharLM
	}
	size := max(t.size, t.Vocab.Size())
	s := Spec{Name: name, Kind: Next, Metric: Nats, Vocab: size, Length: len(t.begin) + t.length, Parts: 1, Classes: size}
	s.Count[Train] = Endless
	for _, split := range []Split{Valid, Test} {
		stride := t.validationStride()
		if n := t.parts[split].Len() - 1; n > 0 {
			s.Count[split] = 1 + (max(n-t.length, 0)+stride-1)/stride
		}
	}
	return s
}

// Sample overwrites s with a window and its next tokens. It returns an error if the split has
// no sample i.
func (t *Text) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	if split == Train {
		return t.DrawWindow(s, t.length, rng.New(t.seed).Fold(uint64(i)), 0)
	}
	stride := t.validationStride()
	part, at := t.parts[split], i*stride
	t.setWindow(s, part, at, min(t.length, part.Len()-1-at))
	if i > 0 { // the windows before have predicted the first tokens
		for p := range t.length - stride {
			s.Labels[len(t.begin)+p] = -1
		}
	}
	return nil
}

// DrawWindow overwrites s with a training window, whose position depends on key and i alone. It
// returns an error if the training set is not longer than length.
func (t *Text) DrawWindow(s *Sample, length int, key rng.Key, i uint64) error {
	part := t.parts[Train]
	if length < 1 || part.Len() <= length {
		return fmt.Errorf("context: %d tokens do not fit the %d that there are to learn from", length, part.Len())
	}
	t.setWindow(s, part, key.Intn(i, part.Len()-length), length)
	return nil
}

// setWindow overwrites s with length tokens of a part from position at, and their next tokens.
func (t *Text) setWindow(s *Sample, part token.Sequence, at, length int) {
	resetSample(s)
	s.Tokens = part.Append(append(s.Tokens, t.begin...), at, at+length)
	s.Labels = append(s.Labels, s.Tokens[1:]...)
	for i := range t.begin {
		if i < len(t.begin)-1 || at > 0 { // the window before predicts its next token
			s.Labels[i] = -1
		}
	}
	s.Labels = part.Append(s.Labels, at+length, at+length+1)
}

// tableTokens bounds the tokens that n-gram models learn from.
const tableTokens = 1 << 26

// NgramLosses returns the losses of n-gram models on the split's first limit tokens, in nats per
// token, for contexts of zero, one and two tokens. limit of 0 means all. learned is the number
// of training tokens used, at most 2^26. It returns an error if a split has fewer than three
// tokens.
func (t *Text) NgramLosses(split Split, limit int) (loss [3]float64, learned int, err error) {
	judged := t.parts[split]
	if limit > 0 {
		judged = judged.Slice(0, min(judged.Len(), limit))
	}
	table, learned, err := t.learnNgram(judged.Len())
	if err != nil {
		return loss, 0, err
	}
	return table.Loss(judged.All()), learned, nil
}

// learnNgram returns the n-gram model of the training set, and the number of tokens that it
// learned from. It returns an error if these or the judged tokens are fewer than three.
func (t *Text) learnNgram(judged int) (table *Ngram, learned int, err error) {
	from := t.parts[Train]
	from = from.Slice(0, min(from.Len(), tableTokens))
	if err := t.checkNgram(from.Len(), judged); err != nil {
		return nil, 0, err
	}
	return NewNgram(from.All(), t.Vocab.Size()), from.Len(), nil
}

// CheckNgram returns an error if the training set or the judged split has fewer than the three
// tokens that n-gram models need.
func (t *Text) CheckNgram() error {
	spec := t.Spec()
	return t.checkNgram(t.parts[Train].Len(), t.parts[spec.JudgedSplit()].Len())
}

func (t *Text) checkNgram(learned, judged int) error {
	if judged < 3 || learned < 3 {
		return fmt.Errorf("%s: %d tokens to learn from and %d to be judged by are too few", t.Spec().Name, learned, judged)
	}
	return nil
}

// WindowNgramLosses returns the losses of NgramLosses on n windows of the split, spread evenly over
// it as train.Evaluate spreads them, and the losses on all its tokens. It returns an error if a
// split has fewer than three tokens.
func (t *Text) WindowNgramLosses(split Split, n int) (windows, all [3]float64, learned int, err error) {
	judged := t.parts[split]
	table, learned, err := t.learnNgram(judged.Len())
	if err != nil {
		return windows, all, 0, err
	}
	all = table.Loss(judged.All())
	spec := t.Spec()
	count := spec.Count[split]
	if n >= count || n*t.length < 2 { // the first target has one token before it
		return all, all, learned, nil
	}
	targets := 0
	for i := range n {
		at := i * count / n * t.length
		window := judged.Slice(max(at-1, 0), min(at+t.length+1, judged.Len()))
		if window.Len() < 3 {
			continue
		}
		for order, loss := range table.Loss(window.All()) {
			windows[order] += loss * float64(window.Len()-2)
		}
		targets += window.Len() - 2
	}
	for order := range windows {
		windows[order] /= float64(targets)
	}
	return windows, all, learned, nil
}

// Baselines returns the losses of NgramLosses on the tokens of the first n windows; n of 0 means
// all. It returns an error if a split has fewer than three tokens.
func (t *Text) Baselines(n int) ([]Baseline, error) {
	spec := t.Spec()
	limit := n * t.length
	if n > 0 {
		limit += 2
	}
	loss, learned, err := t.NgramLosses(spec.JudgedSplit(), limit)
	if err != nil {
		return nil, err
	}
	judged := t.parts[spec.JudgedSplit()].Len()
	if limit > 0 {
		judged = min(judged, limit)
	}
	list := make([]Baseline, len(loss))
	for order, name := range []string{"frequency", "after one token", "after two"} {
		list[order] = Baseline{Name: name, Score: loss[order], Learned: learned, Judged: judged}
	}
	return list, nil
}
