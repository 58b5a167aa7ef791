package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/model"
)

// Generator is a text in progress. Its methods must not run concurrently.
//
// A model predicts badly beyond the number of tokens that it was trained with. The session of a
// longer text therefore has a window of the text's last tokens (SetWindow). A full window goes on
// with its last half, so that a token is predicted from half a window at least.
type Generator struct {
	model       *model.Model
	session     *model.Session
	sampler     *Sampler
	pending     []int32 // tokens not yet in the session
	tokensDrawn uint64

	window  int     // tokens of a window; 0: the session has the whole text
	begin   []int32 // tokens before each window but the first, which begins the text
	history []int32 // tokens of the text in the window
	dropped int64   // tokens of the text before the window

	failure error // after which the session does not have the text; nil: it has
}

var errNoModel = errors.New("model: it is nil")

// New returns a generator of an empty text, with windows of the trained context unless the model
// learned a table of positions, whose end is an error. It returns an error if m is nil, no decoder
// or without an output for each token, or if the settings are invalid.
func New(m *model.Model, s Sampling) (*Generator, error) {
	if m == nil {
		return nil, errNoModel
	}
	session, err := m.NewSession(1)
	g, err := startGenerator(m, session, err, s)
	if err != nil || m.Config().Positions == model.Learned {
		return g, err
	}
	return g, g.SetWindow(m.Config().ContextWindow())
}

// SetWindow sets the number of tokens that the session has at most, and the tokens before each
// window but the first: those with which a tokenizer begins a text, if the text begins with them. With 0
// the session has a text of any length; few models predict well beyond their trained context. SetWindow
// returns an error, and changes nothing, if the session has tokens, or tokens is negative, has no
// room behind begin, or is beyond learned positions.
func (g *Generator) SetWindow(tokens int, begin ...int32) error {
	if n := g.session.Tokens(); n > 0 {
		return fmt.Errorf("window: the session has %d tokens, it needs to be empty", n)
	}
	if err := checkWindow(g.model.Config(), tokens, begin); err != nil {
		return err
	}
	g.window, g.begin = tokens, slices.Clone(begin)
	return nil
}

// checkWindow returns an error if windows of a number of tokens behind begin do not fit a model.
func checkWindow(c model.Config, tokens int, begin []int32) error {
	switch n := c.LearnedPositions(); {
	case tokens != 0 && tokens <= len(begin):
		return fmt.Errorf("window: is %d tokens, %d tokens begin it", tokens, len(begin))
	case c.Positions == model.Learned && tokens > n:
		return fmt.Errorf("window: is %d tokens, the model learned %d positions", tokens, n)
	}
	for i, id := range begin {
		if id < 0 || int(id) >= c.Vocab {
			return fmt.Errorf("window: token %d that begins it is %d, the model has %d", i, id, c.Vocab)
		}
	}
	return nil
}

// Window returns the number of tokens that the session has at most; 0: any number.
func (g *Generator) Window() int { return g.window }

// NewTarget returns a generator of an empty target of the tokens source. It returns an error
// if m is nil, no encoder-decoder or without an output for each token, the source does not
// fit it, or the settings are invalid.
func NewTarget(m *model.Model, source []int32, s Sampling) (*Generator, error) {
	if m == nil {
		return nil, errNoModel
	}
	session, err := m.NewSourceSession(source, nil, 1)
	return startGenerator(m, session, err, s)
}

// startGenerator returns a generator of a session, unless err is the session's error.
func startGenerator(m *model.Model, session *model.Session, err error, s Sampling) (*Generator, error) {
	if err != nil {
		return nil, err
	}
	if c := m.Config(); c.Outputs != 0 && c.Outputs != c.Vocab {
		return nil, fmt.Errorf("model: has %d outputs, needs one for each of %d tokens", c.Outputs, c.Vocab)
	}
	g := &Generator{model: m, session: session}
	return g, g.SetSampling(s)
}

// SetSampling changes the sampling of the tokens that follow. It returns an error, and
// changes nothing, if the settings are invalid.
func (g *Generator) SetSampling(s Sampling) error {
	sampler, err := NewSampler(s, g.model.Config().Vocab)
	if err == nil {
		g.sampler = sampler
	}
	return err
}

// Sampling returns the sampling settings.
func (g *Generator) Sampling() Sampling { return g.sampler.settings }

// Append adds tokens to the text, such as a prompt. A token beyond the vocabulary is an
// error of the Prefill or Generate that reads it, and of those that follow.
func (g *Generator) Append(tokens ...int32) { g.pending = append(g.pending, tokens...) }

// prefillTokens is the number of tokens between two checks of a context.
const prefillTokens = 256

// Prefill absorbs appended tokens into the state, except the last 256 at most. Generate
// also calls it. Prefill reads a long prompt piece by piece. It returns the error of ctx;
// a later call absorbs the remaining tokens. It returns an error if numbers of the text are
// not finite.
func (g *Generator) Prefill(ctx context.Context) error {
	if g.failure != nil {
		return g.failure
	}
	isLong := len(g.pending) > prefillTokens
	for len(g.pending) > prefillTokens {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := g.step(prefillTokens); err != nil {
			return err
		}
		g.pending = g.pending[prefillTokens:]
	}
	if isLong {
		g.pending = slices.Clone(g.pending) // without the memory of the prompt
	}
	return nil
}

// AppendAll adds tokens to the text and absorbs them as Prefill does. After an error the text is as it was:
// tokens that need a Prefill are read by a clone, which takes the place of g.
func (g *Generator) AppendAll(ctx context.Context, tokens ...int32) error {
	if g.failure != nil {
		return g.failure
	}
	if len(g.pending)+len(tokens) <= prefillTokens {
		g.Append(tokens...)
		return nil
	}
	c, err := g.Clone()
	if err != nil {
		return err
	}
	c.Append(tokens...)
	if err := c.Prefill(ctx); err != nil {
		return err
	}
	*g = *c
	return nil
}

// step adds the first n pending tokens to the session and returns the logits after them.
// Refused tokens leave the session as it is. No context ends a step, so that the session has the
// tokens of g. After numbers that are not finite the session
// has some of the tokens, and the text ends.
func (g *Generator) step(n int) ([]float32, error) {
	tokens := g.pending[:n]
	first := g.windowStart(g.dropped + int64(len(g.history)+n))
	if first == g.dropped { // also without windows
		logits, err := g.session.Step(context.Background(), tokens, n)
		if errors.Is(err, attention.ErrNonFinite) {
			g.failure = err
		}
		if err == nil && g.window > 0 {
			g.history = append(g.history, tokens...)
		}
		return logits, err
	}
	// What is before the window is not read.
	for i, id := range tokens {
		if vocab := g.model.Config().Vocab; id < 0 || int(id) >= vocab {
			return nil, fmt.Errorf("token %d is %d, the model has %d", i, id, vocab)
		}
	}
	text := append(g.history, tokens...)
	g.history, g.dropped = append(g.history[:0], text[first-g.dropped:]...), first
	g.session.Reset()
	window := slices.Concat(g.begin, g.history)
	logits, err := g.session.Step(context.Background(), window, len(window))
	if err != nil {
		g.failure = err // the session does not have the text
	}
	return logits, err
}

// windowStart returns the place in a text of n tokens at which its window begins. It depends on n
// alone, and not on the cuts of the text into calls.
func (g *Generator) windowStart(n int64) int64 {
	behind := n - int64(g.window) - 1 // the tokens behind the one that the first window has no room for
	if g.window == 0 || behind < 0 {
		return 0
	}
	room := g.window - len(g.begin)
	kept := room / 2
	stride := int64(room - kept)
	return int64(g.window-kept) + behind/stride*stride
}

// Generate draws n tokens and calls emit with each one at once. Token i of a text uses
// random number i of the seed, so a text does not depend on the number of calls.
//
// It returns an error if the text is empty, or if emit or ctx returns one. The text then
// has the tokens emitted so far. It returns an error if a number of the text is not finite.
// The text is then lost: Prefill, Generate and Save return the error.
func (g *Generator) Generate(ctx context.Context, n int, emit func(token int32) error) error {
	if len(g.pending) == 0 && n > 0 {
		return errors.New("prompt: is empty, there is nothing to continue")
	}
	for range n {
		if err := g.Prefill(ctx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		logits, err := g.step(len(g.pending))
		if err != nil {
			return err
		}
		t, err := g.sampler.DrawToken(logits, g.tokensDrawn)
		if err != nil {
			g.failure = err // the session has the pending tokens
			return err
		}
		g.tokensDrawn++
		g.pending = append(g.pending[:0], t)
		if err := emit(t); err != nil {
			return err
		}
	}
	return nil
}

// Tokens returns the length of the text.
func (g *Generator) Tokens() int64 {
	n := int64(len(g.pending))
	if g.window > 0 {
		return n + g.dropped + int64(len(g.history))
	}
	return n + g.session.Tokens()
}

// Bytes returns the memory of the recurrent state or KV cache.
func (g *Generator) Bytes() int64 { return g.session.Bytes() }

// Clone returns an independent generator that continues the same text. Its error is
// always nil.
func (g *Generator) Clone() (*Generator, error) {
	c := &Generator{model: g.model, session: g.session.Clone(), pending: slices.Clone(g.pending), tokensDrawn: g.tokensDrawn, failure: g.failure,
		window: g.window, begin: g.begin, history: slices.Clone(g.history), dropped: g.dropped}
	return c, c.SetSampling(g.sampler.settings)
}
