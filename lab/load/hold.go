package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	farfield "github.com/farfield-ml/farfield/client"
)

// lockTime is how long a session may be refused before it counts as locked.
const lockTime = time.Minute

// hold creates sessions and lets the model go on in each, in turns, until the duration of o ends. It returns an error
// if a request is refused for lockTime: no session is locked, also where their states are more than the memory. The
// states of running requests alone may fill it, so that one of them is refused and repeated.
func hold(ctx context.Context, o *options, t *target, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &farfield.Client{URL: t.url}
	begin := time.Now()
	var requests, tokens, full, stopped atomic.Int64
	// repeated calls f until it is not refused for lack of room.
	repeated := func(f func() error) error {
		for first := time.Now(); ; {
			err := f()
			var e *farfield.Error
			switch {
			case !errors.As(err, &e) || time.Since(first) > lockTime:
				return err
			case e.Status == http.StatusTooManyRequests:
				full.Add(1)
			case e.Status == http.StatusServiceUnavailable:
				stopped.Add(1)
			default:
				return err
			}
			select {
			case <-time.After(max(e.RetryAfter, 10*time.Millisecond)):
			case <-ctx.Done():
				return err
			}
		}
	}
	var wait sync.WaitGroup
	for i := range o.clients {
		wait.Go(func() {
			var ids []string
			fail := func(id string, err error) { cancel(fmt.Errorf("session %q: %w", id, err)) }
			for n := i; n < o.sessions && ctx.Err() == nil; n += o.clients {
				var s farfield.Session
				err := repeated(func() (err error) {
					s, err = c.Create(ctx, farfield.Input{Text: fmt.Sprintf("Story %d: one day a little girl named Lily went to the park.", n)})
					return err
				})
				if err != nil {
					fail("", err)
					return
				}
				requests.Add(1)
				ids = append(ids, s.ID)
			}
			for time.Since(begin) < o.duration {
				for _, id := range ids {
					var g farfield.Generation
					err := repeated(func() (err error) {
						g, err = c.Generate(ctx, id, farfield.Draw{MaxTokens: 2, Seed: 1}, nil)
						return err
					})
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
	fmt.Fprintf(w, "%d sessions in %v: %d requests, %d tokens drawn; refused and repeated: %d times 429, %d times 503\n",
		o.sessions, time.Since(begin).Round(time.Second), requests.Load(), tokens.Load(), full.Load(), stopped.Load())
	if s, err := t.readSample(context.WithoutCancel(ctx)); err == nil {
		fmt.Fprintf(w, "then %d sessions, resident memory %d MB, heap %d MB\n", s.sessions, s.resident/1e6, s.heap/1e6)
	}
	return context.Cause(ctx)
}
