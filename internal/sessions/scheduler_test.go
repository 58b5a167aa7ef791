package sessions

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/model"
)

// TestLongPromptsDelayOthersByOneChunk picks rounds of many drawing jobs beside long prompts. No job
// waits longer than all turns of its kind.
func TestLongPromptsDelayOthersByOneChunk(t *testing.T) {
	t.Parallel()
	const drawing, reading, batch = 200, 5, 256
	small := newNearFar(t)
	m := &Manager{o: Options{Model: small, MaxBatch: batch}}
	q := &scheduler{m: m}
	state := must[*model.Session](t)(small.NewSession(1))
	for i := range drawing + reading {
		j := &job{ctx: ctx, state: state, feed: []int32{0}, draw: &Draw{}}
		if i >= drawing {
			j.feed = make([]int32, 1<<20)
		}
		q.queue = append(q.queue, j)
	}
	last := map[*job]int{}
	longest := map[bool]int{}
	for round := 1; round <= 50; round++ {
		q.pick()
		rows := 0
		for i, j := range q.jobs {
			rows += len(q.steps[i].Tokens)
			longest[j.isPrompt()] = max(longest[j.isPrompt()], round-last[j])
			last[j] = round
		}
		if rows > batch || rows < batch/2 {
			t.Fatalf("round %d has %d rows, the limit is %d", round, rows, batch)
		}
	}
	if len(last) != drawing+reading || longest[false] > 2 || longest[true] > reading {
		t.Errorf("%d of %d jobs ran; drawing waits %d rounds, prompts %d", len(last), drawing+reading, longest[false], longest[true])
	}
}

// TestRequestsRunBesideEachOther mixes requests of many sessions, with cancelled ones
// between them. Each draws what it draws alone.
func TestRequestsRunBesideEachOther(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), Store: t.TempDir(), Memory: 2 << 20})
	var all sync.WaitGroup
	errs := make(chan error, 100)
	for i := range 12 {
		all.Go(func() {
			ids := tokens(50+40*i, uint64(i%5))
			s, err := m.Create(ctx, ids)
			for n := 0; err == nil && n < 3; n++ {
				cancelled, cancel := context.WithCancel(ctx)
				_, err := m.Generate(cancelled, s.ID, Draw{MaxTokens: 30}, func(int32) error { cancel(); return nil })
				if !errors.Is(err, context.Canceled) {
					errs <- fmt.Errorf("session %d: error is %w, want %w", i, err, context.Canceled)
				}
				d := Draw{Sampling: Sampling{Temperature: 1, Seed: uint64(n)}, MaxTokens: 10}
				want := continuation(t, m.o.Model, ids, d)
				r, err := m.Generate(ctx, s.ID, d, nil)
				if err != nil || !slices.Equal(r.IDs, want) {
					errs <- fmt.Errorf("session %d: drawn %v, want %v: %w", i, r.IDs, want, err)
					break
				}
				ids = append(ids, want...)
			}
			if err != nil {
				errs <- err
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}

func TestStatsHoldWhatReturnedRequestsDid(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t)})
	for i := range int64(200) {
		s := must[Info](t)(m.Create(ctx, tokens(12, 1000+uint64(i))))
		if got, want := m.Stats().TokensRead, i*14+11; got != want {
			t.Fatalf("%d tokens read after session %d, want %d", got, i, want)
		}
		must[Result](t)(m.Generate(ctx, s.ID, Draw{MaxTokens: 3}, nil))
		if read, drawn := m.Stats().TokensRead, m.Stats().TokensDrawn; read != (i+1)*14 || drawn != (i+1)*3 {
			t.Fatalf("%d tokens read and %d drawn after session %d, want %d and %d", read, drawn, i, (i+1)*14, (i+1)*3)
		}
	}
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"", t.TempDir()} {
		m := open(t, Options{Model: newNearFar(t), Store: store})
		s := must[Info](t)(m.Create(ctx, tokens(500, 1)))
		ended, cancel := context.WithCancel(ctx)
		cancel()
		// Close ends a request that runs.
		_, err := m.Generate(ctx, s.ID, Draw{MaxTokens: 1 << 19}, func(int32) error {
			_ = m.Close(ended)
			return nil
		})
		if !errors.Is(err, ErrClosed) {
			t.Errorf("error is %v, want %v", err, ErrClosed)
		}
		closed(t, m)
	}
	var stacks string
	for range 1000 { // goroutines end soon after they say so
		b := make([]byte, 1<<20)
		stacks = string(b[:runtime.Stack(b, true)])
		if !strings.Contains(stacks, ").serve(") {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("goroutines are left: %s", stacks)
}
