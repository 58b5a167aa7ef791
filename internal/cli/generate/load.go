package generate

import (
	"fmt"
	"math"
	"strings"

	"github.com/farfield-ml/farfield/array"
	"github.com/farfield-ml/farfield/generate"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/texts"
)

// load reads the model. It returns an error if it does not predict tokens.
func (c *Command) load() (*runs.TextModel, error) {
	m, err := runs.OpenText(c.Model)
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
func (c *Command) prefillWhole(e *env.Env, g *generate.Generator, m *runs.TextModel) error {
	var ids []int32
	var err error
	if c.IDs != "" {
		if ids, err = readIDs(c.IDs, m.Config().Vocab); err != nil {
			return env.InputErrorf("--ids: %s: %w", c.IDs, err)
		}
	} else {
		prompt := c.Prompt
		if c.PromptFile != "" {
			text, err := texts.ReadText(e, c.PromptFile)
			if err != nil {
				return env.MarkInput(err)
			}
			prompt = string(text)
		}
		if ids, err = m.Encode(prompt, c.Resume == ""); err != nil {
			return env.MarkInput(err)
		}
		if len(ids) == 0 && c.Resume == "" {
			return env.InputErrorf("--prompt: is empty, and the model has no token that begins a text")
		}
	}
	g.Append(ids...)
	if err := c.fits(g, m.Config()); err != nil {
		return err
	}
	return g.Prefill(e.Context)
}

// readIDs reads input_ids [1,N] of a vocabulary of vocab tokens.
func readIDs(path string, vocab int) ([]int32, error) {
	z, err := array.OpenNPZ(path)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	a, err := z.ReadArray("input_ids")
	if err != nil {
		return nil, err
	}
	if len(a.Shape) != 2 || a.Shape[0] != 1 || a.Shape[1] < 1 {
		return nil, fmt.Errorf("input_ids: has the shape %v, needs [1,N]", a.Shape)
	}
	list, err := a.Int64()
	if err != nil {
		return nil, err
	}
	ids := make([]int32, len(list))
	for i, x := range list {
		if x < 0 || x >= int64(min(vocab, math.MaxInt32)) {
			return nil, fmt.Errorf("input_ids: element %d is %d, the model has %d tokens", i, x, vocab)
		}
		ids[i] = int32(x)
	}
	return ids, nil
}

// printIDs prints new tokens on a line.
func (c *Command) printIDs(e *env.Env, ids []int32) error {
	if c.JSON {
		return display.PrintJSONLine(e.Stdout, struct {
			IDs []int32 `json:"ids"`
		}{ids})
	}
	_, err := fmt.Fprintln(e.Stdout, strings.Trim(fmt.Sprint(ids), "[]"))
	return err
}
