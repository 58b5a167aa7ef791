package published

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
	"github.com/farfield-ml/farfield/tokenizer"
)

// Tokenizer returns the tokenizer of the folder. It is nil if there is none, or if it could not be
// read: then TokenizerErr says why.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.texts.words }

// TargetTokenizer returns the tokenizer for the targets of an encoder-decoder. It is Tokenizer
// unless the folder has another one for them.
func (m *Model) TargetTokenizer() *tokenizer.Tokenizer {
	if m.texts.target != nil {
		return m.texts.target
	}
	return m.texts.words
}

// TokenizerErr returns the error of reading the tokenizer, or nil.
func (m *Model) TokenizerErr() error { return m.texts.err }

// EmbedOptions are pretrained.EmbedOptions, which describes the fields.
type EmbedOptions struct {
	MaxTokens  int
	Prompt     *string
	Dimensions int
	Progress   func(done int)
}

// Vectors are pretrained.Vectors, which describes the fields.
type Vectors struct {
	Rows      [][]float32
	Tokens    []int
	MaxTokens int
	Truncated int
}

// Embed returns the rows of EmbedWith without choices.
func (m *Model) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	v, err := m.EmbedWith(ctx, texts, EmbedOptions{})
	if err != nil {
		return nil, err
	}
	return v.Rows, nil
}

// CheckVectors returns an error unless the folder makes vectors of texts.
func (m *Model) CheckVectors() error {
	_, err := m.vectorRules()
	return err
}

// vectorRules returns what the folder says about vectors of texts. It returns an error if the model
// makes none.
func (m *Model) vectorRules() (*sentence, error) {
	if m.texts.words == nil {
		return nil, m.texts.err
	}
	if c := m.plan.config; c.Kind == model.EncoderDecoder || c.Inputs > 0 {
		return nil, fmt.Errorf("embed: %s is no encoder or decoder of texts", m.family)
	}
	s, err := m.sentence()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.dir, err)
	}
	if s.isLowercase && !m.texts.words.IsLowercase() {
		return nil, fmt.Errorf("%s: do_lower_case: is true, but the tokenizer keeps capitals; that is not supported", m.dir)
	}
	return s, nil
}

// EmbedWith does the work of Embed of pretrained.Model.
func (m *Model) EmbedWith(ctx context.Context, texts []string, o EmbedOptions) (*Vectors, error) {
	s, err := m.vectorRules()
	if err != nil {
		return nil, err
	}
	c := m.plan.config
	prompt, err := s.prompts.find(o.Prompt)
	if err != nil {
		return nil, fault.Mark(fault.ErrInput, fmt.Errorf("%s: %w", m.dir, err))
	}
	if most := s.width(c.Width); o.Dimensions < 0 || o.Dimensions > most {
		return nil, fault.Mark(fault.ErrInput, fault.Fieldf[EmbedOptions]("{Dimensions}: %d, the vectors of the model have %d", o.Dimensions, most))
	}
	skip := 0 // tokens that a vector leaves out
	if s.lacksPrompt && prompt != "" {
		skip = m.texts.countPrompt(prompt)
	}
	v := &Vectors{Rows: make([][]float32, len(texts)), Tokens: make([]int, len(texts)), MaxTokens: o.MaxTokens}
	switch {
	case o.MaxTokens < -1:
		return nil, fault.Mark(fault.ErrInput, fault.Fieldf[EmbedOptions]("{MaxTokens}: %d, needs -1 or more", o.MaxTokens))
	case o.MaxTokens == 0:
		if v.MaxTokens = s.maxTokens; s.isCapped {
			v.MaxTokens = min(cmp.Or(s.maxTokens, c.Context), c.Context)
		}
	case o.MaxTokens == -1:
		v.MaxTokens = 0
	}
	if limit := m.texts.limit; limit > 0 && (v.MaxTokens == 0 || v.MaxTokens > limit) {
		v.MaxTokens = limit
	}
	list := make([]tokenizer.Encoding, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if list[i], v.Tokens[i], err = m.texts.encode(prompt+text, v.MaxTokens); err != nil {
			return nil, fault.Mark(fault.ErrInput, fmt.Errorf("text %d: %w", i, err))
		}
		if n := len(list[i].IDs); n <= skip {
			return nil, fault.Mark(fault.ErrInput, fmt.Errorf("text %d: %d tokens are read, and the prompt, which the vector leaves out, has %d", i, n, skip))
		}
		if v.Tokens[i] > len(list[i].IDs) {
			if v.Truncated++; prompt != "" && !reachesBeyond(&list[i], len(prompt)) {
				return nil, fault.Mark(fault.ErrInput, fmt.Errorf("text %d: max tokens: %d leave no room beside special tokens and the prompt %q", i, v.MaxTokens, prompt))
			}
		}
	}
	if o.Dimensions > 0 && s.keeps > 0 {
		whole := *s
		whole.keeps, s = 0, &whole
	}
	if err := m.embedEncoded(ctx, v.Rows, list, s, skip, o.Progress); err != nil || o.Dimensions == 0 {
		return v, err
	}
	for i, row := range v.Rows {
		v.Rows[i] = ShortenVector(row, o.Dimensions)
	}
	return v, nil
}

// reachesBeyond reports whether a token of e reaches beyond the first n bytes of its text.
func reachesBeyond(e *tokenizer.Encoding, n int) bool {
	return slices.ContainsFunc(e.Offsets, func(at [2]int) bool { return at[1] > n })
}

// embedEncoded sets rows to the vectors of encoded texts, without the rows of their first skip
// tokens.
func (m *Model) embedEncoded(ctx context.Context, rows [][]float32, list []tokenizer.Encoding, s *sentence, skip int, progress func(int)) error {
	done := 0
	return m.texts.eachBatch(list, func(texts []int, in *Input) error {
		if err := m.embedBatch(ctx, rows, list, texts, in, s, skip); err != nil {
			return err
		}
		if done += len(texts); progress != nil {
			progress(done)
		}
		return nil
	})
}

// embedBatch sets the vectors of the texts of in.
func (m *Model) embedBatch(ctx context.Context, rows [][]float32, list []tokenizer.Encoding, texts []int, in *Input, s *sentence, skip int) error {
	b, err := m.batch(in)
	if err != nil {
		return err
	}
	share := m.passes.begin(b)
	defer m.passes.end(b, share)
	layers, w := m.plan.config.Layers, m.plan.config.Width
	return share.VisitLayers(ctx, b, func(_ bool, layer int, x tensor.Mat) error {
		if layer != layers+1 {
			return nil
		}
		for i, text := range texts {
			v := s.apply(x.Data[i*in.N*w:], len(list[text].IDs), skip, w)
			if slices.ContainsFunc(v, func(x float32) bool { return x-x != 0 }) {
				return errors.New("embed: a vector is not finite")
			}
			rows[text] = v
		}
		return nil
	})
}
