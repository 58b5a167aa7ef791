package sessions

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// vocab is the vocabulary of the models of the tests.
const vocab = 23

// newModel returns a small decoder with random weights. window is a setting of fastmax.
func newModel(t testing.TB, mechanism string, set map[string]string) *model.Model {
	t.Helper()
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: vocab, Layers: 2, Heads: 2, Width: 16, Context: 4096,
		Positions: model.Rotary, Mechanism: mechanism, Set: set, Tied: true,
	}, rng.New(7))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// newNearFar returns a model of a window and a tail, with a state of fixed size.
func newNearFar(t testing.TB) *model.Model {
	return newModel(t, "fastmax", map[string]string{"window": "32"})
}

// open returns a Manager, which the test closes.
func open(t testing.TB, o Options) *Manager {
	t.Helper()
	if o.Identity == "" {
		o.Identity = "a model"
	}
	m, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, m) })
	return m
}

// once calls a write of a store without a Manager.
func once(write func() error) error { return write() }

// closed closes m.
func closed(t testing.TB, m *Manager) {
	t.Helper()
	if err := m.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// drop ends m as the end of its process would: without the work of Close.
func drop(m *Manager) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.Close(ctx)
}

// tokens returns n ids of a text.
func tokens(n int, seed uint64) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.New(seed).Uint64(uint64(i)) % vocab)
	}
	return ids
}

// coldState returns the snapshot of a state that reads ids in one call.
func coldState(t testing.TB, m *model.Model, ids []int32) []byte {
	t.Helper()
	s, err := m.NewSession(1)
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) > 0 {
		if _, err := s.Step(ctx, ids, len(ids)); err != nil {
			t.Fatal(err)
		}
	}
	return snapshot(t, s)
}

// snapshot returns the bytes of a state.
func snapshot(t testing.TB, s *model.Session) []byte {
	t.Helper()
	b, err := s.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// requireState fails the test unless the state of a session has the bits of a cold state
// of ids, whose last one is pending.
func requireState(t testing.TB, m *Manager, id string, ids []int32) {
	t.Helper()
	s, err := m.acquire(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer m.release(s)
	if err := m.activate(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	if s.tokens != int64(len(ids)) {
		t.Fatalf("session has %d tokens, needs %d", s.tokens, len(ids))
	}
	read := ids[:max(len(ids)-1, 0)]
	if !slices.Equal(s.pending, ids[len(read):]) {
		t.Fatalf("pending tokens are %v, need %v", s.pending, ids[len(read):])
	}
	if !bytes.Equal(snapshot(t, s.state), coldState(t, m.o.Model, read)) {
		t.Fatalf("state of %d tokens differs from a cold one", len(read))
	}
}

// must returns x. It fails the test for an error.
func must[X any](t testing.TB) func(x X, err error) X {
	return func(x X, err error) X {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}
