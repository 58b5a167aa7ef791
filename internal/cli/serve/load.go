package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/chat"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/serve"
	"github.com/farfield-ml/farfield/internal/serve/web"
	"github.com/farfield-ml/farfield/internal/sessions"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
)

// opened is a model with what is closed at the end.
type opened struct {
	*inference.Model
	manager *sessions.Manager // nil: the model has no sessions
	memory  int64             // of states and prefixes; 0: the model has no sessions
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
	options, err := c.Chosen()
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
	m := &opened{}
	if m.Model, err = inference.Open(path, options); err != nil {
		return nil, err
	}
	if p, err := m.Predictor(); err == nil && p.Kind == task.Class && p.NeedsLines {
		o.Classifier = p
	}
	// A classifier of a run may have the tokens of its task in place of a vocabulary.
	if err := m.CheckTexts(); err != nil && (o.Classifier == nil || c.Store != "" || m.Published() != nil) {
		return nil, err
	}
	config := m.Config()
	o.ModelBytes = m.Model.Model().WeightBytes()
	family := m.Family()
	if _, err := m.Vocabulary(); err == nil || m.Published() != nil {
		o.Tokens = m
	} else {
		family = ""
	}
	if o.Card, err = describeModel(family, config); err != nil || o.Tokens == nil {
		return m, err
	}
	o.Card.Precision = options.Precision.String()
	if x := m.Calibration(); x != nil {
		o.Card.KeyDistances = x.Distances
		defer watchKeys(e, m.Model, o)
	}
	if embedder, err := m.NewEmbedder(0); err == nil {
		o.Embedder = embedder
	} else if m.CheckTexts() == nil && config.Kind != model.EncoderDecoder {
		fmt.Fprintf(e.Notes(), "/v1/embeddings: %v\n", err)
	}
	if config.Kind != model.EncoderDecoder && len(m.AttentionNames()) > 0 {
		o.Mapper = m
	}
	if _, err := os.Stat(filepath.Join(path, "modules.json")); err != nil && o.Embedder != nil && m.CheckNextTokens() == nil {
		o.Card.VectorNote = "the model predicts next tokens and was not trained to make vectors: they are means of its last layer and say little about meaning"
	}
	if p := m.Published(); p != nil && p.ClassKind() == published.Regression && len(p.Labels()) == 1 && p.CheckClasses() == nil {
		o.Reranker = reranker{p, m.Model}
	}
	if m.CheckNextTokens() == nil && config.HasSessions() {
		if m.memory, err = flags.ParseBytes(c.Memory); err != nil {
			return nil, err
		}
		if options.Precision == nn.Float32 { // otherwise there is no packed copy
			o.ModelBytes += 4 * countPacked(config)
		}
		for _, p := range m.Model.Model().Params().All() {
			p.Grad = nil // no gradient is computed
		}
		if m.manager, err = c.openSessions(e, m.Model, m.memory, len(o.Keys)); err != nil {
			return nil, err
		}
		o.Sessions, o.EndTokens = m.manager, m.EndTokens()
		o.Card.KeepsSessions = c.Store != ""
		if source := m.ChatTemplate(); source != "" {
			o.Chat = &serve.Chat{SpecialTokens: m.SpecialTokens()}
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

// openSessions opens the sessions of a decoder, for a number of keys. What they give up to go on is told in the notes of e.
func (c *Command) openSessions(e *env.Env, text *inference.Model, memory int64, owners int) (*sessions.Manager, error) {
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
		Owners:     owners,
	})
}

// describeModel returns the card of a model.
func describeModel(family string, c model.Config) (serve.Card, error) {
	card := serve.Card{
		Family: family, Kind: string(c.Kind), Layers: c.Layers, Width: c.Width, Heads: c.Heads, HeadWidth: c.HeadWidth,
		Vocab: c.Vocab, State: "grows", TrainedContext: c.ContextWindow(),
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
	if len(c.LayerMechanisms) > 0 {
		for _, x := range c.Mechanisms() {
			card.Mechanisms = append(card.Mechanisms, serve.LayerMechanism(x))
		}
	}
	return card, nil
}

// reranker scores pairs with a cross-encoder.
type reranker struct {
	*published.Model
	tokens serve.Tokens
}

// Rerank returns the scores of documents for a query. It returns an *inference.TextError if a
// document cannot be encoded, and an error if a score is not finite or ctx ends.
func (x reranker) Rerank(ctx context.Context, query string, documents []string) ([]serve.Score, error) {
	pairs := make([][2]string, len(documents))
	for i, text := range documents {
		pairs[i] = [2]string{query, text}
	}
	scores, err := x.ClassifyPairs(ctx, pairs)
	for i, text := range documents {
		if err == nil || ctx.Err() != nil {
			break
		}
		if _, refused := x.tokens.Encode(text, true); refused != nil { // it explains err
			return nil, &inference.TextError{Text: i, Err: refused}
		}
	}
	if err != nil {
		return nil, err
	}
	list := make([]serve.Score, len(scores))
	for i := range scores {
		list[i] = serve.Score{Value: x.Numbers(&scores[i])[0], Tokens: scores[i].Tokens, IsTruncated: scores[i].IsTruncated}
	}
	return list, nil
}

// discardLog returns a log of no lines: errors of connections are no results.
func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }
