// Package forward implements the verb forward: all outputs of a published model for
// token ids or pixels, and the gradients of its weights.
package forward

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/problem"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/model"
)

// Command is the verb forward.
type Command struct {
	In        string `arg:"" placeholder:"IN" help:"Arrays input_ids or pixel_values (.npz), or a picture."`
	Out       string `arg:"" placeholder:"OUT.npz" help:"Arrays to write."`
	Model     string `required:"" placeholder:"DIR" help:"Folder in the Hugging Face layout."`
	Grad      bool   `help:"Read do, write the gradient d_NAME of each weight."`
	Positions string `enum:",interpolate" default:"" placeholder:"WAY" help:"Beyond learned positions: interpolate; without it refuse."`
	flags.Opening
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "Reads input_ids [B,N] (int64 or int32), attention_mask [B,N] (default 1) and token_type_ids [B,N] (default 0), " +
		"or pixel_values [B,3,H,W]; an encoder-decoder also reads decoder_input_ids. position_ids are accepted if they are the positions that the model counts itself. Arrays that the verb writes may be in the file; an array of another name is an error. " +
		"A model of images also reads a PNG or JPEG, prepared as preprocessor_config.json says. " +
		"Writes float32 arrays under the names of transformers, as the family has them: hidden [layers+1,B,N,C], last_hidden_state, logits, " +
		"pooler_output; of an encoder-decoder encoder_last_hidden_state, decoder_hidden, logits. Rows of masked tokens are 0. " +
		"With --grad do has the shape of logits, or of last_hidden_state without them; the gradient of sum(out·do) by a weight is d_ and its name in model.safetensors." + flags.JoinExamples(
		"farfield forward --model MiniLM in.npz out.npz",
		"farfield forward --model MiniLM --grad in.npz gradients.npz",
		"farfield forward --model vit photo.jpg out.npz",
	)
}

// Run computes the outputs. It returns an error if the model or an array is invalid, or
// the file cannot be written.
func (c *Command) Run(e *env.Env) error {
	if err := env.CheckOutput(c.Out, append(runs.ModelFiles(c.Model), c.In)...); err != nil {
		return env.InputErrorf("OUT: %w", err)
	}
	path, err := runs.ResolveModel(c.Model)
	if err != nil {
		return env.MarkInput(err)
	}
	options, err := c.Chosen()
	if err != nil {
		return err
	}
	m, err := published.OpenWith(path, published.Options{Positions: c.Positions, Exchange: options.Exchange, Precision: options.Precision, IgnoreFields: options.IgnoreFields})
	if err != nil {
		return env.MarkInput(err)
	}
	runs.PrintNotes(e.Notes(), m)
	var in *published.Input
	var do *array.Array
	if m.Config().Inputs > 0 && !strings.EqualFold(filepath.Ext(c.In), ".npz") {
		in, err = c.readPicture(m)
	} else if in, do, err = c.readInput(m); err != nil {
		err = fmt.Errorf("%s: %w", c.In, err)
	}
	if err != nil {
		return env.MarkInput(err)
	}
	var list []*array.Array
	err = e.RunInterruptibly(func() error {
		list, err = c.compute(e, m, in, do)
		return err
	})
	if err != nil {
		return env.MarkInput(err)
	}
	return atomicfile.Write(c.Out, func(w io.Writer) error { return array.WriteNPZ(w, list) })
}

// compute returns the outputs, and with --grad the gradients.
func (c *Command) compute(e *env.Env, m *published.Model, in *published.Input, do *array.Array) ([]*array.Array, error) {
	if limit := m.Config().Context; in.IDs != nil && limit > 0 && in.N > limit {
		fmt.Fprintf(e.Notes(), "%d tokens: the model was trained with %d\n", in.N, limit)
	}
	if in.IDs != nil && in.N > 0 {
		x, err := m.KeyDistance(e.Context, in.IDs[:in.N])
		if text := inference.DescribeFarKeys(c.Model, m.Calibration(), x); err == nil && text != "" {
			fmt.Fprintln(e.Notes(), text)
		}
	}
	out, err := m.Forward(e.Context, in)
	if err != nil {
		return nil, err
	}
	var list []*array.Array
	for _, a := range []*array.Array{out.Hidden, out.LastHidden, out.Logits, out.Pooled, out.EncoderLast} {
		if a != nil {
			list = append(list, a)
		}
	}
	if do == nil {
		return list, nil
	}
	y := out.Logits
	if y == nil {
		y = out.LastHidden
	}
	if !slices.Equal(do.Shape, y.Shape) {
		return nil, fmt.Errorf("do: has the shape %v, %s has %v", do.Shape, y.Name, y.Shape)
	}
	x, err := toFloat32(do)
	if err != nil {
		return nil, err
	}
	grads, err := m.Gradients(e.Context, in, x)
	if err != nil {
		return nil, err
	}
	for _, g := range grads {
		g.Name = "d_" + g.Name
	}
	return append(list, grads...), nil
}

// readPicture reads a picture.
func (c *Command) readPicture(m *published.Model) (*published.Input, error) {
	if c.Grad {
		return nil, fmt.Errorf("%s: --grad reads do from a file .npz, with pixel_values", c.In)
	}
	pixels, err := m.ReadPixels(c.In)
	return &published.Input{B: 1, Pixels: pixels, Hidden: true}, err
}

// arrayNames returns the names of the arrays that a file may have: those that the model reads, and
// those that the verb writes.
func arrayNames(m *published.Model, given []string) []string {
	known := []string{"input_ids", "attention_mask", "token_type_ids", "position_ids"}
	switch {
	case slices.Contains(given, "pixel_values"):
		known = []string{"pixel_values"}
	case m.Config().Kind == model.EncoderDecoder:
		known = append(known, "decoder_input_ids")
	}
	// A file may hold outputs beside their inputs, as references do.
	known = append(known, "do", "hidden", "last_hidden_state", "logits", "pooler_output", "encoder_last_hidden_state", "decoder_hidden")
	for _, name := range given {
		if strings.HasPrefix(name, "d_") {
			known = append(known, name)
		}
	}
	return known
}

// readInput reads the arrays of the input of m.
func (c *Command) readInput(m *published.Model) (in *published.Input, do *array.Array, err error) {
	z, err := array.OpenNPZ(c.In)
	if err != nil {
		return nil, nil, err
	}
	defer z.Close()
	known := arrayNames(m, z.Names())
	if err := problem.CheckNames(z.Names(), known...); err != nil {
		return nil, nil, err
	}
	if c.Grad {
		if !slices.Contains(z.Names(), "do") {
			return nil, nil, fmt.Errorf("--grad: the file has no array do")
		}
		if do, err = z.ReadArray("do"); err != nil {
			return nil, nil, err
		}
	}
	in = &published.Input{Hidden: true}
	var shape []int
	if slices.Contains(known, "pixel_values") {
		pixels, err := z.ReadArray("pixel_values")
		if err != nil {
			return nil, nil, err
		}
		if err := m.CheckPixels(pixels.Shape); err != nil {
			return nil, nil, err
		}
		in.B = pixels.Shape[0]
		in.Pixels, err = toFloat32(pixels)
		return in, do, err
	}
	if in.IDs, shape, err = problem.ReadTokens(z, "input_ids", nil); err != nil {
		return nil, nil, err
	}
	if in.IDs == nil {
		return nil, nil, fmt.Errorf("has neither input_ids nor pixel_values; there are: %s", display.EscapeAll(z.Names()))
	}
	in.B, in.N = shape[0], shape[1]
	if in.Mask, err = problem.ReadMask(z, shape); err != nil {
		return nil, nil, err
	}
	if in.Types, _, err = problem.ReadTokens(z, "token_type_ids", shape); err != nil {
		return nil, nil, err
	}
	if err := problem.CheckPositions(z, shape, in.Mask, m.Config().PositionOffset, false); err != nil {
		return nil, nil, err
	}
	target, targetShape, err := problem.ReadTokens(z, "decoder_input_ids", nil)
	if err != nil || target == nil {
		return in, do, err
	}
	if targetShape[0] != in.B {
		return nil, nil, fmt.Errorf("decoder_input_ids: has the shape %v, input_ids %v", targetShape, shape)
	}
	in.DecoderIDs, in.DecoderN = target, targetShape[1]
	return in, do, nil
}

// toFloat32 returns the elements of an array of float32, or rounds float64.
func toFloat32(a *array.Array) ([]float32, error) {
	if a.DType == array.F4 {
		return a.Float32()
	}
	list, err := a.Float64()
	if err != nil {
		return nil, err
	}
	out := make([]float32, len(list))
	for i, x := range list {
		out[i] = float32(x)
	}
	return out, nil
}
