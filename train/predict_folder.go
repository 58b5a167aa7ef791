package train

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/pretrained"
)

// publishedPredictor applies a published model with a head of classes.
type publishedPredictor struct {
	model   *pretrained.Model
	kind    pretrained.ClassKind
	classes []string
}

// openPublishedPredictor opens a folder with another attention function; nil: with its own. It returns an error if its model has no head of
// classes, or a model of texts has no tokenizer.
func openPublishedPredictor(path string, x *model.Exchange) (*Predictor, error) {
	m, err := pretrained.OpenWith(path, pretrained.Options{Exchange: x})
	if err != nil {
		return nil, err
	}
	p := &publishedPredictor{m, m.ClassKind(), m.Labels()}
	if p.kind != pretrained.NoClasses && p.readsImages() {
		return &Predictor{published: p}, nil
	}
	return &Predictor{published: p}, m.CheckClasses()
}

// Published returns the published model; nil: the model is a run's.
func (p *Predictor) Published() *pretrained.Model {
	if p.published == nil {
		return nil
	}
	return p.published.model
}

// readsImages reports whether inputs are images.
func (p *publishedPredictor) readsImages() bool { return p.model.Config().Inputs > 0 }

// describeInput describes an input.
func (p *publishedPredictor) describeInput() string {
	if p.readsImages() {
		return "a PNG or JPEG, or a file .npz with pixel_values [B,channels,size,size]"
	}
	return "a text"
}

// predictImages calls each with the prediction for a picture, or for every image of
// pixel_values in an .npz file, and with its number if there are several.
func (p *publishedPredictor) predictImages(ctx context.Context, path string, each func(name string, r Prediction) error) error {
	if !strings.EqualFold(filepath.Ext(path), ".npz") {
		pixels, err := p.model.ReadPixels(path)
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
	if err := p.model.CheckPixels(a.Shape); err != nil {
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
func (p *publishedPredictor) predictPixels(ctx context.Context, pixels []float32) (Prediction, error) {
	out, err := p.model.Forward(ctx, &pretrained.Input{B: 1, Pixels: pixels})
	if err != nil {
		return Prediction{}, err
	}
	logits, err := out.Logits.Float32()
	if err != nil {
		return Prediction{}, err
	}
	return p.prediction(&pretrained.ClassScores{Logits: logits}), nil
}

// taskKind returns the kind of prediction.
func (p *publishedPredictor) taskKind() task.Kind {
	switch p.kind {
	case pretrained.Regression:
		return task.Regression
	case pretrained.TokenLabels:
		return task.Labels
	}
	return task.Class
}

// PredictPair returns the prediction of a published model for a pair of texts. It returns an
// error if the model is a run's or takes no pairs, an output is not finite, or ctx ends.
func (p *Predictor) PredictPair(ctx context.Context, text, pair string) (Prediction, error) {
	if p.published == nil {
		return Prediction{}, fmt.Errorf("an input is %s, no pair of texts for a published model", p.DescribeInput())
	}
	list, err := p.published.model.ClassifyPairs(ctx, [][2]string{{validText(text), validText(pair)}})
	if err != nil {
		return Prediction{}, err
	}
	return p.published.prediction(&list[0]), nil
}

// validText returns text with U+FFFD in place of bytes that are not UTF-8.
func validText(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// predict returns the prediction for a text.
func (p *publishedPredictor) predict(ctx context.Context, text string) (Prediction, error) {
	valid := validText(text)
	list, err := p.model.Classify(ctx, []string{valid})
	if err != nil {
		return Prediction{}, err
	}
	r := p.prediction(&list[0])
	moveOffsets(r.Offsets, text, valid)
	return r, nil
}

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
func (p *publishedPredictor) prediction(s *pretrained.ClassScores) Prediction {
	r := Prediction{Kind: p.taskKind()}
	r.Tokens, r.IsTruncated = s.Tokens, s.IsTruncated
	switch p.kind {
	case pretrained.Regression:
		r.Columns = len(s.Logits)
		r.Numbers = p.model.Numbers(s)
	case pretrained.TokenLabels:
		r.Offsets = s.Offsets
		for i := range s.Offsets {
			r.Labels = append(r.Labels, largestIndex(s.Logits[i*len(p.classes):][:len(p.classes)]))
		}
	default:
		r.Class, r.Probabilities = p.model.Probabilities(s)
	}
	return r
}
