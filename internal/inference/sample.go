package inference

import (
	"context"

	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
)

// DefaultTemperature is a little below 1, which makes short texts more coherent.
const DefaultTemperature = 0.8

// SampleText returns a text of n tokens that continues start, or fewer if the model has
// fewer positions. It returns an error if ctx ends or a step fails.
func SampleText(ctx context.Context, m *model.Model, vocab *token.Vocabulary, start []int32, n int, seed uint64) (string, error) {
	g, err := generate.New(m, generate.Sampling{Temperature: DefaultTemperature, Seed: seed})
	if err != nil {
		return "", err
	}
	g.Append(start...)
	if c := m.Config(); c.Positions == model.Learned {
		n = min(n, c.LearnedPositions()-len(start))
	}
	var out []byte
	err = g.Generate(ctx, n, func(t int32) (err error) {
		if int(t) >= vocab.Size() {
			out = append(out, noText...)
			return nil
		}
		out, err = vocab.Decode(out, t)
		return err
	})
	return string(out), err
}

// LineBreakTokens returns the tokens of a line break, after which anything may begin, or the first
// token of the vocabulary if a line break cannot be encoded.
func LineBreakTokens(vocab *token.Vocabulary) []int32 {
	tokens, err := vocab.Encode(nil, []byte("\n"))
	if err != nil {
		return []int32{0}
	}
	return tokens
}
