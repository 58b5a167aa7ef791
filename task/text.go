package task

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/token"
)

// Text is the task of predicting each token of a text from those before it.
type Text struct {
	Corpus *Corpus
	Vocab  *token.Vocabulary
	Train  []int32 // tokens of the first nine tenths of the text
	Valid  []int32 // tokens of the rest
}

// Options says what a task is made from.
type Options struct {
	Data  string // file or folder; "": DefaultCorpus
	Vocab string // token.KindBytes or token.KindChars
}

// OpenText reads the corpus that o names and makes the task of it.
func OpenText(o Options) (*Text, error) {
	if o.Vocab != token.KindBytes && o.Vocab != token.KindChars {
		return nil, fmt.Errorf("vocabulary %q: unknown; there are %s and %s", o.Vocab, token.KindBytes, token.KindChars)
	}
	c, err := Read(o.Data, o.Vocab)
	if err != nil {
		return nil, err
	}
	vocab := token.Bytes()
	if o.Vocab == token.KindChars {
		if vocab, err = token.Chars(c.Text); err != nil {
			return nil, fmt.Errorf("%s: %w; the vocabulary %q takes any bytes", c.Name, err, token.KindBytes)
		}
	}
	return NewText(c, vocab)
}

// Read reads a file or a folder for a kind of vocabulary; "" is DefaultCorpus.
func Read(data, vocab string) (*Corpus, error) {
	if data == "" {
		return DefaultCorpus(), nil
	}
	return ReadCorpus(data, vocab == token.KindChars)
}

// NewText splits the tokens of c: the first nine tenths are to learn from, the
// rest, which may be another part of the last file, to be judged by.
func NewText(c *Corpus, vocab *token.Vocabulary) (*Text, error) {
	tokens, err := vocab.Encode(nil, c.Text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	n := len(tokens) * 9 / 10
	if n < 2 || len(tokens)-n < 2 {
		return nil, fmt.Errorf("%s: %d tokens do not make a part to learn from and a part to validate", c.Name, len(tokens))
	}
	return &Text{Corpus: c, Vocab: vocab, Train: tokens[:n:n], Valid: tokens[n:]}, nil
}

// Digest identifies the text.
func (t *Text) Digest() string {
	sum := sha256.Sum256(t.Corpus.Text)
	return hex.EncodeToString(sum[:])
}

// Crop sets tokens and targets, both [batch·context], to random pieces of the
// training part: targets[i] is the token after tokens[i]. They are a function of
// key and step alone, whatever was asked for before. A training part of no more
// than context tokens is an error.
func (t *Text) Crop(tokens, targets []int32, context int, key rng.Key, step int) error {
	if context < 1 || len(t.Train) <= context {
		return fmt.Errorf("context: %d tokens do not fit a training part of %d", context, len(t.Train))
	}
	if len(tokens) != len(targets) || len(tokens)%context != 0 {
		return fmt.Errorf("targets: there are %d, for %d tokens in rows of %d", len(targets), len(tokens), context)
	}
	key = key.Fold(uint64(step))
	for b := range len(tokens) / context {
		at := key.Intn(uint64(b), len(t.Train)-context)
		copy(tokens[b*context:][:context], t.Train[at:])
		copy(targets[b*context:][:context], t.Train[at+1:])
	}
	return nil
}
