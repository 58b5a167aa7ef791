package serve

import (
	"context"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/serve"
	"github.com/farfield-ml/farfield/internal/sessions"
	"github.com/farfield-ml/farfield/train"
)

// watchKeys makes the parts of o warn once of texts whose keys lie far from the centres of an exchanged
// model.
func watchKeys(e *env.Env, m *inference.Model, o *serve.Options) {
	ids := func(list []int32) { m.NoteKeyDistance(e.Context, e.Notes(), list) }
	text := func(list []string) {
		for _, s := range list {
			m.NoteTextDistance(e.Context, e.Notes(), s)
		}
	}
	if o.Embedder != nil {
		o.Embedder = watchedEmbedder{o.Embedder, text}
	}
	if o.Classifier != nil {
		o.Classifier = watchedClassifier{o.Classifier, text}
	}
	if o.Sessions != nil {
		o.Sessions = watchedSessions{o.Sessions, ids}
	}
}

// watchedEmbedder notes the texts of an embedder.
type watchedEmbedder struct {
	serve.Embedder
	note func(texts []string)
}

func (x watchedEmbedder) Embed(ctx context.Context, prompt *string, texts []string) ([]inference.Embedding, error) {
	x.note(texts)
	return x.Embedder.Embed(ctx, prompt, texts)
}

// watchedClassifier notes the texts of a classifier.
type watchedClassifier struct {
	serve.Classifier
	note func(texts []string)
}

func (x watchedClassifier) PredictTexts(ctx context.Context, texts []string) ([]train.Prediction, error) {
	x.note(texts)
	return x.Classifier.PredictTexts(ctx, texts)
}

// watchedSessions notes the tokens that sessions read.
type watchedSessions struct {
	serve.Sessions
	note func(ids []int32)
}

func (x watchedSessions) Create(ctx context.Context, ids []int32) (sessions.Info, error) {
	x.note(ids)
	return x.Sessions.Create(ctx, ids)
}

func (x watchedSessions) Append(ctx context.Context, id string, ids []int32) (sessions.Info, error) {
	x.note(ids)
	return x.Sessions.Append(ctx, id, ids)
}

func (x watchedSessions) Complete(ctx context.Context, ids []int32, d sessions.Draw, emit func(token int32) error) (sessions.Result, error) {
	x.note(ids)
	return x.Sessions.Complete(ctx, ids, d, emit)
}
