package sessions

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/rng"
)

// TestEditedPrefixesEqualColdStates edits prompts at random places. Every completion and
// its state has the bits of a computation that knows no prefix, while states move between
// memory and disk and are dropped.
func TestEditedPrefixesEqualColdStates(t *testing.T) {
	t.Parallel()
	edits := 20
	if suite.IsLong() {
		edits = 500 // of each of two mechanisms
	}
	for name, model := range mechanisms(t) {
		t.Run(name, func(t *testing.T) {
			o := Options{Model: model, Store: t.TempDir(), Memory: 1 << 20, Disk: 6 << 20}
			m := open(t, o)
			key := rng.New(11)
			at := func(i, n int) int { return int(key.Uint64(uint64(i)) % uint64(n)) }
			prompts := [][]int32{tokens(700, 1), tokens(1100, 2), tokens(300, 3)}
			var reused, restored int64
			for i := 0; i < 8*edits; i += 8 {
				ids := slices.Clone(prompts[at(i, len(prompts))])
				place := at(i+1, len(ids))
				switch at(i+2, 4) {
				case 0:
					ids[place] = (ids[place] + 1) % vocab
				case 1:
					ids = slices.Insert(ids, place, tokens(1+at(i+3, 40), uint64(i))...)
				case 2:
					ids = slices.Delete(ids, place, min(place+1+at(i+3, 40), len(ids)))
				case 3:
					ids = ids[:1+place]
				}
				if len(ids) > 300 && len(ids) < 1500 {
					prompts[at(i+4, len(prompts))] = ids
				}
				if len(ids) == 0 {
					continue
				}
				d := Draw{Sampling: Sampling{Temperature: 1, Seed: uint64(i)}, MaxTokens: 1 + at(i+5, 8)}
				r := must[Result](t)(m.Complete(ctx, ids, d, nil))
				reused += r.Reused
				requireCompletion(t, m, ids, d, r)
				if i%80 == 72 {
					closed(t, m)
					restored += m.Stats().Restored
					m = open(t, o)
				}
			}
			if reused == 0 {
				t.Error("no prefix is reused")
			}
			t.Logf("%d edits: %d tokens reused, %d states restored from disk", edits, reused, restored)
		})
	}
}

// requireCompletion fails the test unless a completion and its state have the bits of a
// cold computation.
func requireCompletion(t *testing.T, m *Manager, ids []int32, d Draw, r Result) {
	t.Helper()
	if want := continuation(t, m.o.Model, ids, d); !slices.Equal(r.IDs, want) {
		t.Fatalf("%d of %d tokens reused: drawn %v, cold %v", r.Reused, len(ids), r.IDs, want)
	}
	p := prefix{chain: m.coder.root}
	all := slices.Concat(ids, r.IDs)
	read := all[:len(all)-1]
	p.add(read)
	e := m.cache.lookup(p.key())
	if e == nil {
		return // evicted
	}
	s, err := m.files.open(e)
	if err != nil {
		t.Fatal(err)
	}
	if s != nil && !bytes.Equal(snapshot(t, s.state), coldState(t, m.o.Model, read)) {
		t.Fatalf("%d of %d tokens reused: state differs from a cold one", r.Reused, len(ids))
	}
}

func TestSharedPrefixesAreReadOnce(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t)})
	shared := tokens(1000, 1)
	read := func(i uint64) int64 {
		before := m.Stats().TokensRead
		must[Info](t)(m.Create(ctx, slices.Concat(shared, tokens(60, 100+i))))
		return m.Stats().TokensRead - before
	}
	read(0)
	read(1) // leaves a snapshot where both prompts part
	if n := read(2); n > chunkTokens+60 {
		t.Errorf("third prompt reads %d tokens, %d are new", n, 60)
	}
}

func TestImportsNeverServeAsPrefixes(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), Store: t.TempDir()})
	ids := tokens(400, 1)
	s := must[Info](t)(m.Create(ctx, ids))
	data := must[[]byte](t)(m.Export(ctx, s.ID))
	other := open(t, Options{Model: m.o.Model, Store: t.TempDir()})
	i := must[Info](t)(other.Import(ctx, data))
	must[Info](t)(other.Append(ctx, i.ID, tokens(600, 2)))
	closed(t, other)
	other = open(t, other.o)
	requireState(t, other, i.ID, slices.Concat(ids, tokens(600, 2)))
	if r := must[Result](t)(other.Complete(ctx, ids, Draw{MaxTokens: 1}, nil)); r.Reused > 0 {
		t.Errorf("%d tokens of an imported state are reused", r.Reused)
	}
}

func TestStatesMoveToDiskAndBack(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), Store: t.TempDir(), Memory: 400 << 10})
	var ids []string
	for i := range 12 {
		s := must[Info](t)(m.Create(ctx, tokens(200+10*i, uint64(i))))
		ids = append(ids, s.ID)
	}
	if n := m.Stats().StateBytes; n > m.o.Memory {
		t.Errorf("idle states take %d bytes, the limit is %d", n, m.o.Memory)
	}
	for i, id := range ids {
		requireState(t, m, id, tokens(200+10*i, uint64(i)))
	}
}

func TestFullMemoryIsAnError(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), Memory: 600 << 10})
	data := must[[]byte](t)(m.Export(ctx, must[Info](t)(m.Create(ctx, tokens(100, 1))).ID))
	var err error
	n := 0
	for err == nil && n < 100 {
		_, err = m.Import(ctx, data) // its tokens are unknown
		n++
	}
	if n == 100 || n < 2 || !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "bytes of memory") {
		t.Errorf("%d sessions are held, error %v", n, err)
	}
	if err := m.Delete(ctx, m.List(t.Context())[0].ID); err != nil {
		t.Error(err)
	}
}

func TestPrefixesOnDiskStayWithinTheirLimit(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), Store: t.TempDir(), Memory: 200 << 10, Disk: 500 << 10})
	for i := range 20 {
		must[Result](t)(m.Complete(ctx, tokens(300, uint64(i)), Draw{MaxTokens: 2}, nil))
	}
	m.saver.close()
	if n := m.Stats().DiskBytes; n > m.o.Disk || n == 0 {
		t.Errorf("snapshots take %d bytes on disk, the limit is %d", n, m.o.Disk)
	}
	m.saver = newSaver(m)
}

func TestImportsAndPrefixesShareTheDisk(t *testing.T) {
	t.Parallel()
	o := Options{Model: newNearFar(t), Store: t.TempDir(), Disk: 200 << 10}
	m := open(t, o)
	for i := range uint64(6) {
		must[Result](t)(m.Complete(ctx, tokens(300, i), Draw{MaxTokens: 1}, nil))
	}
	data := must[[]byte](t)(m.Export(ctx, must[Info](t)(m.Create(ctx, tokens(10, 1))).ID))
	closed(t, m)
	m = open(t, o)
	before := m.Stats().DiskBytes + int64(len(data))
	must[Info](t)(m.Import(ctx, data))
	after := m.Stats().DiskBytes
	closed(t, m)
	if end := m.Stats().DiskBytes; before <= o.Disk || after > o.Disk || end > o.Disk || end <= int64(len(data)) {
		t.Errorf("snapshots take %d bytes on disk beside an import, %d after it and %d after Close, the limit is %d", before, after, end, o.Disk)
	}
}
