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
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tokenizer"
	"github.com/farfield-ml/farfield/train"
)

// models appends the maps of a text or of a sample for each model.
func (c *Command) models(e *env.Env, list []Map) (_ []Map, err error) {
	text := []byte(c.Text)
	if c.TextFile != "" {
		if text, err = texts.ReadText(e, c.TextFile); err != nil {
			return nil, err
		}
	}
	exchange, err := c.exchange()
	if err != nil {
		return nil, err
	}
	for _, dir := range c.Model {
		m, err := runs.Open(dir, inference.Options{Exchange: exchange})
		if err != nil {
			return nil, err
		}
		list, err = c.model(e, list, dir, m, text)
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// model appends the maps of a model.
func (c *Command) model(e *env.Env, list []Map, dir string, m *inference.Model, text []byte) (_ []Map, err error) {
	var in *reading
	name := m.Config().Mechanism
	switch {
	case m.Published() != nil && c.Sample != nil:
		return nil, fmt.Errorf("--sample: %s has no task; --text shows it a text", dir)
	case m.Published() != nil:
		name = m.Family()
		in, err = publishedReading(m, text)
	case c.Sample != nil:
		in, err = c.sample(dir, m)
	default:
		in, err = readingOf(dir, m, text)
	}
	if err != nil {
		return nil, err
	}
	noteContext(e, dir, m.Config(), in.batch.N)
	return c.look(list, dir, name, m.AttentionNames(), in, func(look inference.AttentionLook) error {
		if m.Published() != nil {
			return m.WatchAttention(e.Context, in.batch.Tokens, look)
		}
		body := m.Model() // also with a convolutional net
		defer model.Watch(body, look)()
		_, _, err := body.Vectors(e.Context, nil, in.batch)
		return err
	})
}

// noteContext says that a text of n tokens is longer than the trained context of a model. A map is of
// the whole text, so it is not read in windows.
func noteContext(e *env.Env, dir string, c model.Config, n int) {
	if context := c.TrainedContext(); n > context {
		fmt.Fprintf(e.Notes(), "%s: the text has %d tokens, the model was trained with %d: maps may not show what it learned\n", dir, n, context)
	}
}

// reading is the input of a model.
type reading struct {
	batch   *model.Batch
	labels  []string // of its positions; nil: none
	picture *report.Heat
}

// publishedReading is a text, for a published model.
func publishedReading(m *inference.Model, text []byte) (*reading, error) {
	if err := m.CheckTexts(); err != nil {
		return nil, err
	}
	ids, err := m.Encode(string(text), true)
	if err != nil {
		return nil, fmt.Errorf("--text: %w", err)
	}
	if len(ids) == 0 {
		return nil, errors.New("--text: is empty")
	}
	return &reading{batch: &model.Batch{B: 1, N: len(ids), Tokens: ids}, labels: wordLabels(m.Published().Tokenizer(), ids)}, nil
}

// readingOf is a text, for a model of texts: with a vocabulary, or of a task whose inputs are lines.
func readingOf(dir string, m *inference.Model, text []byte) (*reading, error) {
	vocab, _ := m.Vocabulary()
	if vocab == nil {
		return taskReading(dir, m, text)
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

// taskReading is a text as the model of a run reads a line of its task.
func taskReading(dir string, m *inference.Model, text []byte) (*reading, error) {
	p, err := m.Predictor()
	if err != nil {
		return nil, err
	}
	if !p.NeedsLines {
		return nil, fmt.Errorf("--text: an input of %s is %s; --sample shows it one of its task", dir, p.Input)
	}
	r, err := p.Read(text)
	if err != nil {
		return nil, fmt.Errorf("--text: %w", err)
	}
	in := &reading{batch: r.Batch}
	switch {
	case r.Spec.Parts > 1:
	case r.Texts == nil:
		for _, t := range r.Batch.Tokens {
			label := strconv.Itoa(int(t))
			if r.Spec.Vocab == 257 && t > 0 { // a byte and one
				label = tokenLabel(string([]byte{byte(t - 1)}))
			}
			in.labels = append(in.labels, label)
		}
	default:
		for _, text := range r.Texts {
			in.labels = append(in.labels, tokenLabel(text))
		}
	}
	return in, nil
}

// wordLabels are the texts of tokens, or the names of special ones.
func wordLabels(words *tokenizer.Tokenizer, ids []int32) (labels []string) {
	for _, id := range ids {
		label := string(words.Bytes(id))
		if label == "" || words.IsSpecial(id) {
			label = words.Token(id)
		}
		labels = append(labels, tokenLabel(label))
	}
	return labels
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
func (c *Command) sample(dir string, m *inference.Model) (*reading, error) {
	vocab, _ := m.Vocabulary() // nil: a task without one
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
		title += ", class " + className(raw, s.Class)
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
	case spec.Vocab > 0 && spec.Sequences() == 1:
		for _, t := range s.Tokens {
			in.labels = append(in.labels, strconv.Itoa(int(t)))
		}
	}
	return in, err
}

// className is the name of a class; without names, its number.
func className(src task.Source, class int32) string {
	if named, ok := src.(task.ClassNamer); ok {
		if names := named.ClassNames(); int(class) < len(names) {
			return names[class]
		}
	}
	return strconv.Itoa(int(class))
}

// look appends the maps of the attention layers with these names, from one pass over the
// input.
func (c *Command) look(list []Map, dir, mechanism string, names []string, in *reading, pass func(look inference.AttentionLook) error) ([]Map, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: its mixer is %s, which has no attention matrix", dir, mechanism)
	}
	layers, err := chosen("--layers", c.Layers, len(names))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	b := in.batch
	err = pass(func(name string, of attention.Mechanism, call *attention.Call) error {
		if !slices.Contains(layers, slices.Index(names, name)) {
			return nil
		}
		for row := range b.B {
			one := Map{Source: filepath.Base(filepath.Clean(dir)) + " " + mechanism, Layer: name, tokens: in.labels, picture: in.picture}
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
			if list, err = c.addHeads(list, of, call, row, n, one); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
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
