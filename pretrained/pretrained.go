// Package pretrained opens folders of published transformers: config.json, model.safetensors or its
// index, and a tokenizer. Open makes a model of package model and keeps the names of its weights, so
// that Save gives the folder back. Write gives other models the layout of a published family, and
// WriteExchanged puts attention of linear cost into a published model.
//
// A field of config.json that changes the function and is unknown or unsupported is an error with the
// name of the field. farfield.Open opens the same folders for vectors, classes and texts.
package pretrained

import (
	"context"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tokenizer"
)

// Interpolate is a value of Options.Positions: learned positions are interpolated for sequences
// longer than their table.
const Interpolate = published.Interpolate

// Options holds the choices of Open.
type Options struct {
	// Positions says what happens to sequences that are longer than a table of learned positions:
	// "" refuses them, Interpolate stretches the table by 2, 4, 8, …
	Positions string
	// Exchange puts another attention function into layers, as model.Config.Exchanged does; nil
	// leaves the folder's. The tokenizer, the pooling and the head stay. Save refuses such a
	// model; Save of model.Model writes it in the layout of package model. Exchange's Factory
	// builds a function that package mechanism does not have.
	Exchange *model.Exchange
	// Precision holds the weights in fewer bits, as Compress of model.Model does. They are never
	// all in memory in 32 bits.
	Precision nn.Precision
	// IgnoreFields names members of config.json that are read as if they were absent. Use it for
	// unknown members that do not change the function. Save leaves them out.
	IgnoreFields []string
}

// Model is a published model. Its methods may be called concurrently as long as no weight changes.
type Model struct{ folder *published.Model }

// Open opens the published model, or the exchanged model that WriteExchanged or farfield exchange
// wrote, in the folder dir. It returns an error if a file is missing, malformed or too large, if
// config.json has an unknown field, if the weights do not agree with it, for unknown options, and
// where model.Config.Exchanged does.
func Open(dir string, o Options) (*Model, error) {
	m, err := published.OpenWith(dir, published.Options(o))
	if err != nil {
		return nil, err
	}
	return &Model{m}, nil
}

// Family returns the model_type of config.json.
func (m *Model) Family() string { return m.folder.Family() }

// Labels returns the names of the classes by id2label of config.json, with LABEL_i for a class
// without a name. It returns nil if the model has no head of classes.
func (m *Model) Labels() []string { return m.folder.Labels() }

// Notes returns remarks about what the files of the folder have and the model does not follow: a
// head that config.json does not name, files or tensors that differ from the index, a tokenizer that
// differs from the table of tokens or from its settings, fields that are ignored, and heads for
// other tasks.
func (m *Model) Notes() []string { return m.folder.Notes() }

// Model returns the model of package model. If its weights are changed, Embed, Forward and Save
// change, too. The outputs of a body without a head are not the family's. After the first call of
// Model, short inputs no longer use packed weights.
func (m *Model) Model() *model.Model { return m.folder.Model() }

// Tokenizer returns the tokenizer of the folder. It returns an error if there is none or it cannot be
// read.
func (m *Model) Tokenizer() (*tokenizer.Tokenizer, error) {
	return m.folder.Tokenizer(), m.folder.TokenizerErr()
}

// EmbedOptions holds the choices of Embed.
type EmbedOptions struct {
	// MaxTokens is the number of tokens to which texts are cut, with special tokens and the
	// prompt. At least one token of the text is left. 0: as the folder says; -1: as many as the
	// model reads.
	MaxTokens int
	// Prompt is the name of the prompt that is put before each text. nil: the folder's default; an
	// empty name: none.
	Prompt *string
	// Dimensions is how many numbers of each vector are kept; the vector is then divided by its
	// new length. Only vectors of models that were trained for it can be shortened. 0: as the
	// folder says.
	Dimensions int
	// Progress is called after each batch with the number of texts done. It may be nil.
	Progress func(done int)
}

// Vectors holds the vectors of texts.
type Vectors struct {
	Rows      [][]float32 // [texts][width]
	Tokens    []int       // tokens of each text, before it was cut
	MaxTokens int         // number of tokens to which texts were cut; 0: none
	Truncated int         // number of texts that were cut
}

// Embed returns a vector for each text. It is pooled and normalised as modules.json says, or the mean
// of the tokens if there is no modules.json. Texts with more tokens than the model has learned
// positions are cut. Embed returns an error if the folder has no tokenizer, if the model is no
// encoder or decoder of texts, if a text has no tokens, if special tokens leave no room for it, if a
// vector is not finite, or if ctx ends.
func (m *Model) Embed(ctx context.Context, texts []string, o EmbedOptions) (*Vectors, error) {
	v, err := m.folder.EmbedWith(ctx, texts, published.EmbedOptions(o))
	return (*Vectors)(v), err
}

// Input is a batch of B sequences of N tokens, or of B images.
type Input struct {
	B, N  int
	IDs   []int32 // [B·N]
	Mask  []bool  // [B·N] true for tokens, false for padding; nil: all true
	Types []int32 // [B·N] token types; nil: 0

	Pixels []float32 // [B·channels·size·size], instead of tokens

	// DecoderIDs [B·DecoderN] are the target tokens of an encoder-decoder.
	DecoderIDs []int32
	DecoderN   int

	// Hidden asks for Output.Hidden.
	Hidden bool
}

// Output holds the results of Forward, named as in transformers; those that the model does not have
// are nil. Rows of masked tokens are 0. If a decoder classifies sequences, rows are 0 after the last
// token that is not padding.
type Output struct {
	Hidden      []float32 // [L+1,B,N,C]: the rows before the first layer and after each, the last after the final norm; in an encoder-decoder those of the target
	LastHidden  []float32 // [B,N,C], if the model has no head
	Logits      []float32 // [B,N,classes] or [B,classes]
	Pooled      []float32 // [B,C]
	EncoderLast []float32 // [B,N,C] of the source of an encoder-decoder
}

// Forward computes the outputs for in. It returns an error if in does not fit the model, ctx ends, or
// a result is not finite.
func (m *Model) Forward(ctx context.Context, in *Input) (*Output, error) {
	o, err := m.folder.Forward(ctx, (*published.Input)(in))
	if err != nil {
		return nil, err
	}
	var out Output
	for _, x := range []struct {
		to   *[]float32
		from *array.Array
	}{{&out.Hidden, o.Hidden}, {&out.LastHidden, o.LastHidden}, {&out.Logits, o.Logits}, {&out.Pooled, o.Pooled}, {&out.EncoderLast, o.EncoderLast}} {
		if x.from != nil {
			if *x.to, err = x.from.Float32(); err != nil {
				return nil, err
			}
		}
	}
	return &out, nil
}

// Save writes the model to the folder dir, which transformers loads to the same outputs. Weights have
// the names of the folder that was opened; its configuration and tokenizer are copied. If no weight
// of a file has changed, the file is copied byte by byte. If a weight has changed, all are written to
// one file in float32. Save creates dir if it does not exist.
//
// Weights in fewer bits (Options.Precision) are written as they are held: in 16 bits as BF16, in 8
// bits as I8 with scales, which transformers does not load. Open reads them unchanged with the same
// precision; without it, it widens weights of 8 bits.
//
// Save returns an error if dir has weights, tokenizer files or files beside them that the opened
// folder lacks, if a file cannot be written, if the opened folder can no longer be read or its
// tensors have other shapes, or if a layer has another function than the folder's
// (Options.Exchange). It also returns the error of model.Model.CheckMechanisms.
func (m *Model) Save(dir string) error { return m.folder.Save(dir) }

// Write writes the model m to the folder dir, which transformers loads to the same outputs, if a
// published family has such a model: config.json, model.safetensors and, unless words is nil,
// tokenizer.json. Biases that the family has and m does not are written as 0. Write creates dir if it
// does not exist. It returns an error that names the differing field if no family has such a model,
// if dir has weights, tokenizer files or files beside them that Write does not replace, or if a file
// cannot be written. It also returns the error of model.Model.CheckMechanisms.
func Write(dir string, m *model.Model, words *tokenizer.Tokenizer) error {
	return published.Write(dir, m, words)
}
