package train

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train/data"
)

// Predictor applies the model of a run to new inputs. Its methods may be called concurrently. The
// calls share the weights; each has its own memory for a pass, which later calls reuse.
type Predictor struct {
	PredictorInfo
	tokens *task.Tokens // of texts; nil: those of the task
	more   func() (*asker, error)

	mu   sync.Mutex
	idle []*asker
}

// PredictorInfo says what a model reads and answers.
type PredictorInfo struct {
	Kind          data.Kind // of a prediction: Class, Regression, Labels, Next or Trace
	Classes       []string  // names of the classes; nil for numbers
	NeedsLines    bool      // inputs are lines of text, for Predict; otherwise files, for PredictFile
	HasByteLabels bool      // each byte of a text has a label
	Input         string    // what an input is, for messages
}

// asker asks the model of a run, one input after another.
type asker struct {
	question *task.Question
	source   data.Source // question, prepared as in training
	e        *evaluation
	scales   *task.Scales
}

// take returns an asker that no other call uses until it is put back.
func (p *Predictor) take() (*asker, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		a := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return a, nil
	}
	return p.more()
}

// put gives back an asker.
func (p *Predictor) put(a *asker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, a)
}

// Prediction is the output of a model for one input. The caller owns its slices.
type Prediction struct {
	Kind          data.Kind // Class, Regression, Labels, Next or Trace
	Numbers       []float64 // Regression and Trace: the predicted numbers [rows, Columns]
	Columns       int       // columns of Numbers
	Deviation     []float64 // standard deviation of each column among the training targets; nil: Numbers are the model's outputs
	Class         int       // Class: the most probable class, the first among equals
	Probabilities []float64 // Class: probability of each class [classes]
	Labels        []int     // Labels and Next: class of each visible position
	Offsets       [][2]int  // Labels of tokens: first byte and end of each token in the text; nil: one label for each byte or row
	Tokens        int       // tokens of a text, or positions of a file, before it was cut; 0: not counted
	IsTruncated   bool      // the model read only a part of the input
}

// NewPredictor returns the Predictor of a model that ReadCheckpoint has found at path, or of a model
// of the same shape. The run gives the names of classes and columns and the scales of numbers. It
// returns an error if path is in no run, if the run is damaged, or if its task does not predict. A
// run on data of your own has no Predictor: PackBatch makes batches of its samples, and Logits of
// model.Model gives the outputs.
func NewPredictor(path string, m *model.Model) (*Predictor, error) {
	if isAlone(path) {
		return nil, fmt.Errorf("%s: is a checkpoint outside of a run, and has no task; Logits of model.Model gives its outputs", path)
	}
	run := RunFolder(path)
	config, err := RunConfig(run)
	if err != nil {
		return nil, err
	}
	row, err := task.Lookup(config.Task)
	if err != nil {
		return nil, fmt.Errorf("%s: task %q: is none of farfield's; of a run on data of your own, Logits of model.Model gives the outputs", path, config.Task)
	}
	if err := task.CheckAskable(config.Task); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c := m.Config()
	known := task.ModelInfo{Channels: c.Inputs, Length: c.Context, Outputs: c.Outputs, Tokens: config.startTokens()}
	if known.Outputs == 0 {
		known.Outputs = c.Vocab
	}
	if c.Loss != model.Squared && row.HasOwnClasses() {
		if known.Classes, err = readClasses(run, c.Outputs); err != nil {
			return nil, err
		}
	}
	if known.Columns, err = readColumns(run, c.Inputs); err != nil {
		return nil, err
	}
	if known.Scales, err = readScales(run); err != nil {
		return nil, err
	}
	question, err := task.Ask(config.Task, config.TaskSet, known)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	spec := question.Spec()
	if outputs := max(spec.Classes, spec.Outputs); spec.Vocab != c.Vocab || spec.Channels != c.Inputs || outputs != known.Outputs || spec.Length/spec.Sequences() != c.Context {
		return nil, fmt.Errorf("%s: the run's task has %d tokens, %d numbers, %d outputs and %d positions, the model %d, %d, %d and %d",
			path, spec.Vocab, spec.Channels, outputs, spec.Length/spec.Sequences(), c.Vocab, c.Inputs, known.Outputs, c.Context)
	}
	p := &Predictor{tokens: known.Tokens}
	p.more = func() (*asker, error) {
		question, err := task.Ask(config.Task, config.TaskSet, known)
		if err != nil {
			return nil, err
		}
		source, err := config.adaptValues(question)
		if err != nil {
			return nil, err
		}
		return &asker{question, source, newEvaluation(m.Share(), source), known.Scales}, nil
	}
	first, err := p.more()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p.idle = []*asker{first}
	kind, isLine := first.e.spec.Kind, question.NeedsLine()
	p.PredictorInfo = PredictorInfo{kind, question.ClassNames(), isLine, isLine && kind == data.Labels, question.InputKind()}
	return p, nil
}

// Reading is the input of a model for a line of text.
type Reading struct {
	Batch *model.Batch
	Spec  data.Spec
	// Texts has the text of each token of Batch, or the name of a special token. nil: each token is a
	// byte, or a token of the task, or the line has several parts.
	Texts []string
}

// Read returns the input that the model gets for a line. It returns an error if inputs are files or
// the line does not fit the task.
func (p *Predictor) Read(text []byte) (*Reading, error) {
	if !p.NeedsLines {
		return nil, fmt.Errorf("an input is %s, no line", p.Input)
	}
	a, err := p.take()
	if err != nil {
		return nil, err
	}
	defer p.put(a)
	if err := a.question.SetLine(text); err != nil {
		return nil, &LineError{err}
	}
	var s data.Sample
	if err := a.source.Sample(&s, data.Test, 0); err != nil {
		return nil, err
	}
	r := &Reading{Batch: PackBatch(a.e.spec, s), Spec: a.e.spec}
	if p.tokens == nil || r.Spec.Parts > 1 {
		return r, nil
	}
	r.Texts, err = tokenTexts(p.tokens.Vocabulary, r.Batch.Tokens)
	return r, err
}

// tokenTexts returns the texts of tokens. A special token of a tokenizer, and one without bytes, has
// its name.
func tokenTexts(vocab *token.Vocabulary, ids []int32) ([]string, error) {
	words, texts := vocab.Tokenizer(), make([]string, len(ids))
	for i, id := range ids {
		if words != nil {
			if texts[i] = string(words.Bytes(id)); texts[i] == "" || words.IsSpecial(id) {
				texts[i] = words.Token(id)
			}
			continue
		}
		text, err := vocab.Decode(nil, id)
		if err != nil {
			return nil, err
		}
		texts[i] = string(text)
	}
	return texts, nil
}

// LineError is the error of a line that does not fit the task.
type LineError struct{ Err error }

// Error returns the message of the error, without the line.
func (e *LineError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the line.
func (e *LineError) Unwrap() error { return e.Err }

// Predict returns the prediction for a line. Bytes beyond the length of the task are
// ignored. It returns a *LineError if the line is empty or does not fit the task, and an
// error if inputs are files, an output is not finite, or ctx ends.
func (p *Predictor) Predict(ctx context.Context, text []byte) (Prediction, error) {
	if !p.NeedsLines {
		return Prediction{}, fmt.Errorf("an input is %s, no line", p.Input)
	}
	a, err := p.take()
	if err != nil {
		return Prediction{}, err
	}
	defer p.put(a)
	if err := a.question.SetLine(text); err != nil {
		return Prediction{}, &LineError{err}
	}
	r, err := a.predictSamples(ctx)
	r.Tokens = a.question.LineSize()
	r.IsTruncated = r.Tokens > a.question.Spec().Length
	return r, err
}

// PredictFile calls each with the prediction for every input of a file, and with the name of the
// input if the file has several. An input longer than the task allows is cut, unless the task
// labels each position: then it is read in windows. PredictFile returns an error if the file cannot
// be read, if inputs are lines of text, if each returns one, or if ctx ends.
func (p *Predictor) PredictFile(ctx context.Context, path string, each func(name string, r Prediction) error) error {
	if p.NeedsLines {
		return fmt.Errorf("an input is %s, no file", p.Input)
	}
	a, err := p.take()
	if err != nil {
		return err
	}
	defer p.put(a)
	list, err := a.question.ReadFile(path)
	if err != nil {
		return err
	}
	for _, g := range list {
		a.question.SetInput(g)
		r, err := a.predictSamples(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		r.Tokens = g.Size
		r.IsTruncated = r.Tokens > a.question.Spec().Length
		if err := each(g.Name, r); err != nil {
			return err
		}
	}
	return nil
}

// predictSamples returns the joint prediction for the successive samples of the question.
func (p *asker) predictSamples(ctx context.Context) (Prediction, error) {
	spec := &p.e.spec
	r := Prediction{Kind: spec.Kind}
	for i := range p.question.Spec().Count[data.Test] {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		if err := p.addSample(ctx, &r, i); err != nil {
			return r, err
		}
	}
	if r.Columns = spec.Outputs; p.scales == nil {
		return r, nil
	}
	r.Columns, r.Deviation = len(p.scales.Mean), p.scales.Deviation
	for i := range r.Numbers {
		c := i % r.Columns
		r.Numbers[i] = r.Numbers[i]*p.scales.Deviation[c] + p.scales.Mean[c]
		if last := p.question.Last(); last != nil {
			r.Numbers[i] += last[c]
		}
	}
	return r, nil
}

// addSample appends the prediction for sample i to r.
func (p *asker) addSample(ctx context.Context, r *Prediction, i int) error {
	spec := &p.e.spec
	samples := p.e.sampleBuffer(1)
	if err := p.question.Sample(&samples[0], data.Test, i); err != nil {
		return err
	}
	seen := (&collector{spec: *spec}).countPositions(&samples[0]) // without padding
	if err := p.source.Sample(&samples[0], data.Test, i); err != nil {
		return err
	}
	rows := 1
	if spec.Kind == data.Labels || spec.Kind == data.Next || spec.Kind == data.Trace {
		rows = p.e.countPositions(&samples[0])
	}
	p.e.packBatch(&p.e.batch, samples)
	p.e.logits = resize(p.e.logits, rows*p.e.outputs)
	if err := p.e.model.Logits(ctx, &p.e.batch.Batch, p.e.logits); err != nil {
		return err
	}
	for _, x := range p.e.logits {
		if x-x != 0 {
			return fmt.Errorf("the model says %v", x)
		}
	}
	switch spec.Kind {
	case data.Regression, data.Trace:
		for _, x := range p.e.logits[:min(rows, max(seen, 1))*p.e.outputs] {
			r.Numbers = append(r.Numbers, float64(x))
		}
	case data.Labels, data.Next:
		for i := range min(rows, seen) {
			r.Labels = append(r.Labels, largestIndex(p.e.logits[i*p.e.outputs:][:p.e.outputs]))
		}
	default:
		r.Class = largestIndex(p.e.logits)
		r.Probabilities = appendSoftmax(make([]float64, 0, len(p.e.logits)), p.e.logits, r.Class)
	}
	return nil
}

// largestIndex returns the index of the largest number, the first among equals.
func largestIndex(row []float32) int {
	at := 0
	for i, x := range row {
		if x > row[at] {
			at = i
		}
	}
	return at
}

// appendSoftmax appends the softmax of a row [n] to dst; row[top] is its largest number.
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
