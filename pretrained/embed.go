package pretrained

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
	"github.com/farfield-ml/farfield/tokenizer"
)

// embedTokens is the number of tokens of a batch of texts, with padding.
const embedTokens = 4096

// Tokenizer returns the tokenizer of the folder; nil if there is none or TokenizerErr
// says why it is not read.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.words }

// TokenizerErr returns the error of reading the tokenizer.
func (m *Model) TokenizerErr() error { return m.wordsErr }

// openTokenizer reads the tokenizer, if there is one.
func (m *Model) openTokenizer() {
	m.wordsErr = fmt.Errorf("%s: has no tokenizer", m.dir)
	for _, name := range tokenizerFiles {
		if _, err := os.Stat(filepath.Join(m.dir, name)); err == nil {
			m.words, m.wordsErr = tokenizer.Open(m.dir)
			if m.wordsErr == nil && m.plan.vision == nil && m.words.Size() > m.plan.config.Vocab {
				m.wordsErr = fmt.Errorf("%s: the tokenizer has %d tokens, the model %d", m.dir, m.words.Size(), m.plan.config.Vocab)
			}
			if m.wordsErr != nil {
				m.words = nil
			}
			return
		}
	}
}

// EmbedOptions are the choices of EmbedWith.
type EmbedOptions struct {
	// MaxTokens is the number of tokens after which texts are cut, with special tokens. 0:
	// as the folder says; -1: all that the model reads.
	MaxTokens int
	// Progress is called after each batch with the number of texts done; nil: not called.
	Progress func(done int)
}

// Vectors are the vectors of texts.
type Vectors struct {
	Rows      [][]float32 // [texts][width]
	Tokens    []int       // of each text, before it was cut
	MaxTokens int         // after which texts were cut; 0: never
	Truncated int         // number of texts that were cut
}

// Embed returns a vector for each text: pooled and normalised as modules.json says,
// without it the mean of the tokens. It returns an error if the folder has no tokenizer
// or the model is no encoder or decoder of texts, a text is too long for the model and
// the folder does not cut it, or ctx ends.
func (m *Model) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	v, err := m.EmbedWith(ctx, texts, EmbedOptions{})
	if err != nil {
		return nil, err
	}
	return v.Rows, nil
}

// EmbedWith is Embed with choices. It returns an error where Embed does.
func (m *Model) EmbedWith(ctx context.Context, texts []string, o EmbedOptions) (*Vectors, error) {
	if m.words == nil {
		return nil, m.wordsErr
	}
	c := m.plan.config
	if c.Kind == model.EncoderDecoder || c.Inputs > 0 {
		return nil, fmt.Errorf("embed: %s is no encoder or decoder of texts", m.family)
	}
	s, err := readSentence(m.dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.dir, err)
	}
	v := &Vectors{Rows: make([][]float32, len(texts)), Tokens: make([]int, len(texts)), MaxTokens: o.MaxTokens}
	switch {
	case o.MaxTokens < -1:
		return nil, fmt.Errorf("max tokens: %d, needs -1 or more", o.MaxTokens)
	case o.MaxTokens == 0:
		v.MaxTokens = s.maxTokens
	case o.MaxTokens == -1:
		v.MaxTokens = 0
	}
	if limit := m.tokenLimit(); limit > 0 && (v.MaxTokens == 0 || v.MaxTokens > limit) {
		v.MaxTokens = limit
	}
	ids := make([][]int32, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e := m.words.Encode(s.prompt + text)
		v.Tokens[i] = len(e.IDs)
		if ids[i] = e.IDs; v.MaxTokens > 0 && len(e.IDs) > v.MaxTokens {
			v.Truncated++
			if ids[i], err = m.cut(&e, v.MaxTokens); err != nil {
				return nil, err
			}
		}
		if len(ids[i]) == 0 {
			return nil, fmt.Errorf("text %d: has no tokens", i)
		}
	}
	return v, m.embedIDs(ctx, v.Rows, ids, s, o.Progress)
}

// tokenLimit returns the number of tokens that learned positions allow; 0: any number.
func (m *Model) tokenLimit() int {
	if m.plan.config.Positions != model.Learned {
		return 0
	}
	return m.plan.config.Context
}

// cut removes tokens of the text, and keeps special tokens at both ends.
func (m *Model) cut(e *tokenizer.Encoding, most int) ([]int32, error) {
	ids := e.IDs
	isTemplate := func(i int) bool { return e.Offsets[i] == [2]int{} && m.words.IsSpecial(ids[i]) }
	last := len(ids)
	for last > 0 && isTemplate(last-1) {
		last--
	}
	keep := most - (len(ids) - last)
	if keep < 1 {
		return nil, fmt.Errorf("max tokens: %d leave no room beside special tokens", most)
	}
	return append(slices.Clone(ids[:keep]), ids[last:]...), nil
}

// embedIDs sets rows to the vectors of token ids. Texts of similar length share batches.
func (m *Model) embedIDs(ctx context.Context, rows [][]float32, ids [][]int32, s *sentence, progress func(int)) error {
	order := make([]int, len(ids))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(ids[b]), len(ids[a])) })
	for done := 0; done < len(order); {
		n := len(ids[order[done]])
		size := min(max(embedTokens/n, 1), len(order)-done)
		if err := m.embedBatch(ctx, rows, ids, order[done:done+size], n, s); err != nil {
			return err
		}
		done += size
		if progress != nil {
			progress(done)
		}
	}
	return nil
}

// embedBatch sets the vectors of texts with at most n tokens.
func (m *Model) embedBatch(ctx context.Context, rows [][]float32, ids [][]int32, texts []int, n int, s *sentence) error {
	in := &Input{B: len(texts), N: n, IDs: make([]int32, len(texts)*n), Mask: make([]bool, len(texts)*n)}
	for i, text := range texts {
		for j := range n {
			at := i*n + j
			if in.Mask[at] = j < len(ids[text]); in.Mask[at] {
				in.IDs[at] = ids[text][j]
			} else if m.plan.padPosition >= 0 {
				in.IDs[at] = int32(m.plan.padPosition)
			}
		}
	}
	b, err := m.batch(ctx, in)
	if err != nil {
		return err
	}
	share := m.beginPass(b)
	defer m.endPass(share)
	layers, w := m.plan.config.Layers, m.plan.config.Width
	return share.VisitLayers(b, func(_ bool, layer int, x tensor.Mat[float32]) error {
		if layer != layers+1 {
			return nil
		}
		for i, text := range texts {
			v := s.apply(x.Data[i*n*w:], len(ids[text]), w)
			if slices.ContainsFunc(v, func(x float32) bool { return x-x != 0 }) {
				return errors.New("embed: a vector is not finite")
			}
			rows[text] = v
		}
		return nil
	})
}

// tokenizerFiles are the names of files with a tokenizer.
var tokenizerFiles = []string{"tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"}
