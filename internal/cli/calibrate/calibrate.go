// Package calibrate implements the verb calibrate: fastmax-truncated, fitted to queries and keys.
package calibrate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/problem"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train"
)

// CalibratedMechanism is the name of the mechanism that calibrate fits.
const CalibratedMechanism = "fastmax-truncated"

// Command is the verb calibrate: it finds the axes and monomials of fastmax-truncated from data.
type Command struct {
	Model  string `placeholder:"DIR" help:"Folder of a run (latest checkpoint) or of a checkpoint."`
	Data   string `placeholder:"FILE|FOLDER" help:"Text for calibration (the text of the run)."`
	Tokens *int   `placeholder:"N" help:"With --model: tokens for calibration, spread evenly (8192)."`
	flags.Settings
	Causal bool `help:"With arrays: query i sees keys j ≤ i + (M-N)."`
	JSON   bool `name:"json" help:"Print the result as JSON."`

	In           string `arg:"" optional:"" name:"in" help:"Without --model: q, k, v in .npz or .safetensors."`
	Out          string `arg:"" optional:"" name:"out" help:"Arrays for attend, with rotation and monomials."`
	TargetFolder string `name:"to" placeholder:"DIR" help:"With --model: new or empty folder of the calibrated model."`
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "Each head gets the axes along which its queries and keys are largest, and the monomials with the largest terms (--set keep=K). " +
		"With --model, layers get fastmax-truncated with the same weights, except those with a near field alone. The axes come from the first nine tenths of the text, and losses are measured on the rest.\n\n" +
		"An error is ‖o-o'‖/‖o'‖ over 512 tokens, where o' are the outputs of the exponential of the same scores: for the kept monomials, for T_2 and for T_p with all monomials. lost is the error of the kept monomials against T_p. " +
		"negative is the share of negative weights. dropped is the largest missing part of T_p(s) in a weight, bound its bound on these tokens, largest the largest weight." + flags.JoinExamples(
		"farfield calibrate --causal --set keep=64 qkv.npz calibrated.npz",
		"farfield attend --mechanism fastmax-truncated --causal --set keep=64 calibrated.npz out.npz",
		"farfield calibrate --model run/001 --to run/truncated",
	)
}

// calibratedHead is a head of the report.
type calibratedHead struct {
	Layer string `json:"layer,omitempty"`
	mechanism.Truncation
}

// Report is the JSON result of calibrate.
type Report struct {
	Model string `json:"model,omitempty"`
	// Losses on the part of the text to judge by, in nats a token.
	ModelLoss *float64         `json:"loss_before,omitempty"` // of the model as it was
	StartLoss *float64         `json:"loss_start,omitempty"`  // of fastmax-truncated as it starts
	FinalLoss *float64         `json:"loss_after,omitempty"`
	Dropped   []string         `json:"weights_dropped,omitempty"` // that it has no place for
	Heads     []calibratedHead `json:"heads"`
}

// Run calibrates arrays or a model. It returns an error if flags or input are invalid
// or a file cannot be written.
func (c *Command) Run(e *env.Env) error {
	var r *Report
	var err error
	switch {
	case c.Model != "" && (c.In != "" || c.Out != ""):
		return env.InputErrorf("--model: given beside %s", c.In)
	case c.Model != "" && c.Causal:
		return env.InputErrorf("--causal: is of arrays; a model is causal")
	case c.Model == "" && (c.TargetFolder != "" || c.Data != "" || c.Tokens != nil):
		return env.InputErrorf("--to, --data, --tokens: need --model")
	case c.Model != "":
		r, err = c.model(e)
	case c.In == "" || c.Out == "":
		return env.InputErrorf("needs --model, or a file to read and one to write")
	default:
		r, err = c.arrays(e)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return display.PrintJSON(e.Stdout, r)
	}
	return r.print(e.Stdout)
}

// arrays calibrates by a file.
func (c *Command) arrays(e *env.Env) (*Report, error) {
	write, err := problem.WriterFor(c.Out, c.In)
	if err != nil {
		return nil, env.MarkInput(err)
	}
	in, err := problem.OpenArrays(c.In)
	if err != nil {
		return nil, env.MarkInput(err)
	}
	defer in.Close()
	p, err := problem.ReadProblem(&problem.Request{Mechanism: CalibratedMechanism, Settings: c.Settings, Causal: c.Causal, Form: "auto", Path: c.In}, in)
	if err != nil {
		return nil, env.MarkInput(err)
	}
	if err := problem.CheckNames(p.UnknownNames(in.Names()), problem.ArrayNames()...); err != nil {
		return nil, env.InputErrorf("%s: %w", c.In, err)
	}
	r := &Report{Heads: []calibratedHead{}}
	err = e.RunInterruptibly(func() error {
		if err := mechanism.CalibrateTruncation(p.Mechanism, &p.Call); err != nil {
			return env.MarkInput(err)
		}
		return r.judge("", p.Mechanism, &p.Call)
	})
	if err != nil {
		return nil, err
	}
	list := []*array.Array{p.NewArray("q", p.Call.Q), p.NewArray("k", p.Call.K), p.NewArray("v", p.Call.V)}
	for _, x := range p.Mechanism.Constants().All() {
		list = append(list, problem.NewArray(x.Name, x.Data, x.Shape))
	}
	for _, name := range problem.CallNames {
		if !slices.Contains(in.Names(), name) {
			continue
		}
		a, err := in.ReadArray(name)
		if err != nil {
			return nil, env.MarkInput(err)
		}
		list = append(list, a)
	}
	return r, atomicfile.Write(c.Out, func(w io.Writer) error { return write(w, list) })
}

// judge appends the heads of a layer. It returns an error if their errors are not finite.
func (r *Report) judge(layer string, m attention.Mechanism, c *attention.Call) error {
	list, err := mechanism.MeasureTruncation(m, c)
	for _, t := range list {
		for _, x := range []float64{t.Error, t.PlainError, t.WholeError, t.LostError, t.NegativeShare, t.MaxDropped, t.Bound, t.MaxWeight} {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return fmt.Errorf("%s: errors are %w: weights or values left the range of numbers", strings.TrimSpace(fmt.Sprintf("%s head %d", layer, t.Head)), attention.ErrNonFinite)
			}
		}
		r.Heads = append(r.Heads, calibratedHead{layer, t})
	}
	return err
}

// model calibrates the layers of a model in order. Each layer reads the outputs of the
// calibrated layers before it.
func (c *Command) model(e *env.Env) (*Report, error) {
	if c.Tokens != nil && *c.Tokens < 1 {
		return nil, env.InputErrorf("--tokens: %d is less than 1", *c.Tokens)
	}
	if c.TargetFolder != "" {
		list, err := os.ReadDir(c.TargetFolder)
		switch {
		case err == nil && len(list) > 0:
			return nil, env.InputErrorf("--to: %s is not empty", c.TargetFolder)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, env.InputErrorf("--to: %w", err)
		}
	}
	old, vocab, err := train.LoadTextModel(c.Model)
	if err != nil {
		return nil, env.MarkInput(err)
	}
	text, err := runs.OpenRunText(c.Model, c.Data, "", vocab, false)
	if err != nil {
		return nil, env.MarkInput(err)
	}
	config := old.Config()
	if config.Kind != model.Decoder {
		return nil, env.InputErrorf("--model: %s is no decoder", c.Model)
	}
	config.Mechanism, config.Order, config.Set = CalibratedMechanism, 0, maps.Clone(c.Set)
	if c.Order != nil {
		config.Order = *c.Order
	}
	m, err := model.New(config, rng.New(0))
	if err != nil {
		return nil, env.MarkInput(err)
	}
	r := &Report{Model: c.Model}
	if r.Dropped, err = copyWeights(m, old); err != nil {
		return nil, env.MarkInput(err)
	}
	score := func(m *model.Model, to **float64) error {
		s, _, err := train.Evaluate(e.Context, m, text.WithWindow(config.Context), task.Valid, 0)
		*to = &s.Loss
		return err
	}
	if err := score(old, &r.ModelLoss); err != nil {
		return nil, err
	}
	if err := score(m, &r.StartLoss); err != nil {
		return nil, err
	}
	if err := c.pass(e, m, text.Tokens(task.Train), func(_ string, of attention.Mechanism, call *attention.Call) error {
		return mechanism.CalibrateTruncation(of, call)
	}); err != nil {
		return nil, err
	}
	if err := c.pass(e, m, text.Tokens(task.Valid), func(name string, of attention.Mechanism, call *attention.Call) error {
		return r.judge(name, of, call)
	}); err != nil {
		return nil, err
	}
	if err := score(m, &r.FinalLoss); err != nil {
		return nil, err
	}
	if c.TargetFolder != "" {
		return r, train.SaveModel(c.TargetFolder, m, vocab)
	}
	return r, nil
}

// copyWeights gives m the weights of old, and returns the names of those that it
// has no place for.
func copyWeights(m, old *model.Model) (dropped []string, err error) {
	for _, p := range m.Params().All() {
		from, err := old.Params().Get(p.Name)
		if err != nil {
			return nil, err
		}
		copy(p.Data, from.Data)
	}
	for _, p := range old.Params().All() {
		if _, err := m.Params().Get(p.Name); err != nil {
			dropped = append(dropped, p.Name)
		}
	}
	return dropped, nil
}

// defaultTokens is the number of tokens for calibration without --tokens.
const defaultTokens = 8192

// pass runs the model over windows of --tokens tokens. It calls look before each call
// of a layer's mechanism.
func (c *Command) pass(e *env.Env, m *model.Model, tokens token.Sequence, look func(name string, of attention.Mechanism, call *attention.Call) error) error {
	most := defaultTokens
	if c.Tokens != nil {
		most = *c.Tokens
	}
	n := min(m.Config().Context, tokens.Len())
	windows := max(1, min(most, tokens.Len())/n)
	b := &model.Batch{B: windows, N: n}
	for i := range windows {
		at := i * (tokens.Len() / n) / windows * n
		b.Tokens = tokens.Append(b.Tokens, at, at+n)
	}
	b.Targets = b.Tokens // targets do not matter here
	defer model.Watch(m, func(name string, of attention.Mechanism, call *attention.Call) error {
		if of.Traits().Name != CalibratedMechanism { // a layer with the near field alone
			return nil
		}
		return look(name, of, call)
	})()
	return e.RunInterruptibly(func() error { return m.Losses(e.Context, b, make([]float64, len(b.Tokens))) })
}

func (r *Report) print(w io.Writer) error {
	if r.ModelLoss != nil {
		fmt.Fprintf(w, "loss of the model %.4f nats a token, with the lowest monomials in place of its attention %.4f, calibrated %.4f\n", *r.ModelLoss, *r.StartLoss, *r.FinalLoss)
	}
	for _, name := range r.Dropped {
		fmt.Fprintf(w, "%s: there is no place for it\n", name)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "layer\thead\tkept\tof\terror\tof T_2\tof T_p\tlost\tnegative\tdropped\tbound\tlargest\t")
	var sum [4]float64
	for _, h := range r.Heads {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.4f\t%.4f\t%.4f\t%.4f\t%.2g%%\t%.3g\t%.3g\t%.3g\t\n", h.Layer, h.Head, h.Monomials, h.AllMonomials,
			h.Error, h.PlainError, h.WholeError, h.LostError, 100*h.NegativeShare, h.Truncation.MaxDropped, h.Bound, h.MaxWeight)
		sum[0], sum[1], sum[2], sum[3] = sum[0]+h.Error, sum[1]+h.PlainError, sum[2]+h.WholeError, sum[3]+h.LostError
	}
	n := float64(max(len(r.Heads), 1))
	fmt.Fprintf(t, "mean\t\t\t\t%.4f\t%.4f\t%.4f\t%.4f\t\t\t\t\t\n", sum[0]/n, sum[1]/n, sum[2]/n, sum[3]/n)
	return t.Flush()
}
