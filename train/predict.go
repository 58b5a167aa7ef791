package train

import (
	"errors"
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/task"
)

// Predictor says what the model of a run of the user's own texts makes of others. It
// is not for several goroutines at a time.
type Predictor struct {
	own     *task.Own
	source  task.Source // own, as the model learned it
	e       *evaluation
	classes []string
	probs   []float64
}

// Prediction is what a model makes of a text. Its slices are valid until the next one.
type Prediction struct {
	Kind          task.Kind // Class, Regression or Labels
	Number        float64   // Regression
	Class         int       // Class: the most probable, the first of those that are equal
	Probabilities []float64 // Class: of each
	Labels        []byte    // Labels: that of each byte that is seen
}

// OpenPredictor reads the model of a run, as Load does, and the names of its classes.
func OpenPredictor(path string) (*Predictor, error) {
	if err := CheckForeign(path); err != nil {
		return nil, err
	}
	run := RunFolder(path)
	config, err := RunConfig(run)
	if err != nil {
		return nil, err
	}
	if _, err := task.ForTexts(config.Task, config.TaskSet, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m, _, err := Load(path)
	if err != nil {
		return nil, err
	}
	p := &Predictor{}
	c := m.Config()
	if c.Loss != model.Squared {
		if p.classes, err = readClasses(run, c.Outputs); err != nil {
			return nil, err
		}
	}
	if p.own, err = task.ForTexts(config.Task, config.TaskSet, p.classes); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p.source = p.own
	if config.LRAQuirk {
		p.source = task.Pad(p.own)
	}
	spec := p.own.Spec()
	if outputs := max(spec.Classes, spec.Outputs); spec.Vocab != c.Vocab || outputs != c.Outputs || spec.Length != c.Context {
		return nil, fmt.Errorf("%s: the run's task has %d tokens, %d outputs and %d positions, the model %d, %d and %d",
			path, spec.Vocab, outputs, spec.Length, c.Vocab, c.Outputs, c.Context)
	}
	p.e = newEvaluation(m, p.source)
	return p, nil
}

// Classes returns the names of the classes; none of a model of numbers.
func (p *Predictor) Classes() []string { return p.classes }

// Kind returns what the model says: Class, Regression or Labels.
func (p *Predictor) Kind() task.Kind { return p.e.spec.Kind }

// Predict returns what the model makes of the first bytes of a text, as many as its
// task has. An empty text is an error.
func (p *Predictor) Predict(text []byte) (Prediction, error) {
	spec := &p.e.spec
	r := Prediction{Kind: spec.Kind}
	if len(text) == 0 {
		return r, errors.New("the text is empty")
	}
	p.own.SetText(text)
	samples := p.e.take(1)
	if err := p.source.Sample(&samples[0], task.Test, 0); err != nil {
		return r, err
	}
	if spec.Kind == task.Regression {
		samples[0].Targets = append(samples[0].Targets[:0], 0)
	}
	rows := 1
	if spec.Kind == task.Labels {
		rows = len(samples[0].Tokens)
	}
	p.e.pack(&p.e.batch, samples)
	p.e.logits = grow(p.e.logits, rows*p.e.outputs)
	if err := p.e.m.Logits(&p.e.batch.Batch, p.e.logits); err != nil {
		return r, err
	}
	for _, x := range p.e.logits {
		if x-x != 0 {
			return r, fmt.Errorf("the model says %v", x)
		}
	}
	switch spec.Kind {
	case task.Regression:
		r.Number = float64(p.e.logits[0])
	case task.Labels:
		for i := range min(len(text), spec.Length) {
			r.Labels = append(r.Labels, p.classes[largest(p.e.logits[i*p.e.outputs:][:p.e.outputs])]...)
		}
	default:
		r.Class = largest(p.e.logits)
		p.probs = softmax(p.probs[:0], p.e.logits, r.Class)
		r.Probabilities = p.probs
	}
	return r, nil
}

// largest is the index of the largest number, the first of those that are equal.
func largest(row []float32) int {
	at := 0
	for i, x := range row {
		if x > row[at] {
			at = i
		}
	}
	return at
}

// softmax appends the probabilities of a row whose largest number is row[top].
func softmax(dst []float64, row []float32, top int) []float64 {
	sum := 0.
	for _, x := range row {
		e := math.Exp(float64(x) - float64(row[top]))
		dst = append(dst, e)
		sum += e
	}
	for i := range dst {
		dst[i] /= sum
	}
	return dst
}
