package sessions

import (
	"errors"
	"testing"
	"time"
)

func TestOwnersSeeTheirSessionsAlone(t *testing.T) {
	t.Parallel()
	o := Options{Model: newNearFar(t), Store: t.TempDir(), Identity: "a model"}
	m, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	all, a, b := t.Context(), WithOwner(t.Context(), "a"), WithOwner(t.Context(), "b")
	ids := make([]int32, 3*chunkTokens)
	own, err := m.Create(a, ids)
	if err != nil {
		t.Fatal(err)
	}
	fork, err := m.Fork(a, own.ID)
	if err != nil {
		t.Fatal(err)
	}
	open, err := m.Create(all, []int32{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	branch, err := m.Fork(a, open.ID)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, id := range []string{own.ID, fork.ID, branch.ID} {
			_, err1 := m.Get(b, id)
			_, err2 := m.Append(b, id, []int32{1})
			_, err3 := m.Generate(b, id, Draw{MaxTokens: 1}, nil)
			_, err4 := m.Fork(b, id)
			_, err5 := m.Export(b, id)
			for i, err := range []error{err1, err2, err3, err4, err5, m.Delete(b, id)} {
				if !errors.Is(err, ErrUnknown) {
					t.Errorf("request %d of another owner: %v", i, err)
				}
			}
			if _, err := m.Get(a, id); err != nil {
				t.Error(err)
			}
		}
		if _, err := m.Get(b, open.ID); err != nil {
			t.Errorf("a session without an owner: %v", err)
		}
		if n, k, l := len(m.List(a)), len(m.List(b)), len(m.List(all)); n != 4 || k != 1 || l != 4 {
			t.Errorf("owners see %d and %d sessions, a request without one %d", n, k, l)
		}
		closed(t, m)
		if m, err = Open(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	defer closed(t, m)
	if r, err := m.Complete(b, ids, Draw{MaxTokens: 1}, nil); err != nil || r.Reused != 0 {
		t.Errorf("an owner reuses %d tokens of another, %v", r.Reused, err)
	}
	if r, err := m.Complete(a, ids, Draw{MaxTokens: 1}, nil); err != nil || r.Reused == 0 {
		t.Errorf("an owner reuses %d own tokens, %v", r.Reused, err)
	}
}

func TestStatesOfRequestsAreCounted(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t)})
	var during int64
	d := Draw{MaxTokens: 4, Stop: func([]int32) bool {
		during = max(during, m.queue.bytes.Load())
		return false
	}}
	if _, err := m.Complete(t.Context(), []int32{1, 2, 3}, d, nil); err != nil {
		t.Fatal(err)
	}
	closed(t, m) // the last round has ended
	if n := m.Stats().WorkBytes; during == 0 || n != 0 {
		t.Errorf("%d bytes during a request, %d after it", during, n)
	}
}

// A key whose requests fill its share of the queue leaves places to other keys.
func TestOwnersShareTheQueue(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newModel(t, "fastmax", nil), MaxQueue: 8})
	for _, c := range []struct {
		owner string
		want  int
	}{{"a", 4}, {"b", 2}, {"c", 1}, {"", 1}} {
		n := 0
		for ; m.begin(c.owner) == nil; n++ {
		}
		if n != c.want {
			t.Errorf("owner %q has %d places, want %d", c.owner, n, c.want)
		}
	}
	for owner, n := range map[string]int{"a": 4, "b": 2, "c": 1, "": 1} {
		for range n {
			m.end(owner)
		}
	}
	if s := m.Stats(); s.Running != 0 || len(m.owners) != 0 {
		t.Errorf("%d requests run, of %d owners", s.Running, len(m.owners))
	}
}

// A key that takes all it gets has half of the sessions and of their memory, unless it is the only one.
func TestOwnersShareSessionsAndMemory(t *testing.T) {
	t.Parallel()
	model := newNearFar(t)
	other := open(t, Options{Model: model})
	size := other.coder.empty.HeapBytes()
	snapshot := must[[]byte](t)(other.Export(ctx, must[Info](t)(other.Create(ctx, nil)).ID))
	for name, x := range map[string]struct {
		o    Options
		want []int // sessions of a, b and c
	}{
		"sessions":     {Options{Owners: 3, MaxSessions: 8}, []int{4, 2, 1}},
		"memory":       {Options{Owners: 3, Memory: 16*size + size/2}, []int{8, 4, 1}}, // room is left for requests
		"one key":      {Options{Owners: 1, MaxSessions: 8}, []int{8, 0, 0}},
		"with a store": {Options{Owners: 3, MaxSessions: 8, Store: t.TempDir()}, []int{4, 2, 1}},
	} {
		x.o.Model = model
		m := open(t, x.o)
		for i, owner := range []string{"a", "b", "c"} {
			n := 0
			var err error
			for ; n < 20; n++ {
				if name == "memory" { // imported states alone stay there
					_, err = m.Import(WithOwner(ctx, owner), snapshot)
				} else {
					_, err = m.Create(WithOwner(ctx, owner), nil)
				}
				if err != nil {
					break
				}
			}
			if n != x.want[i] || !errors.Is(err, ErrFull) {
				t.Errorf("%s: owner %s has %d sessions, want %d: %v", name, owner, n, x.want[i], err)
			}
		}
	}
}

// An owner's share is refilled by its own expired sessions, not by those of others.
func TestSharesExpireOwnSessions(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), Owners: 2, MaxSessions: 4, SessionTTL: time.Nanosecond})
	b := must[Info](t)(m.Create(WithOwner(ctx, "b"), nil))
	for range 5 {
		must[Info](t)(m.Create(WithOwner(ctx, "a"), nil))
	}
	if _, err := m.Append(WithOwner(ctx, "b"), b.ID, tokens(3, 1)); err != nil {
		t.Errorf("the session of another key: %v", err)
	}
}
