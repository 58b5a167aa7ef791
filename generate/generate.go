package generate

import (
	"context"
	"errors"
	"slices"

	"github.com/farfield-ml/farfield/model"
)

// Generator is a text in progress. Its methods must not run at the same time.
type Generator struct {
	model   *model.Model[float32]
	session *model.Session[float32]
	sampler *Sampler
	pending []int32 // that the session has not seen yet
	drawn   uint64
}

// New returns a generator of an empty text. The model is a decoder.
func New(m *model.Model[float32], s Sampling) (*Generator, error) {
	if m == nil {
		return nil, errors.New("model: it is nil")
	}
	session, err := m.NewSession(1)
	if err != nil {
		return nil, err
	}
	g := &Generator{model: m, session: session}
	return g, g.SetSampling(s)
}

// SetSampling changes how the tokens that follow are drawn.
func (g *Generator) SetSampling(s Sampling) (err error) {
	g.sampler, err = NewSampler(s, g.model.Config().Vocab)
	return err
}

// Sampling returns how tokens are drawn.
func (g *Generator) Sampling() Sampling { return g.sampler.settings }

// Append adds tokens to the text: a prompt, or words put into the model's mouth.
func (g *Generator) Append(tokens ...int32) { g.pending = append(g.pending, tokens...) }

// prefillTokens is the number of tokens between two looks at a context.
const prefillTokens = 256

// Prefill brings appended tokens into the state, all but the last 256 at most. Generate
// does so, too; Prefill lets a long prompt be read piece by piece. It returns the error
// of ctx, after which the tokens that are left can be brought in later.
func (g *Generator) Prefill(ctx context.Context) error {
	for len(g.pending) > prefillTokens {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := g.session.Step(g.pending[:prefillTokens], prefillTokens); err != nil {
			return err
		}
		g.pending = g.pending[prefillTokens:]
	}
	return nil
}

// Generate draws n tokens and calls emit with each as soon as it is there. An
// error of emit or of ctx ends it; the text then has the tokens emitted so far.
// Token i of a text is drawn with number i of the seed, so that a text does not
// depend on how many calls it took.
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
		logits, err := g.session.Step(g.pending, len(g.pending))
		if err != nil {
			return err
		}
		t, err := g.sampler.DrawToken(logits, g.drawn)
		if err != nil {
			return err
		}
		g.drawn++
		g.pending = append(g.pending[:0], t)
		if err := emit(t); err != nil {
			return err
		}
	}
	return nil
}

// Tokens returns the length of the text.
func (g *Generator) Tokens() int64 { return g.session.Tokens() + int64(len(g.pending)) }

// Bytes returns the memory in which the model remembers the text.
func (g *Generator) Bytes() int64 { return g.session.Bytes() }

// Clone returns a generator that continues the same text on its own.
func (g *Generator) Clone() (*Generator, error) {
	c := &Generator{model: g.model, session: g.session.Clone(), pending: slices.Clone(g.pending), drawn: g.drawn}
	return c, c.SetSampling(g.sampler.settings)
}
