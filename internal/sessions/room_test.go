package sessions

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Sessions in memory alone leave room for a running request, so that full memory refuses new sessions alone.
func TestFullMemoryLocksNoSession(t *testing.T) {
	for name, x := range mechanisms(t) {
		m := open(t, Options{Model: x, Memory: 2 << 20})
		var ids []string
		var err error
		for i := uint64(0); i < 500 && err == nil; i++ {
			var s Info
			if s, err = m.Create(ctx, tokens(60, i)); err == nil {
				ids = append(ids, s.ID)
			}
		}
		if !errors.Is(err, ErrFull) || len(ids) < 3 || !strings.Contains(err.Error(), "DELETE sessions, wait until some are idle for 30m0s (--session-ttl), keep them in a --store, or give --memory more") {
			t.Errorf("%s: %d sessions are held, error is %v", name, len(ids), err)
		}
		if _, err := m.Fork(ctx, ids[0]); !errors.Is(err, ErrFull) {
			t.Errorf("%s: fork: error is %v", name, err)
		}
		for i := range 3 {
			for _, id := range ids {
				if _, err := m.Generate(ctx, id, Draw{MaxTokens: 1}, nil); err != nil {
					t.Fatalf("%s: session in turn %d: %v", name, i, err)
				}
			}
			if _, err := m.Complete(ctx, tokens(60, 600), Draw{MaxTokens: 2}, nil); err != nil {
				t.Errorf("%s: completion: %v", name, err)
			}
			if err := m.Reserve(1 << 10); err != nil {
				t.Errorf("%s: memory beside the states: %v", name, err)
			}
			m.Release(1 << 10)
		}
		if err := m.Delete(ctx, ids[0]); err != nil {
			t.Fatal(err)
		}
		must[Info](t)(m.Create(ctx, tokens(20, 1)))
	}
}

// States that grow do not take the room that sessions leave.
func TestGrownSessionsLeaveRoom(t *testing.T) {
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
	for name, change := range map[string]func(o *Options){
		"memory":   func(o *Options) { o.Memory = 2 << 20 },
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

// Sessions of a store do not expire.
func TestSessionsOfAStoreStay(t *testing.T) {
	m := open(t, Options{Model: newNearFar(t), Store: t.TempDir(), MaxSessions: 3, SessionTTL: time.Nanosecond})
	for i := range uint64(3) {
		must[Info](t)(m.Create(ctx, tokens(20, i)))
	}
	if _, err := m.Create(ctx, nil); !errors.Is(err, ErrFull) || m.Stats().Expired != 0 {
		t.Errorf("error is %v, %d sessions expired", err, m.Stats().Expired)
	}
}
