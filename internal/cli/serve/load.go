package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/chat"
	"github.com/farfield-ml/farfield/internal/cli/encoder"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/serve"
	"github.com/farfield-ml/farfield/internal/serve/web"
	"github.com/farfield-ml/farfield/internal/sessions"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/pretrained"
	"github.com/farfield-ml/farfield/train"
)

// opened holds the parts of a model that are closed at the end.
type opened struct {
	manager *sessions.Manager // nil: the model has no sessions
	memory  int64             // of states and prefixes; 0: the model has no sessions
	text    *runs.TextModel   // nil: a classifier with the tokens of its task
}

// close saves the states. It returns an error if they cannot be saved.
func (m *opened) close(ctx context.Context) error {
	if m.manager == nil {
		return nil
	}
	return m.manager.Close(ctx)
}

// open opens the model and adds its parts to o. It returns an error if the model does
// nothing that is served.
func (c *Command) open(e *env.Env, o *serve.Options) (*opened, error) {
	exchange, err := c.Request()
	if err != nil {
		return nil, err
	}
	path, err := runs.ResolveModel(c.Model)
	if err != nil {
		return nil, err
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	o.Name, o.Page = filepath.Base(whole), web.Page{}
	if !pretrained.IsFolder(path) {
		if p, err := train.OpenPredictorWith(path, exchange); err == nil && p.Kind() == task.Class && p.NeedsLines() {
			o.Classifier = newClassifier(p)
		}
	}
	m := &opened{}
	text, err := runs.OpenExchanged(path, exchange)
	if err != nil && o.Classifier != nil && c.Store == "" {
		// A classifier has the tokens of its task in place of a vocabulary.
		known, _, err := train.LoadModel(path)
		if err != nil {
			return nil, err
		}
		if known, err = runs.ExchangeModel(path, known, exchange); err != nil {
			return nil, err
		}
		o.ModelBytes = 4 * int64(known.Config().Params())
		o.Card, err = describeModel("", known.Config())
		return m, err
	}
	if err != nil {
		return nil, err
	}
	m.text = text
	o.Tokens, o.ModelBytes = text, 4*int64(text.Config().Params())
	if o.Card, err = describeModel(text.Family(), text.Config()); err != nil {
		return nil, err
	}
	encode, err := encoder.New(text, 0)
	if err == nil {
		o.Embedder = embedder{encode, text}
	}
	if published := text.Published(); published != nil {
		if kind := published.ClassKind(); kind == pretrained.SingleLabel || kind == pretrained.MultiLabel {
			o.Classifier = publishedClassifier{published, text}
		}
	}
	if text.Config().Kind != model.EncoderDecoder && len(text.AttentionNames()) > 0 {
		o.Mapper = mapper{text}
	}
	if text.CheckNextTokens() == nil && text.Config().HasSessions() {
		if m.memory, err = flags.ParseBytes(c.Memory); err != nil {
			return nil, err
		}
		o.ModelBytes += 4 * countPacked(text.Config())
		for _, p := range text.Model().Params().All() {
			p.Grad = nil // no gradient is computed
		}
		if m.manager, err = c.openSessions(e, text, m.memory); err != nil {
			return nil, err
		}
		o.Sessions, o.EndTokens = m.manager, text.EndTokens()
		if source := text.ChatTemplate(); source != "" {
			o.Chat = &serve.Chat{SpecialTokens: text.SpecialTokens()}
			o.Chat.Template, o.Chat.Refused = chat.Parse(source)
		}
	}
	if o.Sessions == nil && c.Store != "" {
		return nil, errors.New("--store: the model has no sessions")
	}
	return m, nil
}

// countPacked returns the number of weights in the packed copy of a decoder. Untied embeddings and
// learned positions are read by row, not packed; norms and biases are few and counted.
func countPacked(c model.Config) int64 {
	n := int64(c.Params())
	if !c.Tied {
		n -= int64(c.Vocab) * int64(c.Width)
	}
	if c.Positions == model.Learned {
		n -= int64(cmp.Or(c.PositionTable, c.Context)) * int64(c.Width)
	}
	return n
}

// openSessions opens the sessions of a decoder. What they give up to go on is told in the notes of e.
func (c *Command) openSessions(e *env.Env, text *runs.TextModel, memory int64) (*sessions.Manager, error) {
	disk, err := flags.ParseBytes(c.Disk)
	if err != nil {
		return nil, err
	}
	// The weights are packed while they are hashed. Sessions and passes share the packed copy.
	var identity string
	hashed := make(chan struct{})
	go func() {
		defer close(hashed)
		identity, err = text.Identity()
	}()
	m := text.Model()
	m.Freeze()
	if <-hashed; err != nil {
		return nil, err
	}
	return sessions.Open(e.Context, sessions.Options{
		Model: m, Identity: identity, EndTokens: text.EndTokens(),
		Store: c.Store, Memory: memory, Disk: disk,
		MaxSessions: int(c.MaxSessions), MaxTokens: int64(c.SessionTokens), MaxQueue: int(c.Queue),
		SessionTTL: max(c.SessionTTL, 1), // 0 is the default of Options, and of the flag any time
		Notify:     func(line string) { fmt.Fprintln(e.Notes(), line) },
	})
}

// describeModel returns the card of a model.
func describeModel(family string, c model.Config) (serve.Card, error) {
	card := serve.Card{
		Family: family, Kind: c.Kind, Layers: c.Layers, Width: c.Width, Heads: c.Heads, HeadWidth: c.HeadWidth,
		Vocab: c.Vocab, State: "grows", TrainedContext: c.TrainedContext(),
	}
	if card.HeadWidth == 0 && c.Heads > 0 {
		card.HeadWidth = c.Width / c.Heads
	}
	kv := c.KVHeads
	if kv == 0 {
		kv = c.Heads
	}
	card.KVBytesPerToken = 2 * 4 * int64(c.Layers) * int64(kv) * int64(card.HeadWidth)
	if c.Positions == model.Learned {
		card.Context = c.LearnedPositions()
	}
	isFixed, err := c.HasFixedState()
	if err != nil {
		return card, err
	}
	if isFixed {
		card.State = "fixed"
	}
	return card, nil
}

// embedder makes vectors with an encoder.
type embedder struct {
	encoder.Encoder
	tokens serve.Tokens
}

// Prompts returns the names of the folder's prompts.
func (x embedder) Prompts() []string { return x.Encoder.Prompts().Names() }

// Embed returns the vectors of texts behind a prompt. It returns a *serve.TextError if a text
// cannot be encoded, and an error if a vector is not finite or ctx ends.
func (x embedder) Embed(ctx context.Context, prompt *string, texts []string) ([]serve.Vector, error) {
	list, err := x.Encode(ctx, prompt, texts)
	if err != nil {
		return nil, findText(ctx, x.tokens, texts, err)
	}
	vectors := make([]serve.Vector, len(list))
	for i, v := range list {
		vectors[i] = serve.Vector{Values: v.Vector, Tokens: v.Tokens, IsTruncated: v.IsTruncated}
	}
	return vectors, nil
}

// findText returns the *serve.TextError of the first text without tokens, which explains err.
// It returns err if all texts have tokens or ctx has ended.
func findText(ctx context.Context, tokens serve.Tokens, texts []string, err error) error {
	for i, text := range texts {
		if ctx.Err() != nil {
			break
		}
		ids, refused := tokens.Encode(text, true)
		if refused == nil && len(ids) == 0 {
			refused = errors.New("has no tokens")
		}
		if refused != nil {
			return &serve.TextError{Text: i, Err: refused}
		}
	}
	return err
}

// classifier predicts classes with the model of a run.
type classifier struct {
	free chan *train.Predictor
	list []string
}

// newClassifier returns a classifier of p.
func newClassifier(p *train.Predictor) *classifier {
	x := &classifier{make(chan *train.Predictor, 1), p.Classes()}
	x.free <- p
	return x
}

// Classes returns the names of the classes.
func (x *classifier) Classes() []string { return x.list }

// Classify returns the predictions for texts. It returns a *serve.TextError if a text does not
// fit the task, and an error if an output is not finite or ctx ends.
func (x *classifier) Classify(ctx context.Context, texts []string) ([]serve.Class, error) {
	p := <-x.free
	defer func() { x.free <- p }()
	list := make([]serve.Class, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := p.Predict(ctx, []byte(text))
		var line *train.LineError
		if errors.As(err, &line) {
			return nil, &serve.TextError{Text: i, Err: err}
		}
		if err != nil {
			return nil, err
		}
		list[i] = serve.Class{Class: r.Class, Probabilities: append([]float64{}, r.Probabilities...), Tokens: r.Tokens, IsTruncated: r.IsTruncated}
	}
	return list, nil
}

// publishedClassifier predicts classes with a published model.
type publishedClassifier struct {
	*pretrained.Model
	tokens serve.Tokens
}

// Classes returns the names of the classes.
func (x publishedClassifier) Classes() []string { return x.Labels() }

// Classify returns the predictions for texts. It returns a *serve.TextError if a text has no
// tokens, and an error if an output is not finite or ctx ends.
func (x publishedClassifier) Classify(ctx context.Context, texts []string) ([]serve.Class, error) {
	scores, err := x.Model.Classify(ctx, texts)
	if err != nil {
		return nil, findText(ctx, x.tokens, texts, err)
	}
	list := make([]serve.Class, len(texts))
	for i := range scores {
		class, probabilities := x.Probabilities(&scores[i])
		list[i] = serve.Class{Class: class, Probabilities: probabilities, Tokens: scores[i].Tokens, IsTruncated: scores[i].IsTruncated}
	}
	return list, nil
}

// mapper makes attention maps of a model of texts.
type mapper struct{ text *runs.TextModel }

// Map returns the maps of a layer. It returns an error if the layer does not exist, ids do
// not fit the model, or ctx ends.
func (x mapper) Map(ctx context.Context, ids []int32, layer int) (*serve.Maps, error) {
	m, err := x.text.MapLayer(ctx, ids, layer)
	if err != nil {
		return nil, err
	}
	return &serve.Maps{Layers: m.Layers, Heads: m.Heads, Window: m.Window, Weights: m.Weights}, nil
}

// discardLog returns a log of no lines: errors of connections are no results.
func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }
