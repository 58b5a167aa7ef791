package farfield

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/train"
)

// Model is an open model. Its methods may be called concurrently. If the context of a method ends,
// the method returns the error of the context. What a model can do depends on how it was trained:
// Info lists its methods. Every other method returns an *UnsupportedError.
type Model struct {
	opened atomic.Pointer[opened] // nil: closed
}

// opened is a model that is open.
type opened struct {
	*inference.Model
	embedder func() (*inference.Embedder, error) // made once
}

// Option is an option of Open.
type Option struct{ set func(*inference.Options) }

// WithMechanism replaces the attention function of layers, as model.Config.Exchanged does. The
// weights stay. x.Factory, or one of WithFactories, builds a mechanism of your own.
func WithMechanism(x model.Exchange) Option {
	return Option{func(o *inference.Options) { o.Exchange = &x }}
}

// WithFactories gives the functions that build mechanisms of your own, by their names. They serve a
// run or saved model that has such mechanisms, and WithMechanism.
func WithFactories(f map[string]model.Factory) Option {
	return Option{func(o *inference.Options) { o.Factories = f }}
}

// WithInterpolatedPositions lets a published model with learned positions read texts that are
// longer than its table: the table is stretched by interpolation. Without this option such texts
// are cut.
func WithInterpolatedPositions() Option {
	return Option{func(o *inference.Options) { o.Positions = published.Interpolate }}
}

// WithPrecision holds the weights in fewer bits, as Compress of model.Model does. The model takes
// less memory, and its results change a little.
func WithPrecision(p nn.Precision) Option {
	return Option{func(o *inference.Options) { o.Precision = p }}
}

// Open opens the model in the folder dir: a run or a checkpoint of farfield train, a model that
// package model has saved, a published model in the Hugging Face layout, or a model that farfield
// exchange wrote. The folder of a model that farfield models fetch downloaded is printed by that
// command. Open returns an error if dir has no model, if a file is damaged (ErrDamaged), if a
// configuration has a field that this version does not know (ErrUnknownField), or if an option does
// not fit the model.
func Open(dir string, options ...Option) (*Model, error) {
	var o inference.Options
	for _, x := range options {
		if x.set != nil {
			x.set(&o)
		}
	}
	m, err := inference.Open(dir, o)
	if err != nil {
		return nil, err
	}
	x := new(Model)
	x.opened.Store(&opened{m, sync.OnceValues(func() (*inference.Embedder, error) { return m.NewEmbedder(0) })})
	return x, nil
}

// Close releases the memory of the model. Running calls end as usual, and sessions remain usable.
// Later calls of the model return ErrClosed. Close always returns nil.
func (m *Model) Close() error {
	m.opened.Store(nil)
	return nil
}

// Info describes a model.
type Info struct {
	Dir        string   // the folder
	Kind       string   // what the model is, such as "published bert encoder" or "run of the task file, of kind encoder"
	Can        []string // the methods that the model has: Tokenize, Embed, Classify, ClassifyFile, Score, Generate, Session
	Parameters int64    // learned numbers
	Layers     int
	Width      int      // width of a layer
	Vocabulary int      // number of tokens; 0: the model reads numbers
	Context    int      // number of tokens in a training sequence; 0: unknown. Embed may read fewer
	Labels     []string // names of the classes
	Prompts    []string // names of the prompts of the folder, for EmbedPrompt
	FixedState bool     // the size of a Session does not depend on the length of its text
}

// Info returns the description of the model. It returns an error if the model is closed or its
// configuration is not valid.
func (m *Model) Info() (Info, error) {
	x, err := m.model()
	if err != nil {
		return Info{}, err
	}
	c := x.Config()
	info := Info{Dir: x.Path(), Kind: x.Kind(), Can: x.Can(), Parameters: int64(c.Params()), Layers: c.Layers, Width: c.Width, Vocabulary: c.Vocab, Context: c.TrainedContext()}
	if p, err := x.Predictor(); err == nil {
		info.Labels = p.Classes
	}
	if published := x.Published(); published != nil && x.Check("Embed") == nil {
		prompts, err := published.Prompts()
		if err != nil {
			return info, err
		}
		info.Prompts = prompts.Names()
	}
	if x.Check("Session") == nil {
		info.FixedState, err = c.HasFixedState()
	}
	return info, err
}

// model returns the opened model. It returns ErrClosed after Close.
func (m *Model) model() (*opened, error) {
	if x := m.opened.Load(); x != nil {
		return x, nil
	}
	return nil, ErrClosed
}

// begin returns the opened model for a method. It returns an error if the model is closed or does
// not have the method, or ctx has ended.
func (m *Model) begin(ctx context.Context, method string) (*opened, error) {
	x, err := m.model()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	if err := x.Check(method); err != nil {
		return nil, &UnsupportedError{Method: method, Kind: x.Kind(), Can: x.Can(), Err: err}
	}
	return x, nil
}

// Embed returns a vector for each text, pooled and normalised as a published folder says. The
// vector that a run gives is the mean of its last layer over the tokens. The vector of an empty
// text is nil. If a text is longer than the model can read, its vector is that of its beginning, or
// of its end if the folder says so, and Embed returns all vectors together with a *TruncatedError.
// With any other error it returns no vectors: a *TextError of the text that has no tokens, or a
// character that the vocabulary lacks, is an ErrInput.
func (m *Model) Embed(ctx context.Context, texts ...string) ([][]float32, error) {
	return m.embed(ctx, nil, texts)
}

// EmbedPrompt is Embed with a prompt of the folder before each text. prompt is a name such as
// "query" or "document". An empty name means no prompt, while Embed uses the folder's default.
func (m *Model) EmbedPrompt(ctx context.Context, prompt string, texts ...string) ([][]float32, error) {
	return m.embed(ctx, &prompt, texts)
}

func (m *Model) embed(ctx context.Context, prompt *string, texts []string) ([][]float32, error) {
	x, err := m.begin(ctx, "Embed")
	if err != nil {
		return nil, err
	}
	e, err := x.embedder()
	if err != nil {
		return nil, err
	}
	list, err := e.Embed(ctx, prompt, texts)
	if err != nil {
		return nil, textError(err)
	}
	vectors := make([][]float32, len(list))
	var cut TruncatedError
	for i, x := range list {
		vectors[i] = x.Values
		cut.add(i, x.IsTruncated)
	}
	return vectors, cut.orNil()
}

// Prediction is the answer of a model for one input.
type Prediction struct {
	Label       string    // the most probable class; "": the model has no classes
	Probability float64   // probability of Label
	Classes     []Class   // all classes with their probabilities, in the model's order
	Numbers     []float64 // outputs of a model that predicts numbers
	Spans       []Span    // labels of the parts of the input, if the model labels parts
}

// Class is the name of a class and its probability.
type Class struct {
	Label       string
	Probability float64
}

// Span is a labelled part of a text, or a labelled position of another input.
type Span struct {
	Label      string
	Start, End int // first byte in the text and the byte after the last; both 0: a position without text
}

// Classify returns a prediction for each text: a class, numbers, or labels of its parts. If a text
// is longer than the model can read, its prediction is for a part of it, and Classify returns all
// predictions together with a *TruncatedError. With any other error it returns no predictions.
func (m *Model) Classify(ctx context.Context, texts ...string) ([]Prediction, error) {
	x, err := m.begin(ctx, "Classify")
	if err != nil {
		return nil, err
	}
	p, err := x.Predictor()
	if err != nil {
		return nil, err
	}
	list, err := p.PredictTexts(ctx, texts)
	if err != nil {
		return nil, textError(err)
	}
	return newPredictions(p, list)
}

// ClassifyPair returns the prediction for a pair of texts. The model must be a published one that
// was trained with pairs, such as a cross-encoder. ClassifyPair returns an error where Classify
// does.
func (m *Model) ClassifyPair(ctx context.Context, text, pair string) (Prediction, error) {
	x, err := m.begin(ctx, "Classify")
	if err != nil {
		return Prediction{}, err
	}
	p, err := x.Predictor()
	if err != nil {
		return Prediction{}, err
	}
	one, err := p.PredictPair(ctx, text, pair)
	if err != nil {
		return Prediction{}, err
	}
	list, err := newPredictions(p, []train.Prediction{one})
	return list[0], err
}

// ClassifyFile returns the predictions for the inputs in a file: a picture, a sound, a series or
// arrays, as the model was trained with. It returns an error where Classify does, and if the file
// cannot be read.
func (m *Model) ClassifyFile(ctx context.Context, path string) ([]Prediction, error) {
	x, err := m.begin(ctx, "ClassifyFile")
	if err != nil {
		return nil, err
	}
	p, err := x.Predictor()
	if err != nil {
		return nil, err
	}
	var list []train.Prediction
	err = p.PredictFile(ctx, path, func(_ string, r train.Prediction) error {
		list = append(list, r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return newPredictions(p, list)
}

// newPredictions returns predictions with the names of their classes, and a *TruncatedError if some
// are of a part of their input.
func newPredictions(p *inference.Predictor, list []train.Prediction) ([]Prediction, error) {
	names := p.Classes
	out := make([]Prediction, len(list))
	var cut TruncatedError
	for i, r := range list {
		cut.add(i, r.IsTruncated)
		y := &out[i]
		switch y.Numbers = r.Numbers; r.Kind {
		case task.Class:
			y.Label, y.Probability = names[r.Class], r.Probabilities[r.Class]
			for k, probability := range r.Probabilities {
				y.Classes = append(y.Classes, Class{names[k], probability})
			}
		case task.Labels, task.Next:
			for k, label := range r.Labels {
				s := Span{Label: names[label]}
				if r.Offsets != nil {
					s.Start, s.End = r.Offsets[k][0], r.Offsets[k][1]
				} else if p.HasByteLabels {
					s.Start, s.End = k, k+1
				}
				y.Spans = append(y.Spans, s)
			}
		}
	}
	return out, cut.orNil()
}

// LineScore is the information content of a line: how many bits the model needs to write it.
type LineScore struct {
	Bits  float64
	Bytes int // bytes of the line, with its line break
}

// Score returns the bits of each line of text, predicted from the lines before it. A line that
// needs many more bits a byte than others is a surprise to the model. A text that is longer than
// the trained context is read in windows of that length. Score returns an error if the model's
// vocabulary lacks a character, or its tokenizer changes the text.
func (m *Model) Score(ctx context.Context, text string) ([]LineScore, error) {
	x, err := m.begin(ctx, "Score")
	if err != nil {
		return nil, err
	}
	s, err := x.NewScorer()
	if err != nil {
		return nil, err
	}
	lines := slices.Collect(bytes.Lines([]byte(text)))
	list, err := s.ScoreLines(ctx, nil, lines...)
	if err != nil {
		if lost := s.Err(); lost == nil { // the line is refused
			err = &TextError{Text: len(list), Err: err}
		}
		return nil, err
	}
	scores := make([]LineScore, len(list))
	for i, l := range list {
		scores[i] = LineScore{l.Bits, int(l.Bytes)}
	}
	return scores, nil
}

// Tokens holds the tokens of a text.
type Tokens struct {
	IDs     []int32
	Offsets [][2]int // first byte of each token in the text, and the byte after its last; both 0: a special token
}

// Tokenize returns the tokens of each text, with the special tokens that the model adds.
func (m *Model) Tokenize(ctx context.Context, texts ...string) ([]Tokens, error) {
	x, err := m.begin(ctx, "Tokenize")
	if err != nil {
		return nil, err
	}
	list := make([]Tokens, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if list[i].IDs, list[i].Offsets, err = x.Tokenize(text); err != nil {
			return nil, &TextError{Text: i, Err: err}
		}
	}
	return list, nil
}

// Decode returns the text of token ids in the middle of a text. It leaves out special tokens, and
// keeps bytes that are not UTF-8. It returns an error if an id is outside the vocabulary.
func (m *Model) Decode(ctx context.Context, ids ...int32) (string, error) {
	x, err := m.begin(ctx, "Tokenize")
	if err != nil {
		return "", err
	}
	var text []byte
	for _, id := range ids {
		if text, err = x.Bytes(text, id); err != nil {
			return "", err
		}
	}
	return string(text), nil
}
