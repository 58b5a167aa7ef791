package inference

import (
	"context"
	"errors"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// PairWriter writes targets for sources with a model of the task pairs. Its methods may be called
// concurrently.
type PairWriter struct {
	// Source is the name of the column or key from which the run read its sources.
	Source string
	of     *Model
	pairs  *task.PairWriter
}

// PairWriter returns the writer of the model's targets. It returns nil and no error if the model
// was not trained on the task pairs, and an error if a setting of the run is invalid.
func (m *Model) PairWriter() (*PairWriter, error) {
	if m.folder != nil || isAlone(m.path) {
		return nil, nil
	}
	c, err := train.RunConfig(train.RunFolder(m.path))
	if err != nil || c.Task != task.PairsName {
		return nil, nil // opening has checked runs; above a model that was saved by itself lie other files
	}
	w := &PairWriter{Source: c.TaskSet["source"], of: m}
	if w.Source == "" {
		w.Source = "source"
	}
	w.pairs, err = task.NewPairWriter(c.TaskSet)
	return w, err
}

// Write returns the most likely target for a source, drawn byte by byte. isTruncated reports that
// the source was cut to the length that the model reads. Write returns an error if the source is
// empty or contains a byte that separates sources and targets, if a number is not finite, or if ctx
// ends.
func (w *PairWriter) Write(ctx context.Context, source []byte) (target []byte, isTruncated bool, err error) {
	tokens, isTruncated, err := w.pairs.Prompt(source)
	if err != nil {
		return nil, false, fault.Mark(fault.ErrInput, err)
	}
	g, err := w.of.NewText(TextOptions{Sampling: generate.Sampling{}, IsWhole: true})
	if err != nil {
		return nil, false, err
	}
	g.Append(tokens...)
	err = g.Generate(ctx, w.pairs.MaxTarget(), func(t int32) (err error) {
		if w.pairs.EndsTarget(t) {
			return errEnded
		}
		target, err = w.of.Bytes(target, t)
		return err
	})
	if errors.Is(err, errEnded) {
		err = nil
	}
	return target, isTruncated, err
}
