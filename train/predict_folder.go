package train

import (
	"context"
	"strings"

	"github.com/farfield-ml/farfield/pretrained"
	"github.com/farfield-ml/farfield/task"
)

// publishedPredictor applies a published model with a head of classes.
type publishedPredictor struct {
	model   *pretrained.Model
	kind    pretrained.ClassKind
	classes []string
}

// openPublishedPredictor opens a folder. It returns an error if its model has no head of
// classes or reads no texts.
func openPublishedPredictor(path string) (*Predictor, error) {
	m, err := pretrained.Open(path)
	if err != nil {
		return nil, err
	}
	if err := m.CheckClasses(); err != nil {
		return nil, err
	}
	return &Predictor{published: &publishedPredictor{m, m.ClassKind(), m.Labels()}}, nil
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

// predict returns the prediction for a text.
func (p *publishedPredictor) predict(text string) (Prediction, error) {
	r := Prediction{Kind: p.taskKind()}
	list, err := p.model.Classify(context.Background(), []string{strings.ToValidUTF8(text, "\ufffd")})
	if err != nil {
		return r, err
	}
	s := &list[0]
	r.Tokens, r.IsTruncated = s.Tokens, s.IsTruncated
	switch p.kind {
	case pretrained.Regression:
		r.Columns = len(s.Logits)
		for _, x := range s.Logits {
			r.Numbers = append(r.Numbers, float64(x))
		}
	case pretrained.TokenLabels:
		r.Offsets = s.Offsets
		for i := range s.Offsets {
			r.Labels = append(r.Labels, largestIndex(s.Logits[i*len(p.classes):][:len(p.classes)]))
		}
	default:
		r.Class, r.Probabilities = p.model.Probabilities(s)
	}
	return r, nil
}
