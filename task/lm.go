package task

import (
	"fmt"

	"github.com/farfield-ml/farfield/dataset"
	"github.com/farfield-ml/farfield/token"
	"io"
	"path/filepath"
)

// Stream is the task of predicting each token of a text from those before it, in
// windows: charlm with the characters of a text as tokens, bytelm with its bytes.
type Stream struct {
	name   string
	length int
	seed   uint64
	vocab  int
	parts  [3][]int32
}

// textSets are the texts of the data sets.
var textSets = map[string][]string{
	"tinyshakespeare": {"input.txt"},
	"enwik8":          {"enwik8", "enwik8-first-4000000.gz"},
	"warandpeace":     {"2600-0.txt", "2600-0.txt.gz"},
}

const ofDoc = "tinyshakespeare, enwik8, warandpeace, or the path of a file or folder"

var charSettings = []Setting{
	{"of", "tinyshakespeare", ofDoc},
	{"length", "256", "tokens of a window"},
}

var byteSettings = []Setting{
	{"of", "enwik8", ofDoc},
	{"length", "1024", "tokens of a window"},
}

func openCharLM(o *opening) (Source, error) { return openStream(o, token.KindChars) }
func openByteLM(o *opening) (Source, error) { return openStream(o, token.KindBytes) }

func openStream(o *opening, kind string) (Source, error) {
	of := o.text("of")
	var c *Corpus
	if files, ok := textSets[of]; ok {
		path, err := find(filepath.Join(o.Folder, of), files...)
		if err != nil {
			return nil, err
		}
		b, err := dataset.File(path, io.ReadAll)
		if err != nil {
			return nil, err
		}
		c = &Corpus{Name: path, Text: b, Files: 1}
	} else {
		var err error
		if c, err = ReadCorpus(of, kind == token.KindChars); err != nil {
			return nil, err
		}
	}
	vocab := token.Bytes()
	if kind == token.KindChars {
		var err error
		if vocab, err = token.Chars(c.Text); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return NewStream(c, vocab, o.int("length"), o.Seed)
}

// NewStream makes the task of a text. Characters: nine tenths are to learn from
// and the rest to choose by, as nanoGPT has it. Bytes: nine tenths, a twentieth to
// choose by, a twentieth to be judged by, as enwik8 is divided.
func NewStream(c *Corpus, vocab *token.Vocabulary, length int, seed uint64) (*Stream, error) {
	if err := between("length", length, 1, 1<<24); err != nil {
		return nil, err
	}
	tokens, err := vocab.Encode(nil, c.Text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	t := &Stream{name: "bytelm", length: length, seed: seed, vocab: vocab.Size()}
	n := len(tokens)
	ends := [3]int{n * 9 / 10, n * 19 / 20, n}
	if vocab.Kind() == token.KindChars {
		t.name = "charlm"
		ends[Valid] = n
	}
	from := 0
	for split, end := range ends {
		part := tokens[from:end:end]
		if from = end; len(part) == 0 && split == int(Test) {
			continue
		}
		if len(part) <= length {
			return nil, fmt.Errorf("%s: length: the part %v has %d tokens, a window of %d needs one more", c.Name, Split(split), len(part), length)
		}
		t.parts[split] = part
	}
	return t, nil
}

// Spec returns what the samples are: to learn from there are windows from any
// place, to judge by those that follow each other.
func (t *Stream) Spec() Spec {
	s := Spec{Name: t.name, Kind: Next, Metric: Nats, Vocab: t.vocab, Length: t.length, Parts: 1, Classes: t.vocab}
	s.Count[Train] = Endless
	for _, split := range []Split{Valid, Test} {
		s.Count[split] = max(len(t.parts[split])-1, 0) / t.length
	}
	return s
}

// Sample sets s to a window and the tokens that come next.
func (t *Stream) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.within(split, i); err != nil {
		return err
	}
	s.reset()
	part, at := t.parts[split], i*t.length
	if split == Train {
		at = drawsOf(t.seed, split, i).intn(len(part) - t.length)
	}
	s.Tokens = append(s.Tokens, part[at:][:t.length]...)
	s.Labels = append(s.Labels, part[at+1:][:t.length]...)
	return nil
}

// Baselines are tables of how often tokens follow those before, made of the first
// million tokens, and judged by as many as n windows have.
func (t *Stream) Baselines(n int) ([]Baseline, error) {
	const most = 1 << 20
	spec := t.Spec()
	split := spec.judged()
	judged := t.parts[split][:min(len(t.parts[split]), n*t.length+2)]
	learned := t.parts[Train][:min(len(t.parts[Train]), most)]
	if len(judged) < 3 || len(learned) < 3 {
		return nil, fmt.Errorf("%s: %d tokens to learn from and %d to be judged by are too few", t.name, len(learned), len(judged))
	}
	loss := NewNgram(learned, t.vocab).Loss(judged)
	return []Baseline{{"frequency", loss[0]}, {"after one token", loss[1]}, {"after two", loss[2]}}, nil
}
