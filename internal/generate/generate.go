package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/model"
)

// Generator is a text in progress. Its methods must not be called concurrently.
//
// A model predicts badly beyond the number of tokens that it was trained with. A longer text is
// therefore read in windows (SetWindow): the session holds only the last tokens. When a window is
// full, a new one begins with its last half, so that each token is predicted from at least half a
// window.
type Generator struct {
	model       *model.Model
	session     *model.Session
	sampler     *Sampler
	pending     []int32 // tokens not yet in the session
	tokensDrawn uint64

	window  int     // most tokens in the session; 0: the session has the whole text
	begin   []int32 // tokens that begin each window but the first, which begins the text
	history []int32 // tokens of the text in the current window
	dropped int64   // number of tokens of the text before the window

	failure error // error after which the session no longer has the text; nil: it has
}

var errNoModel = errors.New("model: it is nil")

// New returns a generator of an empty text. It reads windows of the trained context, unless the
// model learned a table of positions: such a text ends with an error at the end of the table. New
// returns an error if m is nil, no decoder or without an output for each token, or if the settings
// are invalid.
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

// SetWindow sets the largest number of tokens in the session, and the tokens that begin each window
// but the first: those with which the tokenizer begins a text, if the text has them. With 0 the
// session has a text of any length, but few models predict well beyond their trained context.
// SetWindow returns an error, and changes nothing, if the session has tokens already, or if tokens
// is negative, leaves no room after begin, or exceeds the learned positions.
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

// checkWindow returns an error if windows of a number of tokens after begin do not fit a model.
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

// Window returns the largest number of tokens in the session; 0: no limit.
func (g *Generator) Window() int { return g.window }

// NewTarget returns a generator of an empty target for the tokens source. It returns an error if m
// is nil, no encoder-decoder or without an output for each token, if the source does not fit it, or
// if the settings are invalid.
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

// SetSampling changes how the following tokens are drawn. It returns an error, and changes nothing,
// if the settings are invalid.
func (g *Generator) SetSampling(s Sampling) error {
	sampler, err := NewSampler(s, g.model.Config().Vocab)
	if err == nil {
		g.sampler = sampler
	}
	return err
}

// Sampling returns the sampling settings.
func (g *Generator) Sampling() Sampling { return g.sampler.settings }

// Append adds tokens, such as a prompt, to the text. They are read later: a token outside the
// vocabulary is an error of the Prefill or Generate that reads it, and of all later calls.
func (g *Generator) Append(tokens ...int32) { g.pending = append(g.pending, tokens...) }

// prefillTokens is the number of tokens between two checks of a context.
const prefillTokens = 256

// Prefill reads appended tokens into the state, piece by piece, except for at most the last 256.
// Generate calls it, too. It returns the error of ctx if ctx ends; a later call reads the remaining
// tokens. It returns an error if numbers of the text are not finite.
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

// AppendAll adds tokens to the text and reads them as Prefill does. If it returns an error, the
// text is as before: tokens that need a Prefill are read by a clone, which then replaces g.
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

// step adds the first n pending tokens to the session and returns the logits after them. If tokens
// are refused, the session is as before. A step does not end with a context, so that g and its
// session have the same tokens. If numbers are not finite, the session has some of the tokens, and
// the text ends.
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

// Generate draws n tokens and calls emit with each at once. Token i of a text uses random number i
// of the seed, so the text does not depend on how it is divided into calls. Generate returns an
// error if the text is empty, or if emit or ctx returns one; the text then has the tokens that were
// emitted. It also returns an error if a number of the text is not finite. Then the text is lost,
// and Prefill, Generate and Save return this error, too.
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

// Tokens returns the number of tokens in the text.
func (g *Generator) Tokens() int64 {
	n := int64(len(g.pending))
	if g.window > 0 {
		return n + g.dropped + int64(len(g.history))
	}
	return n + g.session.Tokens()
}

// Bytes returns the size of the recurrent state or KV cache.
func (g *Generator) Bytes() int64 { return g.session.Bytes() }

// Clone returns a copy of g, which continues the text independently. Its error is always nil.
func (g *Generator) Clone() (*Generator, error) {
	c := &Generator{model: g.model, session: g.session.Clone(), pending: slices.Clone(g.pending), tokensDrawn: g.tokensDrawn, failure: g.failure,
		window: g.window, begin: g.begin, history: slices.Clone(g.history), dropped: g.dropped}
	return c, c.SetSampling(g.sampler.settings)
}
