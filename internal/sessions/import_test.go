package sessions

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/check"
)

func TestImportContinuesAnExport(t *testing.T) {
	t.Parallel()
	for name, model := range mechanisms(t) {
		m := open(t, Options{Model: model})
		ids := tokens(200, 1)
		s := must[Info](t)(m.Create(ctx, ids))
		data := must[[]byte](t)(m.Export(ctx, s.ID))
		i := must[Info](t)(m.Import(ctx, data))
		if i.Tokens != 200 || i.ID == s.ID {
			t.Errorf("%s: import is %+v", name, i)
		}
		a := must[Result](t)(m.Generate(ctx, s.ID, sampled, nil))
		b := must[Result](t)(m.Generate(ctx, i.ID, sampled, nil))
		if !slices.Equal(a.IDs, b.IDs) {
			t.Errorf("%s: import draws %v, session %v", name, b.IDs, a.IDs)
		}
	}
}

func TestForeignAndDamagedSnapshotsAreRefused(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t)})
	s := must[Info](t)(m.Create(ctx, tokens(50, 1)))
	data := must[[]byte](t)(m.Export(ctx, s.ID))
	other := open(t, Options{Model: m.o.Model, Identity: "another model"})
	if _, err := other.Import(ctx, data); !errors.Is(err, ErrForeign) {
		t.Errorf("error is %v, want %v", err, ErrForeign)
	}
	shape := open(t, Options{Model: newModel(t, "softmax", nil)})
	var field *FieldError
	if _, err := shape.Import(ctx, data); !errors.As(err, &field) || field.Field != "snapshot" {
		t.Errorf("another configuration: error is %v", err)
	}
	for i := 0; i < len(data); i += 101 {
		x := bytes.Clone(data)
		x[i] ^= 4
		if _, err := m.Import(ctx, x); !errors.As(err, &field) {
			t.Errorf("byte %d may be any: %v", i, err)
		}
		if _, err := m.Import(ctx, data[:i]); !errors.As(err, &field) {
			t.Errorf("%d of %d bytes are enough: %v", i, len(data), err)
		}
	}
}

func TestImportOfTooManyTokensIsRefused(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newModel(t, "fastmax", nil)})
	s := must[Info](t)(m.Create(ctx, tokens(1235, 1)))
	parts := must[[][]byte](t)(stateFormat.ReadParts(must[[]byte](t)(m.Export(ctx, s.ID)), 2))
	var h stateHeader
	if err := json.Unmarshal(parts[0], &h); err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	state := bytes.ReplaceAll(parts[1], le.AppendUint64(nil, uint64(h.Tokens)), le.AppendUint64(nil, 1<<53))
	h.Tokens = 1 << 53
	header := must[[]byte](t)(json.Marshal(h))
	if i, err := m.Import(ctx, stateFormat.Append(nil, header, check.SealSession(state))); !errors.Is(err, ErrTooLong) {
		t.Errorf("session is %+v, error is %v, want %v", i, err, ErrTooLong)
	}
}

// FuzzImport imports headers and states with valid checksums, in bounded memory. A snapshot
// is refused, or its session takes requests.
func FuzzImport(f *testing.F) {
	m := open(f, Options{Model: newNearFar(f), MaxTokens: 1000})
	for _, n := range []int{0, 1, 2, 90} {
		s := must[Info](f)(m.Create(ctx, tokens(n, 1)))
		parts := must[[][]byte](f)(stateFormat.ReadParts(must[[]byte](f)(m.Export(ctx, s.ID)), 2))
		f.Add(parts[0], parts[1])
		if err := m.Delete(ctx, s.ID); err != nil {
			f.Fatal(err)
		}
	}
	f.Add([]byte(`{"identity":"a model","tokens":9223372036854775807}`), []byte("farfield session"))
	f.Fuzz(func(t *testing.T, header, state []byte) {
		_, _ = m.Import(ctx, state)
		data := stateFormat.Append(nil, header, check.SealSession(state))
		var i Info
		var err error
		if n := check.AllocatedBytes(func() { i, err = m.Import(ctx, data) }); n > 16<<20+64*int64(len(data)) {
			t.Errorf("a snapshot of %d bytes takes %d bytes of memory", len(data), n)
		}
		if err == nil {
			useImported(t, m, i)
		}
	})
}

// useImported uses a session of a snapshot, and deletes it.
func useImported(t *testing.T, m *Manager, i Info) {
	t.Helper()
	_, err := m.Append(ctx, i.ID, []int32{1, 2})
	if err == nil {
		_, err = m.Generate(ctx, i.ID, Draw{MaxTokens: 2}, nil)
	}
	if err != nil && !errors.Is(err, ErrTooLong) && !errors.Is(err, ErrDamaged) { // numbers of a far token meet later ones
		t.Errorf("a snapshot is imported, and its session fails: %v", err)
	}
	if err := m.Delete(ctx, i.ID); err != nil {
		t.Fatal(err)
	}
}

// Each number of a snapshot may be forged, with valid checksums: a number of a header, or one of the
// state that is not finite.
func TestForgedSnapshotsAreRefusedOrWork(t *testing.T) {
	t.Parallel()
	for name, model := range mechanisms(t) {
		m := open(t, Options{Model: model, MaxTokens: 1000})
		s := must[Info](t)(m.Create(ctx, tokens(40, 1)))
		parts := must[[][]byte](t)(stateFormat.ReadParts(must[[]byte](t)(m.Export(ctx, s.ID)), 2))
		imported, refused := 0, 0
		try := func(state []byte) {
			data := stateFormat.Append(nil, parts[0], check.SealSession(state))
			i, err := m.Import(ctx, data)
			if err != nil {
				refused++
				return
			}
			imported++
			useImported(t, m, i)
		}
		le := binary.LittleEndian
		for at := 0; at < 400; at++ {
			old := le.Uint64(parts[1][at:])
			if old == 0 || old > 1<<16 {
				continue // part of a text or a sum
			}
			for _, value := range []uint64{0, 1, old - 1, old + 1, 2 * old, 4 * old, 1 << 40} {
				state := bytes.Clone(parts[1])
				le.PutUint64(state[at:], value)
				try(state)
			}
		}
		for at := 500; at+4 < len(parts[1]); at += 997 {
			state := bytes.Clone(parts[1])
			le.PutUint32(state[at&^3:], math.Float32bits(float32(math.NaN())))
			try(state)
		}
		if imported == 0 || refused == 0 {
			t.Errorf("%s: %d snapshots are imported, %d refused", name, imported, refused)
		}
	}
}

// Each field of the header of an exported session is checked, or no token depends on it.
func TestEachFieldOfAnExportIsCheckedOrNeutral(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t)})
	s := must[Info](t)(m.Create(ctx, tokens(200, 1)))
	parts := must[[][]byte](t)(stateFormat.ReadParts(must[[]byte](t)(m.Export(ctx, s.ID)), 2))
	want := must[Result](t)(m.Generate(ctx, s.ID, sampled, nil))
	for name, x := range map[string]struct {
		change func(h *stateHeader)
		error  string // "": none
	}{
		"nothing":         {func(*stateHeader) {}, ""},
		"identity":        {func(h *stateHeader) { h.Identity = "another" }, "it is of f32 another, the model is f32"},
		"tokens":          {func(h *stateHeader) { h.Tokens++ }, "its header 200 of 1"},
		"a short chain":   {func(h *stateHeader) { h.Chain = "ab" }, `its prefix "ab" and 0 tokens is not possible`},
		"another chain":   {func(h *stateHeader) { h.Chain = strings.Repeat("ab", 32) }, ""},
		"rest":            {func(h *stateHeader) { h.Rest = tokens(5, 2) }, ""},
		"too long a rest": {func(h *stateHeader) { h.Rest = tokens(chunkTokens, 2) }, "is not possible"},
		"no pending":      {func(h *stateHeader) { h.Pending = nil }, "and no token follows"},
		"foreign token":   {func(h *stateHeader) { h.Pending = []int32{1 << 20} }, "1048576"},
	} {
		var h stateHeader
		if err := json.Unmarshal(parts[0], &h); err != nil {
			t.Fatal(err)
		}
		x.change(&h)
		i, err := m.Import(ctx, stateFormat.Append(nil, must[[]byte](t)(json.Marshal(h)), parts[1]))
		switch {
		case x.error != "":
			if err == nil || !strings.Contains(err.Error(), x.error) {
				t.Errorf("%s: error is %v, needs %q", name, err, x.error)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			if got := must[Result](t)(m.Generate(ctx, i.ID, sampled, nil)); !slices.Equal(got.IDs, want.IDs) {
				t.Errorf("%s: the session draws %v, needs %v", name, got.IDs, want.IDs)
			}
		}
	}
}

func TestStatsDoNotWaitForAnImport(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), Store: t.TempDir()})
	m.imports.mu.Lock() // as an import that waits for the disk
	defer m.imports.mu.Unlock()
	go m.removeImport("a key")
	time.Sleep(50 * time.Millisecond) // for removeImport to lock what it does
	done := make(chan Stats, 1)
	go func() { done <- m.Stats() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("Stats waits for the disk")
	}
}
