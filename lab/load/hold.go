package load

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	farfield "github.com/farfield-ml/farfield/client"
)

// hold creates sessions and lets the model go on in each, in turns, until the duration of o ends. It returns an error
// if a request is refused: no session is locked, also where their states are more than the memory.
func hold(ctx context.Context, o *options, t *target, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &farfield.Client{URL: t.url}
	begin := time.Now()
	var requests, tokens atomic.Int64
	var wait sync.WaitGroup
	for i := range o.clients {
		wait.Go(func() {
			var ids []string
			fail := func(id string, err error) { cancel(fmt.Errorf("session %q: %w", id, err)) }
			for n := i; n < o.sessions && ctx.Err() == nil; n += o.clients {
				s, err := c.Create(ctx, farfield.Input{Text: fmt.Sprintf("Story %d: one day a little girl named Lily went to the park.", n)})
				if err != nil {
					fail("", err)
					return
				}
				requests.Add(1)
				ids = append(ids, s.ID)
			}
			for time.Since(begin) < o.duration {
				for _, id := range ids {
					g, err := c.Generate(ctx, id, farfield.Draw{MaxTokens: 2, Seed: 1}, nil)
					if err != nil {
						fail(id, err)
						return
					}
					requests.Add(1)
					tokens.Add(int64(len(g.IDs)))
				}
			}
		})
	}
	wait.Wait()
	fmt.Fprintf(w, "%d sessions in %v: %d requests, %d tokens drawn\n", o.sessions, time.Since(begin).Round(time.Second), requests.Load(), tokens.Load())
	if s, err := t.readSample(context.WithoutCancel(ctx)); err == nil {
		fmt.Fprintf(w, "then %d sessions, resident memory %d MB, heap %d MB\n", s.sessions, s.resident/1e6, s.heap/1e6)
	}
	return context.Cause(ctx)
}
