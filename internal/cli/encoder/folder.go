package encoder

import (
	"context"
	"fmt"
	"strings"

	"github.com/farfield-ml/farfield/pretrained"
)

// folderEncoder makes vectors with a published model.
type folderEncoder struct {
	model            *pretrained.Model
	width, maxTokens int
	options          pretrained.EmbedOptions
	prompts          *pretrained.Prompts
	readsBlank       bool // a text of spaces has tokens
}

// newFolder returns the encoder of m. It returns an error if m makes no vectors of texts.
func newFolder(m *pretrained.Model, maxTokens int) (Encoder, error) {
	f := &folderEncoder{model: m, options: pretrained.EmbedOptions{MaxTokens: maxTokens}}
	var err error
	if f.prompts, err = m.Prompts(); err != nil {
		return nil, err
	}
	// One word tells the width and the bound.
	v, err := m.EmbedWith(context.Background(), []string{"a"}, f.options)
	if err != nil {
		return nil, err
	}
	if f.width, f.maxTokens = len(v.Rows[0]), v.MaxTokens; f.maxTokens == 0 {
		// A model without learned positions takes any number: its context bounds the time.
		f.maxTokens = DefaultTokens
		if context := m.Config().Context; context > 0 {
			f.maxTokens = min(f.maxTokens, context)
		}
		f.options.MaxTokens = f.maxTokens
	}
	if maxTokens > 0 && f.maxTokens < maxTokens {
		return nil, fmt.Errorf("--max-tokens: %d, the model learned %d positions", maxTokens, f.maxTokens)
	}
	f.readsBlank = len(m.Tokenizer().Encode("").IDs) > 0
	return f, nil
}

func (f *folderEncoder) Width() int     { return f.width }
func (f *folderEncoder) MaxTokens() int { return f.maxTokens }
func (f *folderEncoder) Window() int    { return f.maxTokens }

func (f *folderEncoder) Prompts() *pretrained.Prompts { return f.prompts }

func (f *folderEncoder) Encode(ctx context.Context, prompt *string, texts []string) ([]Encoding, error) {
	list := make([]Encoding, len(texts))
	var full []string // texts with tokens
	var at []int
	for i, text := range texts {
		if text != "" && (f.readsBlank || strings.TrimSpace(text) != "") {
			full, at = append(full, text), append(at, i)
		}
	}
	if len(full) == 0 {
		return list, nil
	}
	o := f.options
	o.Prompt = prompt
	v, err := f.model.EmbedWith(ctx, full, o)
	if err != nil {
		return nil, err
	}
	for i, row := range v.Rows {
		x := Encoding{Vector: row, Tokens: v.Tokens[i]}
		if v.MaxTokens > 0 && x.Tokens > v.MaxTokens {
			x.Tokens, x.IsTruncated = v.MaxTokens, true
		}
		list[at[i]] = x
	}
	return list, nil
}
