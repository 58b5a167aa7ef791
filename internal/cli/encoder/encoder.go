// Package encoder makes vectors of texts with the model of a run or of a folder.
package encoder

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/records"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/pretrained"
)

// Encoder makes vectors of texts. It is safe for concurrent use.
type Encoder interface {
	// Width returns the numbers of a vector.
	Width() int
	// MaxTokens returns the tokens of a text that are read.
	MaxTokens() int
	// Window returns the tokens that are read at once.
	Window() int
	// Prompts returns the prompts that the model's folder puts before texts. A run has none.
	Prompts() *pretrained.Prompts
	// Encode returns the vectors of texts behind the prompt of a name, which Prompts has. nil:
	// behind the folder's default; an empty name: without a prompt. Encode returns an error if
	// a text has an unknown character, a vector is not finite, or ctx ends.
	Encode(ctx context.Context, prompt *string, texts []string) ([]Encoding, error)
}

// Encoding is the vector of a text.
type Encoding struct {
	Vector      []float32 // [width]; nil: the text is empty
	Tokens      int       // of the text that are read
	IsTruncated bool      // the text has more tokens than are read
	InWindows   bool      // the vector is the mean of windows of the trained context
}

// Lengths counts long texts.
type Lengths struct {
	Truncated int // of which tokens are not read
	InWindows int // whose vectors are means of windows
}

// Add counts a text.
func (l *Lengths) Add(x Encoding) {
	if x.IsTruncated {
		l.Truncated++
	}
	if x.InWindows {
		l.InWindows++
	}
}

// PrintLengths says how many texts of an encoder are long.
func PrintLengths(w io.Writer, e Encoder, l Lengths) {
	if l.Truncated > 0 {
		fmt.Fprintf(w, "%s longer than %d tokens: vectors are of %[2]d tokens of each\n", display.Pluralise(l.Truncated, "text"), e.MaxTokens())
	}
	if l.InWindows > 0 {
		fmt.Fprintf(w, "%s longer than the trained context of %d tokens: vectors are means of windows of it\n", display.Pluralise(l.InWindows, "text"), e.Window())
	}
}

// DefaultTokens bounds the tokens of a text where the model does not.
const DefaultTokens = 1 << 16

// Open opens the model at path with another attention function (x; nil: its own), which reads at most maxTokens tokens of a text; 0: all
// that the model takes, up to DefaultTokens. It returns an error if there is no such
// model or it takes fewer tokens.
func Open(path string, maxTokens int, x *model.Exchange) (Encoder, error) {
	t, err := runs.OpenExchanged(path, x)
	if err != nil {
		return nil, err
	}
	return New(t, maxTokens)
}

// New returns the encoder of an open model, as Open does. It returns an error if the model
// makes no vectors of texts or takes fewer tokens.
func New(t *runs.TextModel, maxTokens int) (Encoder, error) {
	if p := t.Published(); p != nil {
		return newFolder(p, maxTokens)
	}
	vocab, err := t.Vocabulary()
	if err != nil {
		return nil, err
	}
	m := t.Model()
	r := &runEncoder{vocab: vocab, maxTokens: DefaultTokens, window: m.Config().TrainedContext(), model: m, models: make(chan *model.Model, par.Threads())}
	if config := m.Config(); config.Positions == model.Learned {
		if r.maxTokens = config.LearnedPositions(); maxTokens > r.maxTokens {
			return nil, fmt.Errorf("--max-tokens: %d, the model learned %d positions", maxTokens, r.maxTokens)
		}
	}
	if maxTokens > 0 {
		r.maxTokens = maxTokens
	}
	for range cap(r.models) {
		r.models <- m.Share()
	}
	one := <-r.models
	_, r.width, err = one.Vectors(nil, &model.Batch{B: 1, N: 1, Tokens: []int32{0}})
	r.models <- one
	if err != nil {
		return nil, err
	}
	return r, nil
}

// runEncoder makes vectors with the model of a run.
type runEncoder struct {
	vocab            *token.Vocabulary
	width, maxTokens int
	window           int // tokens of the trained context
	model            *model.Model
	models           chan *model.Model // that are free; they share their weights
}

func (r *runEncoder) Width() int     { return r.width }
func (r *runEncoder) MaxTokens() int { return r.maxTokens }
func (r *runEncoder) Window() int    { return r.window }

func (r *runEncoder) Prompts() *pretrained.Prompts { return &pretrained.Prompts{} }

func (r *runEncoder) Encode(ctx context.Context, prompt *string, texts []string) ([]Encoding, error) {
	if prompt != nil {
		if err := r.Prompts().Check(*prompt); err != nil {
			return nil, err
		}
	}
	list := make([]Encoding, len(texts))
	errs := make([]error, len(texts))
	par.RunParts(len(texts), func(i int) {
		if errs[i] = ctx.Err(); errs[i] == nil {
			errs[i] = r.encodeText(&list[i], texts[i])
		}
	})
	for i, err := range errs {
		if err != nil {
			return nil, &records.TextError{Text: i, Err: err}
		}
	}
	return list, nil
}

// keptRows is the number of rows from which the memory of a pass is left to the garbage collector.
const keptRows = 1 << 12

// encodeText sets x to the vector of text: the mean of its windows, by their tokens.
func (r *runEncoder) encodeText(x *Encoding, text string) error {
	tokens, err := r.vocab.Encode(nil, []byte(text))
	if err != nil || len(tokens) == 0 {
		return err
	}
	if len(tokens) > r.maxTokens {
		tokens, x.IsTruncated = tokens[:r.maxTokens], true
	}
	x.Tokens, x.InWindows = len(tokens), len(tokens) > r.window
	m := <-r.models
	defer func() {
		if min(len(tokens), r.window) > keptRows {
			m = r.model.Share()
		}
		r.models <- m
	}()
	var vector []float32
	sum := make([]float64, r.width)
	for window := range slices.Chunk(tokens, r.window) {
		if vector, _, err = m.Vectors(vector[:0], &model.Batch{B: 1, N: len(window), Tokens: window}); err != nil {
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
	x.Vector = slices.Clone(vector)
	return checkFinite(x.Vector)
}

// checkFinite returns an error that names the first number that is not finite.
func checkFinite(vector []float32) error {
	for i, v := range vector {
		if v-v != 0 {
			return fmt.Errorf("vector: element %d is %v", i, v)
		}
	}
	return nil
}
