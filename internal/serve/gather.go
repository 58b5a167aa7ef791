package serve

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/farfield-ml/farfield/internal/inference"
)

// Limits of a pass for the texts of several requests.
const (
	gatherTexts = 32
	gatherBytes = 64 << 10
)

// gatherer embeds the texts of waiting requests together.
type gatherer struct {
	embedder Embedder
	places   chan struct{} // one for each pass

	mu    sync.Mutex
	queue []*gathered // those that waited longest first
}

// gathered is a request whose texts wait for vectors.
type gathered struct {
	ctx     context.Context
	prompt  *string // name; nil: the default
	texts   []string
	vectors []inference.Embedding
	err     error
	ended   chan struct{} // closed when vectors or err are set
}

// errNoPass is the error of a request whose pass did not come to its end.
var errNoPass = errors.New("the texts of several requests were not embedded")

// embed returns the vectors of texts after a prompt, as Embedder.Embed does. It returns an error if a text cannot be encoded, a vector
// is not finite, or ctx ends.
func (g *gatherer) embed(ctx context.Context, prompt *string, texts []string) ([]inference.Embedding, error) {
	q := &gathered{ctx: ctx, prompt: prompt, texts: texts, err: errNoPass, ended: make(chan struct{})}
	g.mu.Lock()
	g.queue = append(g.queue, q)
	g.mu.Unlock()
	places := g.places
	for {
		select {
		case <-q.ended:
			return q.vectors, q.err
		case <-ctx.Done():
			g.mu.Lock()
			g.queue = slices.DeleteFunc(g.queue, func(x *gathered) bool { return x == q })
			g.mu.Unlock()
			return nil, ctx.Err()
		case places <- struct{}{}:
			g.pass()
			g.mu.Lock()
			if !slices.Contains(g.queue, q) {
				places = nil // the request is in this pass, or in another one that runs
			}
			g.mu.Unlock()
		}
	}
}

// hasPrompt reports whether the texts of q have a prompt.
func (q *gathered) hasPrompt(name *string) bool {
	return q.prompt == name || q.prompt != nil && name != nil && *q.prompt == *name
}

// take removes the requests of a pass from the queue: the first one, and those after it that fit
// and have its prompt.
func (g *gatherer) take() []*gathered {
	g.mu.Lock()
	defer g.mu.Unlock()
	texts, bytes, n := 0, 0, 0
	for ; n < len(g.queue); n++ {
		texts += len(g.queue[n].texts)
		for _, text := range g.queue[n].texts {
			bytes += len(text)
		}
		if n > 0 && (texts > gatherTexts || bytes > gatherBytes || !g.queue[n].hasPrompt(g.queue[0].prompt)) {
			break
		}
	}
	list := slices.Clone(g.queue[:n])
	g.queue = slices.Delete(g.queue, 0, n)
	return list
}

// pass embeds the texts of the requests that waited longest, and gives its place back. A request
// that is refused beside others is embedded alone. Requests end also where the embedder panics.
func (g *gatherer) pass() {
	list := g.take()
	defer func() {
		for _, q := range list {
			close(q.ended)
		}
		<-g.places
	}()
	if len(list) > 1 {
		var texts []string
		for _, q := range list {
			texts = append(texts, q.texts...)
		}
		// A client that goes takes no vectors from others.
		vectors, err := g.embedder.Embed(context.WithoutCancel(list[0].ctx), list[0].prompt, texts)
		if err == nil {
			for _, q := range list {
				n := len(q.texts)
				q.vectors, q.err, vectors = vectors[:n:n], nil, vectors[n:]
			}
			return
		}
	}
	for _, q := range list {
		q.vectors, q.err = g.embedder.Embed(q.ctx, q.prompt, q.texts)
	}
}
