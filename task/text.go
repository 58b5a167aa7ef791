package task

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"

	"github.com/farfield-ml/farfield/dataset"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/token"
)

// The tasks that a Text is, by its vocabulary.
const (
	CharLM = "charlm" // the tokens are characters
	ByteLM = "bytelm" // the tokens are bytes
)

// Text is the task of predicting each token of a text from those before it, in
// windows.
type Text struct {
	Corpus *Corpus
	Vocab  *token.Vocabulary

	length int
	seed   uint64
	tokens token.Sequence
	parts  [3]token.Sequence
}

// textSet is a text of the data sets.
type textSet struct {
	files   []string
	hasTest bool // a twentieth is there to be judged by
}

var textSets = map[string]textSet{
	"tinyshakespeare": {files: []string{"input.txt"}},
	"enwik8":          {files: []string{"enwik8", "enwik8-first-4000000.gz"}, hasTest: true},
	"warandpeace":     {files: []string{"2600-0.txt", "2600-0.txt.gz"}},
}

// textWindow is the length of a window that nobody has asked for.
const textWindow = 1024

var textSettings = []Setting{
	{"data", "", "tinyshakespeare, enwik8, warandpeace, or the path of a file or folder; empty for the source of the Go toolchain, or a text that the program writes itself"},
	{"length", fmt.Sprint(textWindow), "tokens of a window; a model's context is one"},
}

func openCharLM(o *settingsReader) (Source, error) { return openText(o, token.KindChars) }
func openByteLM(o *settingsReader) (Source, error) { return openText(o, token.KindBytes) }

func openText(o *settingsReader, kind string) (Source, error) {
	length := o.int("length")
	if err := checkRange("length", length, 1, 1<<24); err != nil {
		return nil, err
	}
	data := o.text("data")
	c, err := ReadText(data, o.Folder, kind)
	if err != nil {
		return nil, err
	}
	vocab := token.Bytes()
	if kind == token.KindChars {
		if vocab, err = token.Chars(c.Text); err != nil {
			return nil, fmt.Errorf("%s: %w; bytelm takes any bytes", c.Name, err)
		}
	}
	t, err := NewText(c, vocab)
	if err != nil {
		return nil, err
	}
	t.length, t.seed = length, o.Seed
	if textSets[data].hasTest {
		valid := t.parts[Valid]
		half := valid.Len() / 2
		t.parts[Valid], t.parts[Test] = valid.Slice(0, half), valid.Slice(half, valid.Len())
	}
	return t, nil
}

// ReadText reads the text that the setting data names, with folder that of the
// data sets, for a kind of vocabulary.
func ReadText(data, folder, kind string) (*Corpus, error) {
	if data == "" {
		return DefaultCorpus(), nil
	}
	set, ok := textSets[data]
	if !ok {
		return ReadCorpus(data, kind == token.KindChars)
	}
	path, err := findFile(filepath.Join(folder, data), set.files...)
	if err != nil {
		return nil, err
	}
	b, err := dataset.File(path, io.ReadAll)
	return &Corpus{Name: path, Text: b, Files: 1}, err
}

// NewText splits the tokens of c: the first nine tenths are to learn from, the
// rest, which may be another part of the last file, to choose by. So has nanoGPT
// it; of enwik8, which is divided otherwise, Open leaves the last half of the rest
// to be judged by. Windows have 1024 tokens.
func NewText(c *Corpus, vocab *token.Vocabulary) (*Text, error) {
	tokens, err := vocab.Sequence(c.Text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	all := tokens.Len()
	n := all / 10 * 9
	n += all % 10 * 9 / 10
	if n < 2 || all-n < 2 {
		return nil, fmt.Errorf("%s: %d tokens do not make a part to learn from and a part to validate", c.Name, all)
	}
	t := &Text{Corpus: c, Vocab: vocab, length: textWindow, tokens: tokens}
	t.parts[Train], t.parts[Valid] = tokens.Slice(0, n), tokens.Slice(n, all)
	return t, nil
}

// Tokens returns the tokens of a part.
func (t *Text) Tokens(split Split) token.Sequence { return t.parts[split] }

// ValidationOnly returns the task with all of the text in the part to choose by, and
// nothing to learn from.
func (t *Text) ValidationOnly() *Text {
	w := *t
	w.parts = [3]token.Sequence{Valid: t.tokens}
	return &w
}

// WithWindow returns the same task with windows of another length.
func (t *Text) WithWindow(length int) WindowSource {
	w := *t
	w.length = length
	return &w
}

// Digest identifies the text.
func (t *Text) Digest() string {
	sum := sha256.Sum256(t.Corpus.Text)
	return hex.EncodeToString(sum[:])
}

// Spec returns what the samples are: to learn from there are windows from any
// place, to judge by those that follow each other, the last of which may be
// shorter.
func (t *Text) Spec() Spec {
	name := ByteLM
	if t.Vocab.Kind() == token.KindChars {
		name = CharLM
	}
	s := Spec{Name: name, Kind: Next, Metric: Nats, Vocab: t.Vocab.Size(), Length: t.length, Parts: 1, Classes: t.Vocab.Size()}
	s.Count[Train] = Endless
	for _, split := range []Split{Valid, Test} {
		s.Count[split] = (max(t.parts[split].Len()-1, 0) + t.length - 1) / t.length
	}
	return s
}

// Sample sets s to a window and the tokens that come next.
func (t *Text) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.checkIndex(split, i); err != nil {
		return err
	}
	if split == Train {
		return t.DrawWindow(s, t.length, rng.New(t.seed).Fold(uint64(i)), 0)
	}
	part, at := t.parts[split], i*t.length
	t.setWindow(s, part, at, min(t.length, part.Len()-1-at))
	return nil
}

// DrawWindow sets s to a window of the part to learn from, which has to be longer. Its
// place is a function of key and i.
func (t *Text) DrawWindow(s *Sample, length int, key rng.Key, i uint64) error {
	part := t.parts[Train]
	if length < 1 || part.Len() <= length {
		return fmt.Errorf("context: %d tokens do not fit the %d that there are to learn from", length, part.Len())
	}
	t.setWindow(s, part, key.Intn(i, part.Len()-length), length)
	return nil
}

func (t *Text) setWindow(s *Sample, part token.Sequence, at, length int) {
	s.reset()
	s.Tokens = part.Append(s.Tokens, at, at+length)
	s.Labels = append(s.Labels, s.Tokens[1:]...)
	s.Labels = part.Append(s.Labels, at+length, at+length+1)
}

// tableTokens is the most tokens that Table learns from.
const tableTokens = 1 << 26

// NgramLosses returns the losses in nats per token of tables that predict the split's first
// limit tokens (0: all) from counts of no token, one and two tokens before, and the
// number of tokens that the tables learned from: the training part's first 2^26 at
// most. Parts of fewer than three tokens are an error.
func (t *Text) NgramLosses(split Split, limit int) (loss [3]float64, learned int, err error) {
	judged, from := t.parts[split], t.parts[Train]
	if limit > 0 {
		judged = judged.Slice(0, min(judged.Len(), limit))
	}
	from = from.Slice(0, min(from.Len(), tableTokens))
	if judged.Len() < 3 || from.Len() < 3 {
		return loss, 0, fmt.Errorf("%s: %d tokens to learn from and %d to be judged by are too few", t.Spec().Name, from.Len(), judged.Len())
	}
	return NewNgram(from.All(), t.Vocab.Size()).Loss(judged.All()), from.Len(), nil
}

// Baselines returns the losses of Table, judged by as many tokens as n windows have, or by
// all with n of 0.
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
		list[order] = Baseline{name, loss[order], learned, judged}
	}
	return list, nil
}
