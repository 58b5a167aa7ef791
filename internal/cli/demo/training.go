package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/train"
)

// demoTraining returns the training of the demo: the default preset, which has long
// sequences and heads of the demo's width, with fewer validations.
func demoTraining() (name string, c train.Config, err error) {
	p, err := train.LookupPreset("")
	if err != nil {
		return "", c, err
	}
	c = p.Config
	c.EvalEvery, c.SaveEvery, c.FinalSamples = 0, 0, (1<<17)/c.Model.Context
	return p.Name, c, nil
}

// showTraining trains on the default text and prints a sample. It measures the speed of
// the same model with softmax for comparison.
func showTraining(e *env.Env, name string, c train.Config) error {
	fmt.Fprintf(e.Stdout, "\n2. A transformer learns a text (size %s: %d layers of width %d, %d heads of width %d, context %d)\n\n",
		name, c.Model.Layers, c.Model.Width, c.Model.Heads, c.Model.Width/c.Model.Heads, c.Model.Context)
	var src task.Source
	err := e.RunInterruptibly(func() (err error) {
		src, err = c.OpenTask()
		return err
	})
	if err != nil {
		return err
	}
	text := src.(*task.Text)
	soft := c
	soft.Model.Mechanism, soft.Model.Order, soft.Model.Set = "softmax", 0, nil
	softmax, err := secondsPerStep(e.Context, soft, text)
	if err != nil {
		return err
	}
	seconds, err := secondsPerStep(e.Context, c, text)
	if err != nil {
		return err
	}

	t, err := train.New(c, text, "")
	if err != nil {
		return err
	}
	defer t.Close()
	fmt.Fprintf(e.Stdout, "   %s: %d bytes to learn from; %d updates of %d tokens, %d parameters\n",
		text.Corpus.Name, text.Tokens(task.Train).Len(), c.Steps, c.Batch*c.Model.Context, t.Model().Params().Size())
	score, err := t.Train(e.Context, progress.NewTraining(e, 0, c.Steps).Observer())
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stdout, "   an update of full length takes %s; with softmax in place of %s, %s: %.1f times\n",
		display.FormatSeconds(seconds), c.Model.Mechanism, display.FormatSeconds(softmax), softmax/seconds)
	table, _, _, err := runs.CountTableBits(t.Source().(*task.Text), score) // in its windows
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stdout, "   validation: %.3f bits per byte; counts of the two bytes before reach %.3f\n", score.Bits, table[2])

	begun, start, err := opening(text)
	if err != nil {
		return err
	}
	fmt.Fprint(e.Stdout, "\n3. What it writes, from a state that does not grow\n\n")
	sampled, err := inference.SampleText(e.Context, t.Model(), text.Vocab, start, 400, c.Seed)
	if err != nil {
		return err
	}
	w := token.NewWriter(e.Stdout)
	if _, err := w.Write([]byte(begun + sampled)); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.Stdout)
	return err
}

// opening returns the beginning of a text sample. For Go source it is a function,
// because an empty line is often followed by hundreds of blanks.
func opening(text *task.Text) (begun string, start []int32, err error) {
	const function = "func "
	if !bytes.Contains(text.Corpus.Text, []byte("\n"+function)) {
		return "", inference.LineBreakTokens(text.Vocab), nil
	}
	start, err = text.Vocab.Encode(nil, []byte("\n"+function))
	return function, start, err
}

// secondsPerStep is the time of an update, the faster of two: the first also
// fetches memory.
func secondsPerStep(ctx context.Context, c train.Config, text *task.Text) (float64, error) {
	c.Steps, c.WarmUp, c.FirstContext = 3, 0, 0
	t, err := train.New(c, text, "")
	if err != nil {
		return 0, err
	}
	defer t.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	enough := errors.New("measured")
	var seconds []float64
	_, err = t.Train(ctx, train.Observer{Step: func(s train.Step) {
		seconds = append(seconds, float64(c.Batch*c.Model.Context)/s.Speed)
		if len(seconds) == 2 {
			stop(enough)
		}
	}})
	if context.Cause(ctx) == enough {
		return min(seconds[0], seconds[1]), nil
	}
	return 0, err
}
