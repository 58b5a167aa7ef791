package inference

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/model"
)

// Embedding is the vector of a text.
type Embedding struct {
	Values      []float32 // [width]; nil: the text is empty
	Tokens      int       // tokens of the text that were read
	IsTruncated bool      // the text has more tokens than were read
	InWindows   bool      // the vector is the mean over windows of the trained context
}

// TextError is returned for one of several texts.
type TextError struct {
	Text int // index of the text
	Err  error
}

// Error returns the message of the error, without the index: the caller knows where the text is
// from.
func (e *TextError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the text.
func (e *TextError) Unwrap() error { return e.Err }

// Embedder makes vectors of texts. Its methods may be called concurrently.
type Embedder struct {
	of        *Model
	width     int
	maxTokens int
	window    int
	short     int // number of elements of a vector that are kept; 0: all
	prompts   *published.Prompts

	options    published.EmbedOptions // for a published model
	readsBlank bool                   // a text of spaces only has tokens

	free chan *model.Model // idle models of a run, which share their weights
}

// DefaultTokens bounds the tokens of a text if the model does not.
const DefaultTokens = 1 << 16

// NewEmbedder returns an embedder that reads at most maxTokens tokens of a text, or fewer if the
// model has fewer learned positions. 0 reads as many as the model can, up to DefaultTokens.
// NewEmbedder returns an error if the model makes no vectors of texts.
func (m *Model) NewEmbedder(maxTokens int) (*Embedder, error) {
	if m.folder == nil && m.vocab == nil {
		return nil, m.vocabErr
	}
	e := &Embedder{of: m, prompts: &published.Prompts{}, options: published.EmbedOptions{MaxTokens: maxTokens}}
	prepare := e.prepareRun
	if m.folder != nil {
		prepare = e.prepareFolder
	}
	return e, prepare()
}

// prepareRun sets what vectors of a run need.
func (e *Embedder) prepareRun() (err error) {
	body := e.of.body
	config := body.Config()
	e.maxTokens, e.window = cmp.Or(e.options.MaxTokens, DefaultTokens), config.TrainedContext()
	if n := config.LearnedPositions(); config.Positions == model.Learned && (n < e.maxTokens || e.options.MaxTokens == 0) {
		e.maxTokens = n
	}
	e.free = make(chan *model.Model, par.Threads())
	for range cap(e.free) {
		e.free <- body.Share()
	}
	one := <-e.free
	_, e.width, err = one.Vectors(context.Background(), nil, &model.Batch{B: 1, N: 1, Tokens: []int32{0}})
	e.free <- one
	return err
}

// prepareFolder sets what vectors of a published model need. One word tells the width and the bound.
func (e *Embedder) prepareFolder() (err error) {
	folder := e.of.folder
	if e.prompts, err = folder.Prompts(); err != nil {
		return err
	}
	v, err := folder.EmbedWith(context.Background(), []string{"a"}, e.options)
	if err != nil {
		return err
	}
	if e.width, e.maxTokens = len(v.Rows[0]), v.MaxTokens; e.maxTokens == 0 {
		// A model without learned positions takes any number: its context bounds the time.
		e.maxTokens = DefaultTokens
		if context := folder.Config().Context; context > 0 {
			e.maxTokens = min(e.maxTokens, context)
		}
		e.options.MaxTokens = e.maxTokens
	}
	e.window = e.maxTokens
	e.readsBlank = len(folder.Tokenizer().Encode("").IDs) > 0
	return nil
}

// Shorten keeps only the first elements of vectors, as many as dimensions says, divided by their
// length; 0 keeps all. It returns an error if dimensions is negative or more than Width.
func (e *Embedder) Shorten(dimensions int) error {
	if dimensions < 0 || dimensions > e.width {
		return fmt.Errorf("dimensions: %d, the vectors of the model have %d", dimensions, e.width)
	}
	e.short = dimensions
	return nil
}

// Width returns the number of elements of a vector.
func (e *Embedder) Width() int { return cmp.Or(e.short, e.width) }

// MaxTokens returns the number of tokens to which texts are cut.
func (e *Embedder) MaxTokens() int { return e.maxTokens }

// Window returns the number of tokens that are read at once.
func (e *Embedder) Window() int { return e.window }

// Prompts returns the prompts of the model's folder. A run has none.
func (e *Embedder) Prompts() *published.Prompts { return e.prompts }

// Embed returns the vectors of texts, each with the prompt of the given name before it. nil: the
// folder's default; an empty name: no prompt. Embed returns a *TextError if a text has no tokens or
// an unknown character, and an error if a vector is not finite or ctx ends.
func (e *Embedder) Embed(ctx context.Context, prompt *string, texts []string) ([]Embedding, error) {
	list, err := e.embed(ctx, prompt, texts)
	for i := range list {
		if e.short > 0 {
			list[i].Values = published.ShortenVector(list[i].Values, e.short)
		}
	}
	return list, err
}

// embed is Embed of whole vectors.
func (e *Embedder) embed(ctx context.Context, prompt *string, texts []string) ([]Embedding, error) {
	if prompt != nil {
		if err := e.prompts.Check(*prompt); err != nil {
			return nil, fault.Mark(fault.ErrInput, err)
		}
	}
	list := make([]Embedding, len(texts))
	if e.of.folder != nil {
		return list, e.of.findText(ctx, texts, e.embedPublished(ctx, list, prompt, texts))
	}
	errs := make([]error, len(texts))
	par.RunParts(len(texts), func(i int) {
		if errs[i] = ctx.Err(); errs[i] == nil {
			errs[i] = e.embedText(ctx, &list[i], texts[i])
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i, err := range errs {
		if err != nil {
			return nil, &TextError{Text: i, Err: err}
		}
	}
	return list, nil
}

// embedPublished sets list to the vectors of texts by a published model.
func (e *Embedder) embedPublished(ctx context.Context, list []Embedding, prompt *string, texts []string) error {
	var full []string // texts with tokens
	var at []int
	for i, text := range texts {
		if text != "" && (e.readsBlank || strings.TrimSpace(text) != "") {
			full, at = append(full, text), append(at, i)
		}
	}
	if len(full) == 0 {
		return nil
	}
	o := e.options
	o.Prompt = prompt
	v, err := e.of.folder.EmbedWith(ctx, full, o)
	if err != nil {
		return err
	}
	for i, row := range v.Rows {
		x := Embedding{Values: row, Tokens: v.Tokens[i]}
		if v.MaxTokens > 0 && x.Tokens > v.MaxTokens {
			x.Tokens, x.IsTruncated = v.MaxTokens, true
		}
		list[at[i]] = x
	}
	return nil
}

// keptRows is the number of rows from which the memory of a pass is left to the garbage collector.
const keptRows = 1 << 12

// embedText sets x to the vector of text by a run: the mean of its windows, by their tokens.
func (e *Embedder) embedText(ctx context.Context, x *Embedding, text string) error {
	tokens, err := e.of.vocab.Encode(nil, []byte(text))
	if err != nil || len(tokens) == 0 {
		return err
	}
	if len(tokens) > e.maxTokens {
		tokens, x.IsTruncated = tokens[:e.maxTokens], true
	}
	x.Tokens, x.InWindows = len(tokens), len(tokens) > e.window
	m := <-e.free
	defer func() {
		if min(len(tokens), e.window) > keptRows {
			m = e.of.body.Share()
		}
		e.free <- m
	}()
	var vector []float32
	sum := make([]float64, e.width)
	for window := range slices.Chunk(tokens, e.window) {
		if vector, _, err = m.Vectors(ctx, vector[:0], &model.Batch{B: 1, N: len(window), Tokens: window}); err != nil {
			return err
		}
		for i, v := range vector {
			sum[i] += float64(v) * float64(len(window))
		}
	}
	if x.InWindows {
		for i := range vector {
			vector[i] = float32(sum[i] / float64(len(tokens)))
		}
	}
	for i, v := range vector {
		if v-v != 0 {
			return fmt.Errorf("vector: element %d is %v", i, v)
		}
	}
	x.Values = slices.Clone(vector)
	return nil
}

// findText returns a *TextError of the first text without tokens, which explains err. It returns
// err if err is nil, all texts have tokens, or ctx has ended.
func (m *Model) findText(ctx context.Context, texts []string, err error) error {
	for i, text := range texts {
		if err == nil || ctx.Err() != nil {
			break
		}
		ids, refused := m.Encode(text, true)
		if refused == nil && len(ids) == 0 {
			refused = fault.Mark(fault.ErrInput, errors.New("has no tokens"))
		}
		if refused != nil {
			return &TextError{Text: i, Err: refused}
		}
	}
	return err
}
