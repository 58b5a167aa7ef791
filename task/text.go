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
	parts  [3][]int32
}

// textSet is a text of the data sets.
type textSet struct {
	files  []string
	judged bool // a twentieth is there to be judged by
}

var textSets = map[string]textSet{
	"tinyshakespeare": {files: []string{"input.txt"}},
	"enwik8":          {files: []string{"enwik8", "enwik8-first-4000000.gz"}, judged: true},
	"warandpeace":     {files: []string{"2600-0.txt", "2600-0.txt.gz"}},
}

// textWindow is the length of a window that nobody has asked for.
const textWindow = 1024

var textSettings = []Setting{
	{"data", "", "tinyshakespeare, enwik8, warandpeace, or the path of a file or folder; empty for the source of the Go toolchain, or a text that the program writes itself"},
	{"length", fmt.Sprint(textWindow), "tokens of a window; a model's context is one"},
}

func openCharLM(o *opening) (Source, error) { return openText(o, token.KindChars) }
func openByteLM(o *opening) (Source, error) { return openText(o, token.KindBytes) }

func openText(o *opening, kind string) (Source, error) {
	length := o.int("length")
	if err := between("length", length, 1, 1<<24); err != nil {
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
	if textSets[data].judged {
		valid := t.parts[Valid]
		half := len(valid) / 2
		t.parts[Valid], t.parts[Test] = valid[:half:half], valid[half:]
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
	path, err := find(filepath.Join(folder, data), set.files...)
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
	tokens, err := vocab.Encode(nil, c.Text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	n := len(tokens) * 9 / 10
	if n < 2 || len(tokens)-n < 2 {
		return nil, fmt.Errorf("%s: %d tokens do not make a part to learn from and a part to validate", c.Name, len(tokens))
	}
	t := &Text{Corpus: c, Vocab: vocab, length: textWindow}
	t.parts[Train], t.parts[Valid] = tokens[:n:n], tokens[n:]
	return t, nil
}

// Tokens returns those of a part.
func (t *Text) Tokens(split Split) []int32 { return t.parts[split] }

// Whole returns the task with all of the text in the part to choose by, and
// nothing to learn from.
func (t *Text) Whole() *Text {
	w := *t
	var all []int32
	for _, part := range t.parts {
		all = append(all, part...)
	}
	w.parts = [3][]int32{Valid: all}
	return &w
}

// Windows returns the same task with windows of another length.
func (t *Text) Windows(length int) Windowed {
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
		s.Count[split] = (max(len(t.parts[split])-1, 0) + t.length - 1) / t.length
	}
	return s
}

// Sample sets s to a window and the tokens that come next.
func (t *Text) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.within(split, i); err != nil {
		return err
	}
	if split == Train {
		return t.Draw(s, t.length, rng.New(t.seed).Fold(uint64(i)), 0)
	}
	part, at := t.parts[split], i*t.length
	t.window(s, part, at, min(t.length, len(part)-1-at))
	return nil
}

// Draw sets s to a window of the part to learn from, which has to be longer. Its
// place is a function of key and i.
func (t *Text) Draw(s *Sample, length int, key rng.Key, i uint64) error {
	part := t.parts[Train]
	if length < 1 || len(part) <= length {
		return fmt.Errorf("context: %d tokens do not fit the %d that there are to learn from", length, len(part))
	}
	t.window(s, part, key.Intn(i, len(part)-length), length)
	return nil
}

func (t *Text) window(s *Sample, part []int32, at, length int) {
	s.reset()
	s.Tokens = append(s.Tokens, part[at:][:length]...)
	s.Labels = append(s.Labels, part[at+1:][:length]...)
}

// Baselines are tables of how often tokens follow those before, made of the first
// million tokens, and judged by as many as n windows have.
func (t *Text) Baselines(n int) ([]Baseline, error) {
	const most = 1 << 20
	spec := t.Spec()
	judged := t.parts[spec.Judged()]
	judged = judged[:min(len(judged), n*t.length+2)]
	learned := t.parts[Train][:min(len(t.parts[Train]), most)]
	if len(judged) < 3 || len(learned) < 3 {
		return nil, fmt.Errorf("%s: %d tokens to learn from and %d to be judged by are too few", spec.Name, len(learned), len(judged))
	}
	loss := NewNgram(learned, spec.Vocab).Loss(judged)
	return []Baseline{{"frequency", loss[0]}, {"after one token", loss[1]}, {"after two", loss[2]}}, nil
}
