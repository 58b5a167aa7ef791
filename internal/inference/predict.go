package inference

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// Predictor predicts classes, numbers or labels of inputs. Its methods may be called concurrently.
type Predictor struct {
	train.PredictorInfo
	of   *Model
	run  *train.Predictor    // nil: the model is published
	head published.ClassKind // kind of a published model's head

	isVector bool // the vectors of the published model are the logits of the classes
}

// Predictor returns the predictor of the model. It returns an error if the model does not predict
// classes, numbers or labels.
func (m *Model) Predictor() (*Predictor, error) { return m.predictor() }

// openPredictor is Predictor without what an earlier call has opened.
func (m *Model) openPredictor() (*Predictor, error) {
	if m.folder != nil {
		return m.openPublished()
	}
	run, err := train.NewPredictor(m.path, m.body)
	if err != nil {
		return nil, err
	}
	return &Predictor{PredictorInfo: run.PredictorInfo, of: m, run: run}, nil
}

// openPublished returns the predictor of a published model with a head of classes.
func (m *Model) openPublished() (*Predictor, error) {
	p := &Predictor{of: m, head: m.folder.ClassKind()}
	p.Kind, p.Input, p.Classes = task.Class, "a text", m.folder.Labels()
	switch p.head {
	case published.Regression:
		p.Kind = task.Regression
	case published.TokenLabels:
		p.Kind = task.Labels
	}
	if m.folder.Config().Inputs > 0 && p.head != published.NoClasses {
		p.Input = "a PNG or JPEG, or a file .npz with pixel_values [B,channels,size,size]"
		return p, nil
	}
	p.NeedsLines = true
	if p.head == published.NoClasses {
		if p.Classes = m.folder.VectorClasses(); p.Classes != nil && m.folder.Tokenizer() != nil {
			p.isVector = true
			return p, nil
		}
	}
	return p, m.folder.CheckClasses()
}

// ClassNames returns the names of the classes.
func (p *Predictor) ClassNames() []string { return p.Classes }

// Predict returns the prediction for one text. It returns an error where PredictTexts does.
func (p *Predictor) Predict(ctx context.Context, text string) (train.Prediction, error) {
	list, err := p.PredictTexts(ctx, []string{text})
	if err != nil {
		return train.Prediction{}, err
	}
	return list[0], nil
}

// PredictTexts returns the predictions for texts. It returns a *TextError if a text is empty or does
// not fit the task, and an error if inputs are files, an output is not finite, or ctx ends.
func (p *Predictor) PredictTexts(ctx context.Context, texts []string) ([]train.Prediction, error) {
	if !p.NeedsLines {
		return nil, fmt.Errorf("an input is %s, no line", p.Input)
	}
	if p.run == nil {
		list, err := p.predictTexts(ctx, texts)
		return list, p.of.findText(ctx, texts, err)
	}
	list := make([]train.Prediction, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var err error
		list[i], err = p.run.Predict(ctx, []byte(text))
		var line *train.LineError
		if errors.As(err, &line) {
			return nil, &TextError{Text: i, Err: fault.Mark(fault.ErrInput, err)}
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// predictTexts is PredictTexts of a published model.
func (p *Predictor) predictTexts(ctx context.Context, texts []string) ([]train.Prediction, error) {
	valid := make([]string, len(texts))
	for i, text := range texts {
		if valid[i] = validText(text); text == "" {
			return nil, &TextError{Text: i, Err: fault.Mark(fault.ErrInput, errors.New("the text is empty"))}
		}
	}
	scores, err := p.classify(ctx, valid)
	if err != nil {
		return nil, err
	}
	list := make([]train.Prediction, len(texts))
	for i := range scores {
		list[i] = p.prediction(&scores[i])
		moveOffsets(list[i].Offsets, texts[i], valid[i])
	}
	return list, nil
}

// classify returns the logits of texts.
func (p *Predictor) classify(ctx context.Context, texts []string) ([]published.ClassScores, error) {
	if !p.isVector {
		return p.of.folder.Classify(ctx, texts)
	}
	v, err := p.of.folder.EmbedWith(ctx, texts, published.EmbedOptions{})
	if err != nil {
		return nil, err
	}
	scores := make([]published.ClassScores, len(texts))
	for i, n := range v.Tokens {
		scores[i] = published.ClassScores{Logits: v.Rows[i], Tokens: n, IsTruncated: v.MaxTokens > 0 && n > v.MaxTokens}
	}
	return scores, nil
}

// PredictPair returns the prediction of a published model for a pair of texts. It returns an error
// if the model is from a run or takes no pairs, if an output is not finite, or if ctx ends.
func (p *Predictor) PredictPair(ctx context.Context, text, pair string) (train.Prediction, error) {
	if p.run != nil {
		return train.Prediction{}, fmt.Errorf("an input is %s, no pair of texts for a published model", p.Input)
	}
	list, err := p.of.folder.ClassifyPairs(ctx, [][2]string{{validText(text), validText(pair)}})
	if err != nil {
		return train.Prediction{}, err
	}
	return p.prediction(&list[0]), nil
}

// Read returns the input that the model of a run gets for a line. It returns an error for a
// published model, and if inputs are files or the line does not fit the task.
func (p *Predictor) Read(text []byte) (*train.Reading, error) {
	if p.run == nil {
		return nil, fmt.Errorf("an input is %s, no line of a task", p.Input)
	}
	return p.run.Read(text)
}

// PredictFile calls each with the prediction for every input of a file, and with the name of the
// input if the file has several. For a published model the file is a picture, or an .npz file with
// pixel_values. PredictFile returns an error if the file cannot be read, if inputs are lines of
// text, if each returns one, or if ctx ends.
func (p *Predictor) PredictFile(ctx context.Context, path string, each func(name string, r train.Prediction) error) error {
	switch {
	case p.NeedsLines:
		return fmt.Errorf("an input is %s, no file", p.Input)
	case p.run != nil:
		return p.run.PredictFile(ctx, path, each)
	}
	if !strings.EqualFold(filepath.Ext(path), ".npz") {
		pixels, err := p.of.folder.ReadPixels(path)
		if err != nil {
			return err
		}
		r, err := p.predictPixels(ctx, pixels)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return each("", r)
	}
	z, err := array.OpenNPZ(path)
	if err != nil {
		return err
	}
	defer z.Close()
	for _, name := range z.Names() {
		outputs := []string{"hidden", "last_hidden_state", "logits", "pooler_output", "do"} // of forward: the file may be its reference
		if name != "pixel_values" && !slices.Contains(outputs, name) {
			return fmt.Errorf("%s: %q: no array of this name is read; there is pixel_values", path, name)
		}
	}
	a, err := z.ReadArray("pixel_values")
	if err != nil {
		return err
	}
	pixels, err := a.Float32()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := p.of.folder.CheckPixels(a.Shape); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	size := len(pixels) / a.Shape[0]
	for i := range a.Shape[0] {
		r, err := p.predictPixels(ctx, pixels[i*size:][:size])
		if err != nil {
			return fmt.Errorf("%s: image %d: %w", path, i, err)
		}
		name := ""
		if a.Shape[0] > 1 {
			name = fmt.Sprint(i)
		}
		if err := each(name, r); err != nil {
			return err
		}
	}
	return nil
}

// predictPixels returns the prediction of the pixel_values of an image.
func (p *Predictor) predictPixels(ctx context.Context, pixels []float32) (train.Prediction, error) {
	out, err := p.of.folder.Forward(ctx, &published.Input{B: 1, Pixels: pixels})
	if err != nil {
		return train.Prediction{}, err
	}
	logits, err := out.Logits.Float32()
	if err != nil {
		return train.Prediction{}, err
	}
	return p.prediction(&published.ClassScores{Logits: logits}), nil
}

// validText returns text with U+FFFD in place of bytes that are not UTF-8.
func validText(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// moveOffsets changes offsets of bytes of valid, which is validText(text), to those of text.
func moveOffsets(offsets [][2]int, text, valid string) {
	if text == valid {
		return
	}
	from := make([]int, 0, len(valid)+1) // bytes of text, by bytes of valid
	for at := 0; at < len(text); {
		r, n := utf8.DecodeRuneInString(text[at:])
		if r != utf8.RuneError || n > 1 {
			for k := range n {
				from = append(from, at+k)
			}
			at += n
			continue
		}
		from = append(from, at, at, at) // of U+FFFD, for a run of bytes that are not UTF-8
		for r == utf8.RuneError && n == 1 {
			at++
			r, n = utf8.DecodeRuneInString(text[at:])
		}
	}
	from = append(from, len(text))
	for i := range offsets {
		for k := range offsets[i] {
			offsets[i][k] = from[offsets[i][k]]
		}
	}
}

// prediction returns the prediction of outputs.
func (p *Predictor) prediction(s *published.ClassScores) train.Prediction {
	r := train.Prediction{Kind: p.Kind}
	r.Tokens, r.IsTruncated = s.Tokens, s.IsTruncated
	switch p.head {
	case published.Regression:
		r.Columns = len(s.Logits)
		r.Numbers = p.of.folder.Numbers(s)
	case published.TokenLabels:
		r.Offsets = s.Offsets
		for i := range s.Offsets {
			r.Labels = append(r.Labels, largest(s.Logits[i*len(p.Classes):][:len(p.Classes)]))
		}
	default:
		r.Class, r.Probabilities = p.of.folder.Probabilities(s)
	}
	return r
}

// largest returns the index of the largest number, the first among equals.
func largest(row []float32) int { return slices.Index(row, slices.Max(row)) }
