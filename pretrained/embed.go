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
	list := make([]tokenizer.Encoding, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if list[i], v.Tokens[i], err = m.encodeText(s.prompt+text, v.MaxTokens); err != nil {
			return nil, fmt.Errorf("text %d: %w", i, err)
		}
		if v.Tokens[i] > len(list[i].IDs) {
			v.Truncated++
		}
	}
	return v, m.embedEncoded(ctx, v.Rows, list, s, o.Progress)
}

// encodeText returns the tokens of a text, cut to most unless most is 0, and their number
// before the cut. It returns an error if there are none.
func (m *Model) encodeText(text string, most int) (e tokenizer.Encoding, all int, err error) {
	e = m.words.Encode(text)
	all = len(e.IDs)
	if all == 0 {
		return e, 0, errors.New("has no tokens")
	}
	if most > 0 && all > most {
		err = m.cut(&e, most)
	}
	return e, all, err
}

// tokenLimit returns the number of tokens that learned positions allow; 0: any number.
func (m *Model) tokenLimit() int {
	if m.plan.config.Positions != model.Learned {
		return 0
	}
	return m.plan.config.Context
}

// cut removes tokens of the text, and keeps special tokens at both ends.
func (m *Model) cut(e *tokenizer.Encoding, most int) error {
	last := len(e.IDs)
	for last > 0 && m.isTemplate(e, last-1) {
		last--
	}
	keep := most - (len(e.IDs) - last)
	if keep < 1 {
		return fmt.Errorf("max tokens: %d leave no room beside special tokens", most)
	}
	e.IDs = append(slices.Clone(e.IDs[:keep]), e.IDs[last:]...)
	e.Offsets = append(slices.Clone(e.Offsets[:keep]), e.Offsets[last:]...)
	return nil
}

// isTemplate reports whether token i is a special token that the template adds.
func (m *Model) isTemplate(e *tokenizer.Encoding, i int) bool {
	return e.Offsets[i] == [2]int{} && m.words.IsSpecial(e.IDs[i])
}

// embedEncoded sets rows to the vectors of encoded texts.
func (m *Model) embedEncoded(ctx context.Context, rows [][]float32, list []tokenizer.Encoding, s *sentence, progress func(int)) error {
	done := 0
	return m.eachBatch(list, func(texts []int, in *Input) error {
		if err := m.embedBatch(ctx, rows, list, texts, in, s); err != nil {
			return err
		}
		if done += len(texts); progress != nil {
			progress(done)
		}
		return nil
	})
}

// eachBatch calls do with inputs of encoded texts and their numbers. Texts of similar
// length share batches, the longest first.
func (m *Model) eachBatch(list []tokenizer.Encoding, do func(texts []int, in *Input) error) error {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(list[b].IDs), len(list[a].IDs)) })
	for len(order) > 0 {
		n := len(list[order[0]].IDs)
		size := min(max(embedTokens/n, 1), len(order))
		if err := do(order[:size], m.packTexts(list, order[:size], n)); err != nil {
			return err
		}
		order = order[size:]
	}
	return nil
}

// packTexts returns the input of texts with at most n tokens.
func (m *Model) packTexts(list []tokenizer.Encoding, texts []int, n int) *Input {
	in := &Input{B: len(texts), N: n, IDs: make([]int32, len(texts)*n), Mask: make([]bool, len(texts)*n)}
	for i, text := range texts {
		ids := list[text].IDs
		for j := range n {
			at := i*n + j
			if in.Mask[at] = j < len(ids); in.Mask[at] {
				in.IDs[at] = ids[j]
			} else if m.plan.padPosition >= 0 {
				in.IDs[at] = int32(m.plan.padPosition)
			}
		}
	}
	return in
}

// embedBatch sets the vectors of the texts of in.
func (m *Model) embedBatch(ctx context.Context, rows [][]float32, list []tokenizer.Encoding, texts []int, in *Input, s *sentence) error {
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
			v := s.apply(x.Data[i*in.N*w:], len(list[text].IDs), w)
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
