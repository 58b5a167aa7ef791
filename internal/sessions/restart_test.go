package sessions

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

var (
	restartRun    = flag.String("run-folder", "", "with TestRestart: a run in place of a small model of random weights")
	restartTokens = flag.Int("run-tokens", 100_000, "with -run-folder: tokens of the session")
)

// maxRestart bounds the time by which the first token after a restart may come later than a warm one.
const maxRestart = 50 * time.Millisecond

// TestRestartContinuesLongSessions compares a long session before and after restarts, with
// and without the work of Close. It logs the time of the first answer beside a warm one, and bounds
// it for a given run.
func TestRestartContinuesLongSessions(t *testing.T) {
	t.Parallel()
	n, layers, width := 2000, 2, 32
	if suite.IsLong() {
		n, layers, width = 100_000, 4, 128
	}
	small := must[*model.Model](t)(model.New(model.Config{
		Kind: model.Decoder, Vocab: vocab, Layers: layers, Heads: width / 16, Width: width, Context: 4096,
		Positions: model.Rotary, Mechanism: "fastmax", Set: map[string]string{"window": "64"}, Tied: true,
	}, rng.New(1)))
	if *restartRun != "" {
		n = *restartTokens
		var err error
		if small, _, err = inference.LoadRun(*restartRun); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Model: small, Store: t.TempDir()}
	m := open(t, o)
	s := must[Info](t)(m.Create(ctx, tokens(n, 1)))
	fork := func(m *Manager) string { return must[Info](t)(m.Fork(ctx, s.ID)).ID }
	answer := func(m *Manager, id string) ([]int32, time.Duration) {
		start := time.Now()
		var first time.Duration
		r := must[Result](t)(m.Generate(ctx, id, sampled, func(int32) error {
			if first == 0 {
				first = time.Since(start)
			}
			return nil
		}))
		return r.IDs, first
	}
	twin := fork(m) // before and after, the same tokens
	more := tokens(logDistance-2, 2)
	for _, killed := range []bool{false, true} {
		// Two sessions of the same tokens, which no snapshot has.
		var ids [2]string
		for i := range ids {
			ids[i] = fork(m)
			must[Info](t)(m.Append(ctx, ids[i], more))
		}
		want, warm := answer(m, ids[0])
		if killed {
			drop(m)
		} else {
			closed(t, m)
		}
		start := time.Now()
		m = open(t, o)
		opening := time.Since(start)
		got, first := answer(m, ids[1])
		if !slices.Equal(got, want) {
			t.Errorf("killed %t: drawn %v, before %v", killed, got, want)
		}
		if later := first - warm; *restartRun != "" && later > maxRestart {
			t.Errorf("killed %t: the first token comes %v later than warm, at most %v are allowed", killed, later, maxRestart)
		}
		t.Logf("killed %t: %d tokens, state of %d bytes: Open %v, first token %v, warm %v, %d tokens read a second time", killed, n, s.Bytes, opening, first, warm, m.Stats().Replayed)
	}
	requireState(t, m, twin, tokens(n, 1))
}
