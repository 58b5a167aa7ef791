package sessions

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// States of sessions in memory alone make room for others and are computed again, so that no session is locked and none
// is refused. What they draw does not depend on it.
func TestFullMemoryLocksNoSession(t *testing.T) {
	t.Parallel()
	for name, x := range mechanisms(t) {
		m, wide := open(t, Options{Model: x, Memory: 2 << 20}), open(t, Options{Model: x})
		var ids, others []string
		for i := range uint64(150) {
			ids = append(ids, must[Info](t)(m.Create(ctx, tokens(60, i))).ID)
			others = append(others, must[Info](t)(wide.Create(ctx, tokens(60, i))).ID)
		}
		must[Info](t)(m.Fork(ctx, ids[0]))
		for turn := range 2 {
			for i, id := range ids {
				d := Draw{Sampling: Sampling{Temperature: 1, Seed: uint64(i)}, MaxTokens: 3}
				got, want := must[Result](t)(m.Generate(ctx, id, d, nil)), must[Result](t)(wide.Generate(ctx, others[i], d, nil))
				if !slices.Equal(got.IDs, want.IDs) {
					t.Fatalf("%s: session %d in turn %d draws %v, with memory for all %v", name, i, turn, got.IDs, want.IDs)
				}
			}
			must[Result](t)(m.Complete(ctx, tokens(60, 600), Draw{MaxTokens: 2}, nil))
			if err := m.Reserve(1 << 10); err != nil {
				t.Errorf("%s: memory beside the states: %v", name, err)
			}
			m.Release(1 << 10)
		}
		if n := m.Stats(); n.Recomputed < 150 || n.StateBytes > m.o.Memory || n.Expired != 0 {
			t.Errorf("%s: counts are %+v", name, n)
		}
		if n := m.Stats().StateBytes; wide.Stats().Recomputed > 0 || n == 0 {
			t.Errorf("%s: with memory for all %d states are computed again", name, wide.Stats().Recomputed)
		}
	}
}

// States of imported sessions in memory alone cannot be computed again. They leave room for a running request.
func TestFullMemoryRefusesImports(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), Memory: 2 << 20})
	data := must[[]byte](t)(m.Export(ctx, must[Info](t)(m.Create(ctx, tokens(60, 1))).ID))
	var ids []string
	var err error
	for i := 0; i < 500 && err == nil; i++ {
		var s Info
		if s, err = m.Import(ctx, data); err == nil {
			ids = append(ids, s.ID)
		}
	}
	if !errors.Is(err, ErrFull) || len(ids) < 3 || !strings.Contains(err.Error(), "give --memory more, keep sessions in a --store, DELETE some, or wait until some are idle for 30m0s (--session-ttl)") {
		t.Errorf("%d sessions are held, error is %v", len(ids), err)
	}
	for _, id := range ids {
		must[Result](t)(m.Generate(ctx, id, Draw{MaxTokens: 1}, nil))
	}
	must[Result](t)(m.Complete(ctx, tokens(60, 600), Draw{MaxTokens: 2}, nil))
}

// States that grow do not take the room that sessions leave.
func TestGrownSessionsLeaveRoom(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newModel(t, "softmax", nil), Memory: 2 << 20})
	var list []Info
	for i := range uint64(4) {
		list = append(list, must[Info](t)(m.Create(ctx, tokens(60, i))))
	}
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		_, err = m.Append(ctx, list[i%4].ID, tokens(100, uint64(i)))
	}
	if !errors.Is(err, ErrFull) {
		t.Fatalf("error is %v", err)
	}
	for _, s := range list {
		if _, err := m.Generate(ctx, s.ID, Draw{MaxTokens: 1}, nil); err != nil {
			t.Errorf("a token: %v", err)
		}
	}
	if _, err := m.Complete(ctx, tokens(60, 9), Draw{MaxTokens: 1}, nil); err != nil {
		t.Errorf("completion: %v", err)
	}
}

// Sessions that were idle for long make room for new ones, the oldest first, and it is said.
func TestIdleSessionsMakeRoom(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(o *Options){
		"sessions": func(o *Options) { o.MaxSessions = 8 },
	} {
		var lines []string
		o := Options{Model: newNearFar(t), SessionTTL: time.Nanosecond, Notify: func(line string) { lines = append(lines, line) }}
		change(&o)
		m := open(t, o)
		var ids []string
		for i := range uint64(500) {
			ids = append(ids, must[Info](t)(m.Create(ctx, tokens(20, i))).ID)
		}
		held := m.List(ctx)
		if n := m.Stats().Expired; n < 1 || int(n)+len(held) != 500 || len(held) < 3 {
			t.Errorf("%s: %d sessions expired, %d are held", name, n, len(held))
		}
		for i, id := range ids {
			_, err := m.Get(ctx, id)
			if isHeld := i >= 500-len(held); isHeld != (err == nil) {
				t.Errorf("%s: session %d of 500, %d of which are held: %v", name, i, len(held), err)
			}
			if err != nil && (!errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "--session-ttl")) {
				t.Errorf("%s: error is %v", name, err)
			}
		}
		if len(lines) != 1 || lines[0] != "sessions that were idle for more than 1ns made room for others: 1" {
			t.Errorf("%s: lines are %q", name, lines)
		}
		must[Result](t)(m.Generate(ctx, ids[499], Draw{MaxTokens: 1}, nil))
	}
}

// The tokens of sessions in memory alone count, and old sessions make room for those of others.
func TestTokensOfSessionsTakeMemory(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), Memory: 300 << 10, SessionTTL: time.Nanosecond})
	for range 75 {
		must[Info](t)(m.Create(ctx, tokens(2000, 1)))
	}
	if n, held := m.Stats().Expired, len(m.List(ctx)); n < 1 || int(n)+held != 75 {
		t.Errorf("%d sessions expired, %d are held", n, held)
	}
}

// Sessions of a store do not expire.
func TestSessionsOfAStoreStay(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), Store: t.TempDir(), MaxSessions: 3, SessionTTL: time.Nanosecond})
	for i := range uint64(3) {
		must[Info](t)(m.Create(ctx, tokens(20, i)))
	}
	if _, err := m.Create(ctx, nil); !errors.Is(err, ErrFull) || m.Stats().Expired != 0 {
		t.Errorf("error is %v, %d sessions expired", err, m.Stats().Expired)
	}
}
