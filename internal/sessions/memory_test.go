package sessions

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// TestStateBytesAreTheMemoryOfSessions compares the counted bytes of sessions and prefixes with the
// growth of the heap. A session of a server has its tokens and names besides.
func TestStateBytesAreTheMemoryOfSessions(t *testing.T) {
	if raced {
		t.Skip("the race detector changes the sizes of objects")
	}
	const sessions = 24
	x := must[*model.Model](t)(model.New(model.Config{
		Kind: model.Decoder, Vocab: vocab, Layers: 2, Heads: 8, Width: 128, Context: 4096, Conv: 4,
		Positions: model.Rotary, Mechanism: "fastmax", Set: map[string]string{"window": "64"}, Tied: true,
	}, rng.New(1)))
	m := open(t, Options{Model: x})
	must[Info](t)(m.Create(ctx, tokens(150, 0))) // memory that stays in workers
	ratio := 0.0
	for i := 0; i < 4*sessions && (ratio < 0.96 || ratio > 1.04); i += sessions { // workers may take memory meanwhile
		before, was := check.LiveBytes(), m.Stats()
		for j := range sessions {
			must[Info](t)(m.Create(ctx, tokens(150, uint64(1+i+j))))
		}
		held, now := check.LiveBytes()-before, m.Stats()
		ratio = float64(held) / float64(now.StateBytes+now.PrefixBytes-was.StateBytes-was.PrefixBytes)
	}
	if ratio < 0.96 || ratio > 1.04 {
		t.Errorf("%d sessions take %.3f of the counted bytes", sessions, ratio)
	}
	if s := m.Stats(); s.WorkBytes != 0 {
		t.Errorf("%d bytes of running requests, and none runs", s.WorkBytes)
	}
}

func TestOneLargeStateWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	x := newNearFar(t)
	state := func() *model.Session { return must[*model.Session](t)(x.NewSession(1)) }
	m := open(t, Options{Model: x, Store: t.TempDir(), Memory: savingShare * state().HeapBytes()})
	p := func(n int) prefix {
		p := prefix{chain: m.coder.root}
		p.add(tokens(n, 1))
		return p
	}
	written := m.cache.put(p(1), state())
	m.cache.setSaving(written, true) // as saver does while it writes
	if m.saver.add(p(2), state(), new(session)) {
		t.Errorf("two states wait for the disk with %d bytes, the limit is %d", 2*state().HeapBytes(), m.o.Memory/savingShare)
	}
	m.cache.setSaving(written, false)
	if !m.saver.add(p(3), state(), new(session)) {
		t.Error("a state alone does not wait for the disk")
	}
}

func TestMemoryBoundsPrefixesWhileAPromptIsRead(t *testing.T) {
	t.Parallel()
	x := newNearFar(t)
	s := must[*model.Session](t)(x.NewSession(1))
	must[[]float32](t)(s.Step(ctx, tokens(200, 1), 200))
	limit := 6 * s.HeapBytes()
	m := open(t, Options{Model: x, Memory: limit})
	must[Result](t)(m.Complete(ctx, tokens(2005, 1), Draw{MaxTokens: 1}, func(int32) error {
		if s := m.Stats(); s.PrefixBytes > limit {
			t.Errorf("prefixes take %d bytes of memory, the limit is %d", s.PrefixBytes, limit)
		}
		return nil
	}))
}

// TestStatesFromDiskKeepMemory has requests hold states that come from disk. They exceed the limit of
// memory by one state at most.
func TestStatesFromDiskKeepMemory(t *testing.T) {
	t.Parallel()
	const sessions = 8
	o := Options{Model: newNearFar(t), Store: t.TempDir()}
	m := open(t, o)
	for i := range uint64(sessions) {
		must[Info](t)(m.Create(ctx, tokens(50, i)))
	}
	size := m.Stats().StateBytes / sessions
	closed(t, m)
	o.Memory = 3 * size
	m = open(t, o)
	list, held := m.List(ctx), 0
	for _, x := range list[1:] {
		s := must[*session](t)(m.acquire(ctx, x.ID))
		defer m.release(s)
		switch err := m.activate(ctx, s); {
		case err == nil:
			held++
		case !errors.Is(err, ErrFull):
			t.Error(err)
		}
	}
	if n := m.Stats().StateBytes; held < 3 || held > 4 || n > o.Memory+size {
		t.Errorf("%d states take %d bytes of memory, the limit is %d", held, n, o.Memory)
	}
	if _, err := m.Export(ctx, list[0].ID); !errors.Is(err, ErrFull) {
		t.Errorf("export: error is %v, want %v", err, ErrFull)
	}
}

// TestGrowingStatesKeepMemory reads prompts whose states outgrow the memory, beside one that does not.
func TestGrowingStatesKeepMemory(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"", t.TempDir()} {
		m := open(t, Options{Model: newModel(t, "softmax", nil), Store: store, Memory: 1 << 20})
		ids := tokens(100, 1)
		s := must[Info](t)(m.Create(ctx, ids))
		ended := make(chan error)
		begin := sync.OnceFunc(func() {
			go func() {
				_, err := m.Append(ctx, s.ID, tokens(10_000, 2))
				ended <- err
			}()
		})
		r := must[Result](t)(m.Complete(ctx, ids, Draw{MaxTokens: 300}, func(int32) error { begin(); return nil }))
		appended := <-ended
		_, completed := m.Complete(ctx, tokens(10_000, 3), Draw{MaxTokens: 1}, nil)
		for name, err := range map[string]error{"append": appended, "complete": completed} {
			if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "--memory is 1048576") {
				t.Errorf("%s: error is %v, want %v", name, err, ErrFull)
			}
		}
		if n := m.Stats().WorkBytes; len(r.IDs) != 300 || n != 0 {
			t.Errorf("%d tokens are drawn beside a prompt, %d bytes are of running requests after them", len(r.IDs), n)
		}
		requireState(t, m, s.ID, ids)
	}
}
