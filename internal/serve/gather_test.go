package serve

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/internal/inference"
)

// gate embeds texts as their length when it may, and refuses the text "bad".
type gate struct {
	lengths
	begin chan []string // gets the texts of each call
	open  chan struct{}
}

func (x gate) MaxTokens() int { return 64 }

func (x gate) Embed(ctx context.Context, prompt *string, texts []string) ([]inference.Embedding, error) {
	x.begin <- texts
	<-x.open
	if slices.Contains(texts, "bad") {
		return nil, errors.New("bad text")
	}
	return x.lengths.Embed(ctx, prompt, texts)
}

func TestWaitingRequestsShareAPass(t *testing.T) {
	x := gate{begin: make(chan []string), open: make(chan struct{})}
	g := gatherer{embedder: x, places: make(chan struct{}, 1)}
	var all sync.WaitGroup
	start := func(ctx context.Context, want string, texts ...string) {
		all.Go(func() {
			v, err := g.embed(ctx, nil, texts)
			got := fmt.Sprint(err)
			if err == nil {
				got = ""
				for _, x := range v {
					got += fmt.Sprint(x.Tokens)
				}
			}
			if got != want {
				t.Errorf("%q: %s, want %s", texts, got, want)
			}
		})
	}
	wait := func(queued int) {
		for n := -1; n != queued; runtime.Gosched() {
			g.mu.Lock()
			n = len(g.queue)
			g.mu.Unlock()
		}
	}
	queued := 0
	ask := func(ctx context.Context, want string, texts ...string) {
		start(ctx, want, texts...)
		queued++
		wait(queued)
	}
	pass := func(want ...string) {
		t.Helper()
		if got := <-x.begin; !slices.Equal(got, want) {
			t.Errorf("a pass has %d texts %.80q, want %d", len(got), got, len(want))
		}
		x.open <- struct{}{}
	}
	ctx, leave := context.WithCancel(t.Context())
	start(t.Context(), "1", "a")
	first := <-x.begin
	many := strings.Split(strings.Repeat("a ", gatherTexts)+"a", " ")
	ask(t.Context(), "23", "ab", "abc")
	ask(ctx, "context canceled", "b")
	ask(t.Context(), "4", "abcd")
	ask(t.Context(), strings.Repeat("1", len(many)), many...)
	ask(t.Context(), "2", "cd")
	ask(t.Context(), "bad text", "bad")
	leave()
	wait(queued - 1)
	x.open <- struct{}{}
	if !slices.Equal(first, []string{"a"}) {
		t.Errorf("the first pass has %q", first)
	}
	pass("ab", "abc", "abcd")
	pass(many...)
	pass("cd", "bad")
	pass("cd")
	pass("bad")
	all.Wait()
	if len(g.queue) > 0 || len(g.places) > 0 {
		t.Errorf("%d requests and %d passes are left", len(g.queue), len(g.places))
	}
}

// fault is an embedder that panics.
type fault struct {
	lengths
	begin chan struct{}
	open  chan struct{}
}

func (x fault) MaxTokens() int { return 64 }

func (x fault) Embed(_ context.Context, _ *string, texts []string) ([]inference.Embedding, error) {
	x.begin <- struct{}{}
	<-x.open
	panic(texts[0])
}

// TestRequestsOutliveAPassThatPanics: only the request that runs the pass sees the panic.
func TestRequestsOutliveAPassThatPanics(t *testing.T) {
	x := fault{begin: make(chan struct{}), open: make(chan struct{})}
	g := gatherer{embedder: x, places: make(chan struct{}, 1)}
	var all sync.WaitGroup
	ends := make(chan string, 3)
	ask := func() {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					ends <- fmt.Sprint("panic ", p)
				}
			}()
			_, err := g.embed(t.Context(), nil, []string{"a"})
			ends <- fmt.Sprint(err)
		})
	}
	ask()
	<-x.begin
	ask()
	ask()
	for waiting := 0; waiting < 2; runtime.Gosched() {
		g.mu.Lock()
		waiting = len(g.queue)
		g.mu.Unlock()
	}
	x.open <- struct{}{}
	<-x.begin // both others
	x.open <- struct{}{}
	all.Wait()
	close(ends)
	var got []string
	for e := range ends {
		got = append(got, e)
	}
	slices.Sort(got)
	if want := []string{"panic a", "panic a", errNoPass.Error()}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(g.places) > 0 {
		t.Errorf("%d passes are left", len(g.places))
	}
}

// prompted notes the prompt of each pass.
type prompted struct {
	gate
	names *[]string
}

func (x prompted) MaxTokens() int { return 64 }

func (x prompted) Embed(ctx context.Context, prompt *string, texts []string) ([]inference.Embedding, error) {
	name := "the default"
	if prompt != nil {
		name = *prompt
	}
	*x.names = append(*x.names, name)
	return x.gate.Embed(ctx, prompt, texts)
}

func TestTextsOfAPassHaveOnePrompt(t *testing.T) {
	x := prompted{gate: gate{begin: make(chan []string), open: make(chan struct{})}, names: new([]string)}
	g := gatherer{embedder: x, places: make(chan struct{}, 1)}
	var all sync.WaitGroup
	for i, name := range []*string{nil, new("query"), new("query"), nil, new("")} {
		all.Go(func() {
			if _, err := g.embed(t.Context(), name, []string{fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			if got := <-x.begin; !slices.Equal(got, []string{"0"}) {
				t.Errorf("the first pass has %q", got)
			}
			continue
		}
		for n := 0; n != i; runtime.Gosched() {
			g.mu.Lock()
			n = len(g.queue)
			g.mu.Unlock()
		}
	}
	for _, want := range [][]string{{"1", "2"}, {"3"}, {"4"}} {
		x.open <- struct{}{}
		if got := <-x.begin; !slices.Equal(got, want) {
			t.Errorf("a pass has %q, want %q", got, want)
		}
	}
	x.open <- struct{}{}
	all.Wait()
	if want := []string{"the default", "query", "the default", ""}; !slices.Equal(*x.names, want) {
		t.Errorf("passes have the prompts %q, want %q", *x.names, want)
	}
}
