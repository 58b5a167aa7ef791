package train

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/task"
)

// Predictor says what the model of a run makes of inputs that are not its data. It is
// not for several goroutines at a time.
type Predictor struct {
	question *task.Question
	source   task.Source // question, as the model learned it
	e        *evaluation
	scales   *task.Scales
	probs    []float64
}

// Prediction is what a model makes of an input. Its slices are valid until the next one.
type Prediction struct {
	Kind          task.Kind // Class, Regression, Labels, Next or Trace
	Numbers       []float64 // Regression and Trace: [rows, Columns]
	Columns       int       // of Numbers
	Class         int       // Class: the most probable, the first of those that are equal
	Probabilities []float64 // Class: of each
	Labels        []int     // Labels and Next: the class of each position that is seen
}

// OpenPredictor reads the model of a run, as Load does, and what the run knows of its
// task: names of classes, scales of numbers.
func OpenPredictor(path string) (*Predictor, error) {
	if err := CheckForeign(path); err != nil {
		return nil, err
	}
	run := RunFolder(path)
	config, err := RunConfig(run)
	if err != nil {
		return nil, err
	}
	if err := task.CheckAskable(config.Task); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m, _, err := LoadModel(path)
	if err != nil {
		return nil, err
	}
	c := m.Config()
	known := task.ModelInfo{Channels: c.Inputs, Length: c.Context, Outputs: c.Outputs}
	if known.Outputs == 0 {
		known.Outputs = c.Vocab
	}
	row, err := task.Lookup(config.Task)
	if err != nil {
		return nil, err
	}
	if c.Loss != model.Squared && row.HasOwnClasses() {
		if known.Classes, err = readClasses(run, c.Outputs); err != nil {
			return nil, err
		}
	}
	if known.Scales, err = readScales(run); err != nil {
		return nil, err
	}
	p := &Predictor{scales: known.Scales}
	if p.question, err = task.Ask(config.Task, config.TaskSet, known); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	spec := p.question.Spec()
	if outputs := max(spec.Classes, spec.Outputs); spec.Vocab != c.Vocab || spec.Channels != c.Inputs || outputs != known.Outputs || spec.Length/spec.Parts != c.Context {
		return nil, fmt.Errorf("%s: the run's task has %d tokens, %d numbers, %d outputs and %d positions, the model %d, %d, %d and %d",
			path, spec.Vocab, spec.Channels, outputs, spec.Length/spec.Parts, c.Vocab, c.Inputs, known.Outputs, c.Context)
	}
	p.source = p.question
	if config.Standardise {
		if p.source, err = task.Standardise(p.source, config.InputMean, config.InputDeviation); err != nil {
			return nil, fmt.Errorf("%s: standardise: %w", path, err)
		}
	}
	if config.LRAQuirk {
		p.source = task.Pad(p.source)
	}
	p.e = newEvaluation(m, p.source)
	return p, nil
}

// Classes returns the names of the classes; none of a model of numbers.
func (p *Predictor) Classes() []string { return p.question.ClassNames() }

// Kind returns what the model says: Class, Regression, Labels, Next or Trace.
func (p *Predictor) Kind() task.Kind { return p.e.spec.Kind }

// NeedsLines reports whether an input is a line of text, for Predict; else it is a file, for
// PredictFile.
func (p *Predictor) NeedsLines() bool { return p.question.NeedsLine() }

// HasByteLabels reports whether labels are those of the bytes of a text.
func (p *Predictor) HasByteLabels() bool { return p.NeedsLines() && p.Kind() == task.Labels }

// DescribeInput says what an input is.
func (p *Predictor) DescribeInput() string { return p.question.InputKind() }

// Predict returns what the model makes of a line. Of a text the first bytes are seen, as
// many as its task has. An empty line is an error, and so is any where inputs are files.
func (p *Predictor) Predict(text []byte) (Prediction, error) {
	if !p.NeedsLines() {
		return Prediction{}, fmt.Errorf("an input is %s, no line", p.DescribeInput())
	}
	if err := p.question.SetLine(text); err != nil {
		return Prediction{}, err
	}
	return p.predictSamples()
}

// PredictFile calls each with what the model makes of the inputs in a file, and with their
// names where it has several. Of a long one the positions are seen that the task has, where
// it asks for a label of each, all in windows. It ends with the error of each.
func (p *Predictor) PredictFile(path string, each func(name string, r Prediction) error) error {
	if p.NeedsLines() {
		return fmt.Errorf("an input is %s, no file", p.DescribeInput())
	}
	list, err := p.question.ReadFile(path)
	if err != nil {
		return err
	}
	for _, g := range list {
		p.question.SetInput(g)
		r, err := p.predictSamples()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := each(g.Name, r); err != nil {
			return err
		}
	}
	return nil
}

// predictSamples returns what the model makes of the samples of the question, which follow each other.
func (p *Predictor) predictSamples() (Prediction, error) {
	spec := &p.e.spec
	r := Prediction{Kind: spec.Kind}
	for i := range p.question.Spec().Count[task.Test] {
		if err := p.addSample(&r, i); err != nil {
			return r, err
		}
	}
	if r.Columns = spec.Outputs; p.scales == nil {
		return r, nil
	}
	r.Columns = len(p.scales.Mean)
	for i := range r.Numbers {
		c := i % r.Columns
		r.Numbers[i] = r.Numbers[i]*p.scales.Deviation[c] + p.scales.Mean[c]
	}
	return r, nil
}

// addSample adds what the model makes of a sample.
func (p *Predictor) addSample(r *Prediction, i int) error {
	spec := &p.e.spec
	samples := p.e.sampleBuffer(1)
	if err := p.question.Sample(&samples[0], task.Test, i); err != nil {
		return err
	}
	seen := (&collector{spec: *spec}).countPositions(&samples[0]) // without padding
	if err := p.source.Sample(&samples[0], task.Test, i); err != nil {
		return err
	}
	rows := 1
	if spec.Kind == task.Labels || spec.Kind == task.Next || spec.Kind == task.Trace {
		rows = p.e.countPositions(&samples[0])
	}
	p.e.packBatch(&p.e.batch, samples)
	p.e.logits = resize(p.e.logits, rows*p.e.outputs)
	if err := p.e.model.Logits(&p.e.batch.Batch, p.e.logits); err != nil {
		return err
	}
	for _, x := range p.e.logits {
		if x-x != 0 {
			return fmt.Errorf("the model says %v", x)
		}
	}
	switch spec.Kind {
	case task.Regression, task.Trace:
		for _, x := range p.e.logits[:min(rows, max(seen, 1))*p.e.outputs] {
			r.Numbers = append(r.Numbers, float64(x))
		}
	case task.Labels, task.Next:
		for i := range min(rows, seen) {
			r.Labels = append(r.Labels, largestIndex(p.e.logits[i*p.e.outputs:][:p.e.outputs]))
		}
	default:
		r.Class = largestIndex(p.e.logits)
		p.probs = appendSoftmax(p.probs[:0], p.e.logits, r.Class)
		r.Probabilities = p.probs
	}
	return nil
}

// largestIndex is the index of the largest number, the first of those that are equal.
func largestIndex(row []float32) int {
	at := 0
	for i, x := range row {
		if x > row[at] {
			at = i
		}
	}
	return at
}

// appendSoftmax appends the probabilities of a row whose largest number is row[top].
func appendSoftmax(dst []float64, row []float32, top int) []float64 {
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
