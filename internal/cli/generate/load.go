package generate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/problem"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/model"
)

// load reads the model. It returns an error if it does not predict tokens.
func (c *Command) load() (*inference.Model, error) {
	options, err := c.Chosen()
	if err != nil {
		return nil, err
	}
	m, err := runs.OpenText(c.Model, options)
	if err != nil {
		return nil, err
	}
	if err := m.CheckNextTokens(); err != nil {
		return nil, err
	}
	if _, err := m.Vocabulary(); err != nil && c.IDs == "" {
		return nil, fmt.Errorf("%w; --ids needs none", err)
	}
	return m, nil
}

// prefillWhole reads token ids, or a prompt as a whole, into the text of g.
func (c *Command) prefillWhole(e *env.Env, g *generate.Generator, m *inference.Model) error {
	ids, err := c.readPrompt(e, m, g.Tokens())
	if err != nil {
		return err
	}
	m.NoteKeyDistance(e.Context, e.Notes(), ids)
	g.Append(ids...)
	if err := c.fits(g, m.Config()); err != nil {
		return err
	}
	return g.Prefill(e.Context)
}

// readPrompt returns the token ids, or the tokens of the whole prompt, which goes on after tokens
// of a resumed text. It returns an error if they cannot be read or there are none.
func (c *Command) readPrompt(e *env.Env, m *inference.Model, tokens int64) ([]int32, error) {
	if c.IDs != "" {
		ids, err := readIDs(c.IDs, m.Config().Vocab, m.Config().Kind == model.EncoderDecoder)
		if err != nil {
			return nil, env.InputErrorf("--ids: %s: %w", c.IDs, err)
		}
		return ids, nil
	}
	prompt := c.Prompt
	if c.PromptFile != "" {
		text, err := texts.ReadText(e, c.PromptFile)
		if err != nil {
			return nil, env.MarkInput(err)
		}
		prompt = string(text)
	}
	if c.Resume != "" {
		ids, err := m.EncodeContinuation(prompt, tokens)
		return ids, env.MarkInput(err)
	}
	ids, err := m.Encode(prompt, true)
	if err != nil {
		return nil, env.MarkInput(err)
	}
	if len(ids) == 0 {
		return nil, env.InputErrorf("--prompt: %w", inference.ErrEmptyPrompt)
	}
	return ids, nil
}

// errTargetEnd ends the text of a target.
var errTargetEnd = errors.New("the target has ended")

// startTarget returns the generator of a target of an encoder-decoder, whose source is the
// prompt, and its first tokens that are not drawn.
func (c *Command) startTarget(e *env.Env, m *inference.Model) (*generate.Generator, []int32, error) {
	if c.Resume != "" || c.Save != "" {
		return nil, nil, env.InputErrorf("--save, --resume: %s is an encoder-decoder, whose texts are not saved", c.Model)
	}
	source, err := c.readPrompt(e, m, 0)
	if err != nil {
		return nil, nil, err
	}
	g, forced, err := m.NewTarget(source, c.sampling(defaultSampling), c.tokenCount())
	if err != nil {
		return nil, nil, env.MarkInput(err)
	}
	if err := c.fits(g, m.Config()); err != nil {
		return nil, nil, err
	}
	g.Append(forced...)
	return g, forced, nil
}

// readIDs reads input_ids [1,N] of a vocabulary of vocab tokens, without the tokens that
// attention_mask leaves out. The model has no tokens in their place and does not count them in its
// positions, as generate of transformers. endsOnly accepts masks of tokens at the end alone: the
// positions of a source count from its first token on, masked or not.
func readIDs(path string, vocab int, endsOnly bool) ([]int32, error) {
	z, err := array.OpenNPZ(path)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	if err := problem.CheckNames(z.Names(), "input_ids", "attention_mask", "token_type_ids", "position_ids"); err != nil {
		return nil, err
	}
	list, shape, err := problem.ReadTokens(z, "input_ids", nil)
	switch {
	case err != nil:
		return nil, err
	case list == nil:
		return nil, fmt.Errorf("has no input_ids; there are: %s", display.EscapeAll(z.Names()))
	case shape[0] != 1 || shape[1] < 1:
		return nil, fmt.Errorf("input_ids: has the shape %v, needs [1,N]", shape)
	}
	mask, err := problem.ReadMask(z, shape)
	if err != nil {
		return nil, err
	}
	if err := problem.CheckPositions(z, shape, mask, 0, true); err != nil {
		return nil, err
	}
	types, _, err := problem.ReadTokens(z, "token_type_ids", shape)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(types, func(t int32) bool { return t != 0 }); i >= 0 {
		return nil, fmt.Errorf("token_type_ids: element %d is %d; a model that generates has the type 0 alone", i, types[i])
	}
	var ids []int32
	for i, x := range list {
		if mask != nil && !mask[i] {
			continue
		}
		if x < 0 || int(x) >= vocab {
			return nil, fmt.Errorf("input_ids: element %d is %d, the model has %d tokens", i, x, vocab)
		}
		if endsOnly && len(ids) < i {
			return nil, fmt.Errorf("attention_mask: masks token %d and not token %d; a source may be masked at its end alone", len(ids), i)
		}
		ids = append(ids, x)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("attention_mask: masks all %d tokens", len(list))
	}
	return ids, nil
}

// IDReport is the JSON result of generate --ids.
type IDReport struct {
	IDs []int32 `json:"ids"` // new
}

// printIDs prints new tokens on a line.
func (c *Command) printIDs(e *env.Env, ids []int32) error {
	if c.JSON {
		return display.PrintJSONLine(e.Stdout, IDReport{append([]int32{}, ids...)})
	}
	_, err := fmt.Fprintln(e.Stdout, strings.Trim(fmt.Sprint(ids), "[]"))
	return err
}
