package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/client"
	"github.com/farfield-ml/farfield/internal/suite"
)

// TestStreamsAtOnceAreAsAlone: sessions that stream at once draw what their forks draw alone.
// With -long it is 200 sessions of the default model; -v prints how long they wait.
func TestStreamsAtOnceAreAsAlone(t *testing.T) {
	sessions, tokens := 20, 16
	var dir string
	if suite.IsLong() {
		sessions, tokens = 200, 128
		dir = filepath.Join(t.TempDir(), "run")
		works(t, "train", "--data", textFile(t), "--out", dir, "--preset", "default", "--steps", "1", "--context", "64", "--sample-tokens", "3", "--quiet")
	} else {
		dir = trained(t)
	}
	ctx, c := context.Background(), client.Client{URL: startServer(t, "--model", dir, "--memory", "2GiB").url} // forks double the states
	type stream struct {
		id, fork       string
		first, largest time.Duration
		ids            []int32
		err            error
	}
	list := make([]stream, sessions)
	for i := range list {
		s, err := c.Create(ctx, client.Input{Text: fmt.Sprint("a text of number ", i)})
		if err != nil {
			t.Fatal(err)
		}
		fork, err := c.Fork(ctx, s.ID)
		if err != nil {
			t.Fatal(err)
		}
		list[i].id, list[i].fork = s.ID, fork.ID
	}
	draw := func(i int) client.Draw { return client.Draw{MaxTokens: tokens, Temperature: 1, Seed: uint64(i)} }
	var wait sync.WaitGroup
	start := time.Now()
	for i := range list {
		wait.Go(func() {
			s, last := &list[i], time.Now()
			_, s.err = c.Generate(ctx, s.id, draw(i), func(token client.Token) error {
				gap := time.Since(last)
				if last = last.Add(gap); s.ids == nil {
					s.first = gap
				} else {
					s.largest = max(s.largest, gap)
				}
				s.ids = append(s.ids, token.ID)
				return nil
			})
		})
	}
	wait.Wait()
	total := time.Since(start)
	for i, s := range list {
		alone, err := c.Generate(ctx, s.fork, draw(i), nil)
		if s.err != nil || err != nil || !slices.Equal(s.ids, alone.IDs) || len(s.ids) != tokens {
			t.Fatalf("session %d drew %v among others, %v alone (%v, %v)", i, s.ids, alone.IDs, s.err, err)
		}
	}
	describe := func(what string, of func(s *stream) time.Duration) {
		var all []time.Duration
		for i := range list {
			all = append(all, of(&list[i]))
		}
		slices.Sort(all)
		t.Logf("%s: median %v, largest %v", what, all[len(all)/2], all[len(all)-1])
	}
	t.Logf("%d sessions of %d tokens: %.0f tokens a second", sessions, tokens, float64(sessions*tokens)/total.Seconds())
	describe("first token", func(s *stream) time.Duration { return s.first })
	describe("longest wait for another token", func(s *stream) time.Duration { return s.largest })
}
