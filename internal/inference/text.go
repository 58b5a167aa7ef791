package inference

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/score"
	"github.com/farfield-ml/farfield/model"
)

// starts holds an empty text and an empty score, which calls clone: packed weights are made once.
type starts struct {
	text   func() (*generate.Generator, error)
	scorer func() (*score.Scorer, error)
}

// newStarts returns starts that are made when they are needed.
func newStarts(m *Model) starts {
	return starts{
		sync.OnceValues(func() (*generate.Generator, error) { return generate.New(m.Model(), generate.Sampling{}) }),
		sync.OnceValues(func() (*score.Scorer, error) { return score.New(m.Model(), m.vocab) }),
	}
}

// NewScorer returns a scorer of an empty text, which reads windows of the trained context. It
// returns an error if the model does not predict next tokens or has no vocabulary.
func (m *Model) NewScorer() (*score.Scorer, error) {
	if err := m.CheckNextTokens(); err != nil {
		return nil, err
	}
	if m.vocab == nil {
		return nil, m.vocabErr
	}
	s, err := m.starts.scorer()
	if err != nil {
		return nil, err
	}
	return s.Clone()
}

// TextOptions says how a text is continued.
type TextOptions struct {
	generate.Sampling
	// IsWhole keeps a text that is longer than the trained context in one state. Otherwise it is
	// read in windows.
	IsWhole bool
	// OfIDs means that the text is given as ids: no special tokens begin a window.
	OfIDs bool
}

// NewText returns a generator of an empty text. It returns an error if the model does not predict
// next tokens or the sampling is invalid.
func (m *Model) NewText(o TextOptions) (*generate.Generator, error) {
	if err := m.CheckNextTokens(); err != nil {
		return nil, err
	}
	empty, err := m.starts.text()
	if err != nil {
		return nil, err
	}
	g, err := empty.Clone()
	if err == nil {
		err = g.SetSampling(o.Sampling)
	}
	if err != nil || g.Window() == 0 {
		return g, err
	}
	if o.IsWhole {
		return g, g.SetWindow(0)
	}
	var begin []int32
	if m.vocab != nil && m.vocab.Tokenizer() != nil && !o.OfIDs {
		begin = m.vocab.Tokenizer().AppendStart(nil)
	}
	return g, g.SetWindow(g.Window(), begin...)
}

// NewTarget returns a generator of the target of an encoder-decoder for a source; it has the tokens
// that begin a target. The caller appends forced, at most n tokens that the folder puts first.
// NewTarget returns an error if the folder names no tokens that begin a target, or the source does
// not fit the model.
func (m *Model) NewTarget(source []int32, s generate.Sampling, n int) (g *generate.Generator, forced []int32, err error) {
	if len(m.rules.StartTokens) == 0 {
		return nil, nil, fmt.Errorf("%s: decoder_start_token_id: is missing", m.path)
	}
	if g, err = generate.NewTarget(m.Model(), source, s); err != nil {
		return nil, nil, err
	}
	g.Append(m.rules.StartTokens...)
	forced = m.rules.ForcedTokens
	return g, slices.Clone(forced[:min(len(forced), n)]), nil
}

// EncodePrompt returns the tokens of a text that is to be continued. For a run an empty text
// becomes a line break, after which anything may begin. EncodePrompt returns an error where Encode
// does, and if an empty text has no tokens.
func (m *Model) EncodePrompt(text string) ([]int32, error) {
	var ids []int32
	var err error
	switch {
	case m.folder != nil:
		ids, err = m.Encode(text, true)
	case m.vocab == nil:
		err = m.vocabErr
	case text == "":
		ids = LineBreakTokens(m.vocab)
	default:
		ids, err = m.vocab.Encode(nil, []byte(text))
	}
	if err == nil && len(ids) == 0 {
		err = ErrEmptyPrompt
	}
	return ids, err
}

// ErrEmptyPrompt is returned for an empty text if the model cannot begin one.
var ErrEmptyPrompt = fault.Mark(fault.ErrInput, errors.New("is empty, and the model has no token that begins a text"))

// errEnded ends a text at an end token.
var errEnded = errors.New("the text has ended")

// Continue draws at most n tokens with g, or fewer if the learned positions end, and calls emit
// with each. It stops at a token that ends a text, which emit does not get. It returns an error if emit does, if a number is
// not finite, or if ctx ends.
func (m *Model) Continue(ctx context.Context, g *generate.Generator, n int, emit func(id int32) error) error {
	if c := m.Config(); c.Positions == model.Learned {
		n = min(n, c.LearnedPositions()-int(g.Tokens()))
	}
	err := g.Generate(ctx, n, func(id int32) (err error) {
		if slices.Contains(m.rules.EndTokens, id) {
			return errEnded
		}
		return emit(id)
	})
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// WholeCharacters returns the length of text without a last character that is not complete yet.
func WholeCharacters(text []byte) int {
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax+1); i-- {
		if utf8.RuneStart(text[i]) {
			if utf8.FullRune(text[i:]) {
				break
			}
			return i
		}
	}
	return len(text)
}
