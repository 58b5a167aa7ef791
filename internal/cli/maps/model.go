package maps

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/report"
	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/token"
	"github.com/farfield-ml/farfield/train"
)

// models makes the maps of a text or of a sample for each model.
func (c *Command) models(e *env.Env) (list []Map, err error) {
	text := []byte(c.Text)
	if c.TextFile != "" {
		if text, err = texts.ReadText(e, c.TextFile); err != nil {
			return nil, err
		}
	}
	for _, dir := range c.Model {
		m, vocab, err := train.LoadModel(dir)
		if err != nil {
			return nil, err
		}
		var in *reading
		if c.Sample != nil {
			in, err = c.sample(dir, vocab)
		} else {
			in, err = readingOf(dir, vocab, text)
		}
		if err != nil {
			return nil, err
		}
		if list, err = c.model(list, dir, m, in); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// reading is the input of a model.
type reading struct {
	batch   *model.Batch
	labels  []string // of its positions; nil: none
	picture *report.Heat
}

// readingOf is a text, for a model with a vocabulary.
func readingOf(dir string, vocab *token.Vocabulary, text []byte) (*reading, error) {
	if vocab == nil {
		return nil, fmt.Errorf("--text: %s learned no text; --sample shows it one of its task", dir)
	}
	tokens, err := vocab.Encode(nil, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if len(tokens) == 0 {
		return nil, errors.New("--text: is empty")
	}
	labels, err := tokenLabels(vocab, tokens)
	return &reading{batch: &model.Batch{B: 1, N: len(tokens), Tokens: tokens}, labels: labels}, err
}

func tokenLabels(vocab *token.Vocabulary, tokens []int32) ([]string, error) {
	labels := make([]string, len(tokens))
	for i, t := range tokens {
		one, err := vocab.Decode(nil, t)
		if err != nil {
			return nil, err
		}
		labels[i] = tokenLabel(string(one))
	}
	return labels, nil
}

// sample is a sample of the task that a model learned, as it learned it.
func (c *Command) sample(dir string, vocab *token.Vocabulary) (*reading, error) {
	raw, config, err := runs.OpenRunTask(dir, c.Folder)
	if err != nil {
		return nil, err
	}
	_, src, err := config.PrepareTask(raw)
	if err != nil {
		return nil, err
	}
	spec := src.Spec()
	split := spec.JudgedSplit()
	var s task.Sample
	if err := src.Sample(&s, split, *c.Sample); err != nil {
		return nil, fmt.Errorf("--sample: %w", err)
	}
	in := &reading{batch: train.PackBatch(spec, s)}
	title := fmt.Sprintf("sample %d", *c.Sample)
	if spec.Kind == task.Class {
		title += fmt.Sprintf(", class %d", s.Class)
	}
	if p, ok := raw.(task.PictureSource); ok {
		m, err := p.Picture(split, *c.Sample)
		if err != nil {
			return nil, err
		}
		h := report.NewGreyHeat(title, m.Height, m.Width, m.Pixels)
		in.picture = &h
		return in, nil
	}
	switch {
	case vocab != nil:
		in.labels, err = tokenLabels(vocab, s.Tokens)
	case spec.Vocab > 0 && spec.Parts == 1:
		for _, t := range s.Tokens {
			in.labels = append(in.labels, strconv.Itoa(int(t)))
		}
	}
	return in, err
}

// model appends the maps of one model, from one pass over its input.
func (c *Command) model(list []Map, dir string, m *model.Model[float32], in *reading) ([]Map, error) {
	var names []string
	m.WrapMechanisms(func(name string, of attention.Mechanism[float32]) attention.Mechanism[float32] {
		names = append(names, name)
		return of
	})
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: its mixer is %s, which has no attention matrix", dir, m.Config().Mechanism)
	}
	layers, err := chosen("--layers", c.Layers, len(names))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	b := in.batch
	defer m.Watch(func(name string, of attention.Mechanism[float32], call *attention.Call[float32]) error {
		if !slices.Contains(layers, slices.Index(names, name)) {
			return nil
		}
		for row := range b.B {
			one := Map{Source: filepath.Base(filepath.Clean(dir)) + " " + m.Config().Mechanism, Layer: name, tokens: in.labels, picture: in.picture}
			if b.B > 1 {
				one.Layer += fmt.Sprintf(" part %d", row)
			}
			n := call.Q.N
			if b.Lens != nil {
				n -= b.N - int(b.Lens[row])
			}
			if in.labels != nil && call.K.N == len(in.labels)+1 { // one of the model's own comes first
				one.tokens = append([]string{"cls"}, in.labels...)
			}
			var err error
			if list, err = c.look(list, of, call, row, n, one); err != nil {
				return err
			}
		}
		return nil
	})()
	if _, _, err := m.Vectors(nil, b); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return list, nil
}

// tokenLabel returns a label of one character for a token, with a mark for invisible
// characters.
func tokenLabel(s string) string {
	switch s {
	case " ":
		return "·"
	case "\n":
		return "¶"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
