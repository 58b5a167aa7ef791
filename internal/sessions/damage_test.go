package sessions

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/rng"
)

// flip changes a bit of the file path.
func flip(t testing.TB, path string, at uint64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bit := at % (8 * uint64(len(data)))
	data[bit/8] ^= 1 << (bit % 8)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// files returns the paths of a folder of the store of m.
func files(t testing.TB, store, folder string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(store, folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestDamagedSnapshotsAreNotUsed(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string, i int){
		"flipped": func(path string, i int) { flip(t, path, rng.New(3).Uint64(uint64(i))) },
		"cut":     func(path string, i int) { _ = os.Truncate(path, int64(100*i)) },
		"swapped": func(path string, i int) { // one snapshot in the place of the others
			data, _ := os.ReadFile(files(t, filepath.Dir(filepath.Dir(path)), statesFolder)[0])
			_ = os.WriteFile(path, data, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Model: newNearFar(t), Store: t.TempDir()}
			m := open(t, o)
			ids := tokens(1200, 1)
			s := must[Info](t)(m.Create(ctx, ids[:700]))
			f := must[Info](t)(m.Fork(ctx, s.ID))
			must[Info](t)(m.Append(ctx, s.ID, ids[700:]))
			closed(t, m)
			list := files(t, o.Store, statesFolder)
			for i, path := range list {
				damage(path, i)
			}
			m = open(t, o)
			requireState(t, m, s.ID, ids)
			requireState(t, m, f.ID, ids[:700])
			if m.Stats().Damaged == 0 || len(list) < 3 {
				t.Errorf("%d of %d snapshots are refused", m.Stats().Damaged, len(list))
			}
		})
	}
}

func TestDamagedImportIsAnError(t *testing.T) {
	t.Parallel()
	o := Options{Model: newNearFar(t), Store: t.TempDir()}
	m := open(t, o)
	s := must[Info](t)(m.Create(ctx, tokens(300, 1)))
	i := must[Info](t)(m.Import(ctx, must[[]byte](t)(m.Export(ctx, s.ID))))
	closed(t, m)
	for _, folder := range []string{statesFolder, importsFolder} {
		for _, path := range files(t, o.Store, folder) {
			flip(t, path, 12345)
		}
	}
	m = open(t, o)
	if _, err := m.Append(ctx, i.ID, nil); !errors.Is(err, ErrDamaged) || m.Stats().StateBytes != 0 {
		t.Errorf("error is %v, want %v; states take %d bytes of memory", err, ErrDamaged, m.Stats().StateBytes)
	}
	requireState(t, m, s.ID, tokens(300, 1))
	if err := m.Delete(ctx, i.ID); err != nil {
		t.Error(err)
	}
	if list := files(t, o.Store, importsFolder); len(list) > 0 {
		t.Errorf("%v stay without a session", list)
	}
}

// damage writes good to path with up to 3 flipped bits, or random bytes in a row.
func damage(t testing.TB, path string, good []byte, i uint64) {
	t.Helper()
	data, key := bytes.Clone(good), rng.New(9)
	if i%4 < 3 {
		for j := range 1 + i%4 {
			bit := key.Uint64(1000*i+j) % uint64(8*len(data))
			data[bit/8] ^= 1 << (bit % 8)
		}
	} else {
		at := key.Uint64(1000*i) % uint64(len(data))
		for j := range min(uint64(len(data))-at, 1+key.Uint64(1000*i+1)%500) {
			data[at+j] = byte(key.Uint64(1000*i + 2 + j))
		}
	}
	// A new file: bbolt may leave the memory map of a damaged one, and its lock.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedLogNeverChangesASession damages the database. The store is refused, or
// a session is lost, or it has the state of a cold computation.
func TestDamagedLogNeverChangesASession(t *testing.T) {
	t.Parallel()
	flips := 25
	if suite.IsLong() {
		flips = 3000
	}
	o := Options{Model: newNearFar(t), Store: t.TempDir()}
	m := open(t, o)
	want := map[string][]int32{}
	for i := range 8 {
		ids := tokens(30+7*i, uint64(i))
		want[must[Info](t)(m.Create(ctx, ids)).ID] = ids
	}
	drop(m)
	path := filepath.Join(o.Store, storeFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused, lost, whole := 0, 0, 0
	for i := range flips {
		damage(t, path, good, uint64(i))
		m, err := Open(ctx, Options{Model: o.Model, Identity: "a model", Store: o.Store})
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrForeign) {
				t.Errorf("flip %d: error is %v", i, err)
			}
			refused++
			continue
		}
		for id, ids := range want {
			_, err := m.Append(ctx, id, nil)
			switch {
			case errors.Is(err, ErrUnknown), errors.Is(err, ErrDamaged):
				lost++
			case err != nil:
				t.Errorf("flip %d: %v", i, err)
			default:
				whole++
				requireState(t, m, id, ids)
			}
		}
		drop(m)
	}
	t.Logf("%d flips: store refused %d times, %d sessions lost, %d whole", flips, refused, lost, whole)
}

// damageRecord changes a byte in the record of a session that is not open.
func damageRecord(t testing.TB, store, id string) {
	t.Helper()
	s, _, _, err := openStore(store, "a model", once)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	err = s.update(func(tx transaction) error {
		b := tx.Bucket(sessionBucket)
		value := bytes.Clone(b.Get([]byte(id)))
		value[len(value)-1] ^= 1
		return b.Put([]byte(id), value)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// logLines returns the number of values of each line of the log.
func logLines(t testing.TB, m *Manager) map[uint64]int {
	t.Helper()
	lines := map[uint64]int{}
	err := m.store.view(func(tx transaction) error {
		return tx.Bucket(tokenBucket).ForEach(func(k, _ []byte) error {
			lines[binary.BigEndian.Uint64(k)]++
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// forkChain returns a session of n lines of 20 values. The sessions that it was forked from are deleted.
func forkChain(t testing.TB, m *Manager, n int) Info {
	t.Helper()
	s := must[Info](t)(m.Create(ctx, tokens(5, 1)))
	for i := range 20 * n {
		must[Info](t)(m.Append(ctx, s.ID, tokens(5, uint64(i))))
		if i%20 == 19 {
			f := must[Info](t)(m.Fork(ctx, s.ID))
			if err := m.Delete(ctx, s.ID); err != nil {
				t.Fatal(err)
			}
			s = f
		}
	}
	return s
}

func TestDeletedSessionsLeaveNoTokens(t *testing.T) {
	t.Parallel()
	o := Options{Model: newNearFar(t), Store: t.TempDir()}
	m := open(t, o)
	whole, damaged := forkChain(t, m, 3), forkChain(t, m, 3)
	if err := m.Delete(ctx, whole.ID); err != nil || len(logLines(t, m)) != 3 {
		t.Errorf("the log has values %v by line, needs 3 lines: %v", logLines(t, m), err)
	}
	for line, n := range m.store.lines {
		if n == 0 {
			t.Errorf("line %d is counted, and no session reads it", line)
		}
	}
	closed(t, m)
	damageRecord(t, o.Store, damaged.ID)
	m = open(t, o)
	if err := m.Delete(ctx, damaged.ID); err != nil || len(logLines(t, m)) != 0 {
		t.Errorf("the log has values %v by line, needs none: %v", logLines(t, m), err)
	}
}

// TestFailuresOfOthersDamageNoSession reads a session in one transaction with an operation that fails.
func TestFailuresOfOthersDamageNoSession(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), Store: t.TempDir()})
	s := must[Info](t)(m.Create(ctx, tokens(90, 1)))
	begun, release := make(chan bool), make(chan bool)
	viewed := make(chan error)
	go func() {
		viewed <- m.store.view(func(transaction) error {
			begun <- true
			<-release
			return nil
		})
	}()
	<-begun
	ids := []string{s.ID, "none"}
	read := []chan error{make(chan error), make(chan error)}
	for i, id := range ids {
		go func() {
			_, _, err := m.store.read(id, 0)
			read[i] <- err
		}()
		time.Sleep(50 * time.Millisecond) // for the order of the operations
	}
	close(release)
	if err := <-viewed; err != nil {
		t.Error(err)
	}
	for i, want := range []error{nil, ErrUnknown} {
		if err := <-read[i]; !errors.Is(err, want) {
			t.Errorf("session %s: error is %v, want %v", ids[i], err, want)
		}
	}
}

func TestDamagedImportIsImportedAnew(t *testing.T) {
	t.Parallel()
	o := Options{Model: newNearFar(t), Store: t.TempDir()}
	m := open(t, o)
	ids := tokens(300, 1)
	data := must[[]byte](t)(m.Export(ctx, must[Info](t)(m.Create(ctx, ids)).ID))
	must[Info](t)(m.Import(ctx, data))
	closed(t, m)
	flip(t, files(t, o.Store, importsFolder)[0], 12345)
	m = open(t, o)
	i := must[Info](t)(m.Import(ctx, data))
	drop(m)
	for _, path := range files(t, o.Store, statesFolder) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	m = open(t, o)
	requireState(t, m, i.ID, ids)
	if n := m.imports.bytes(); n != int64(len(data)) {
		t.Errorf("imports have %d bytes, need %d", n, len(data))
	}
}

func TestStatesThatCannotBeSavedLeaveMemory(t *testing.T) {
	t.Parallel()
	o := Options{Model: newNearFar(t), Store: t.TempDir(), Memory: 1 << 20}
	m := open(t, o)
	folder := filepath.Join(o.Store, statesFolder)
	if err := errors.Join(os.RemoveAll(folder), os.WriteFile(folder, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(40) {
		must[Result](t)(m.Complete(ctx, tokens(300, i), Draw{MaxTokens: 1}, nil))
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		isWaiting := m.cache.isWaitFull(new(entry), 0)
		if !isWaiting && m.Stats().PrefixBytes <= o.Memory {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("states wait for a disk that cannot be written: %t; %d bytes are in memory, the limit is %d", isWaiting, m.Stats().PrefixBytes, o.Memory)
		}
	}
}

func TestDamagedRecordsAreReported(t *testing.T) {
	t.Parallel()
	o := Options{Model: newNearFar(t), Store: t.TempDir()}
	m := open(t, o)
	whole := must[Info](t)(m.Create(ctx, tokens(90, 1)))
	lost := must[Info](t)(m.Create(ctx, tokens(70, 2)))
	fork := must[Info](t)(m.Fork(ctx, whole.ID))
	data := must[[]byte](t)(m.Export(ctx, whole.ID))
	imported, other := must[Info](t)(m.Import(ctx, data)), must[Info](t)(m.Import(ctx, data))
	closed(t, m)
	for _, id := range []string{lost.ID, fork.ID, imported.ID} {
		damageRecord(t, o.Store, id)
	}
	m = open(t, o)
	if err := m.Delete(ctx, other.ID); err != nil {
		t.Fatal(err)
	}
	if list := m.List(ctx); len(list) != 1 || m.Stats().DamagedSessions != 3 {
		t.Errorf("%d sessions, %d damaged, need 1 and 3", len(list), m.Stats().DamagedSessions)
	}
	if len(files(t, o.Store, importsFolder)) != 1 {
		t.Error("the snapshot that a damaged record may need is gone")
	}
	for _, id := range m.Damaged() {
		_, err1 := m.Get(ctx, id)
		_, err2 := m.Append(ctx, id, []int32{1})
		_, err3 := m.Generate(ctx, id, Draw{MaxTokens: 1}, nil)
		_, err4 := m.Fork(ctx, id)
		_, err5 := m.Export(ctx, id)
		for i, err := range []error{err1, err2, err3, err4, err5} {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("request %d: error is %v, want %v", i, err, ErrDamaged)
			}
		}
		if err := m.Delete(ctx, id); err != nil {
			t.Error(err)
		}
		if _, err := m.Get(ctx, id); !errors.Is(err, ErrUnknown) {
			t.Errorf("after Delete: error is %v, want %v", err, ErrUnknown)
		}
	}
	if lines := logLines(t, m); len(lines) != 1 {
		t.Errorf("the log has %d lines, needs 1", len(lines))
	}
	requireState(t, m, whole.ID, tokens(90, 1))
	closed(t, m)
	m = open(t, o)
	if n := m.Stats().DamagedSessions; n != 0 {
		t.Errorf("%d damaged sessions after Delete", n)
	}
	requireState(t, m, whole.ID, tokens(90, 1))
}

// TestDeletedRecordOutOfOrderStaysDeleted damages the key of a record, so that no search finds it.
func TestDeletedRecordOutOfOrderStaysDeleted(t *testing.T) {
	t.Parallel()
	o := Options{Model: newNearFar(t), Store: t.TempDir()}
	m := open(t, o)
	for range 3 {
		must[Info](t)(m.Create(ctx, tokens(90, 1)))
	}
	list := m.List(ctx)
	closed(t, m)
	path, lost := filepath.Join(o.Store, storeFile), "z"+list[0].ID[1:]
	data := must[[]byte](t)(os.ReadFile(path))
	if err := os.WriteFile(path, bytes.ReplaceAll(data, []byte(list[0].ID), []byte(lost)), 0o600); err != nil {
		t.Fatal(err)
	}
	m = open(t, o)
	if n := m.Stats().DamagedSessions; n != 1 {
		t.Fatalf("%d damaged sessions, want 1", n)
	}
	if err := m.Delete(ctx, lost); err != nil {
		t.Fatal(err)
	}
	closed(t, m)
	m = open(t, o)
	if n := m.Stats().DamagedSessions; n != 0 {
		t.Errorf("%d damaged sessions after Delete", n)
	}
	requireState(t, m, list[2].ID, tokens(90, 1)) // the search for list[1] ends at the damaged key
}

// TestUnreadLinesOutOfOrderEnd damages the first keys of pages of tokens: each names the first line.
func TestUnreadLinesOutOfOrderEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := os.Getpagesize()
	s, _, _, err := openStore(dir, "a model", once)
	for i := 0; i < 12 && err == nil; i++ {
		err = errors.Join(s.create(string(rune('a'+i)), record{}, tokens(page/16, 1)), s.update(func(tx transaction) error {
			_, err := tx.Bucket(tokenBucket).NextSequence() // a line that is gone
			return err
		}))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.close()
	path, changed := filepath.Join(dir, storeFile), 0
	data := must[[]byte](t)(os.ReadFile(path))
	for at := 0; at < len(data); at += page {
		const leaf, header = 2, 16
		element := data[at+header:] // of the first key: flags, position, size of the key and of the value
		le := binary.LittleEndian
		if le.Uint16(data[at+8:]) != leaf || le.Uint16(data[at+10:]) == 0 || le.Uint32(element[8:]) != 16 {
			continue
		}
		if key := element[le.Uint32(element[4:]):]; binary.BigEndian.Uint64(key) > 1 {
			binary.BigEndian.PutUint64(key, 1)
			changed++
		}
	}
	if err := os.WriteFile(path, data, 0o600); err != nil || changed == 0 {
		t.Fatalf("%d pages are damaged: %v", changed, err)
	}
	if s, _, _, err = openStore(dir, "a model", once); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.deleteUnread() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
		s.close()
	case <-time.After(10 * time.Second):
		t.Error("the search for lines does not end")
	}
}

func TestCutDatabaseEndsAllOperations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _, _, err := openStore(dir, "a model", once)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, storeFile), 0); err != nil {
		t.Skip(err)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		for range 3 {
			if err := s.create("s", record{}, nil); !errors.Is(err, ErrDamaged) {
				t.Errorf("error is %v, want %v", err, ErrDamaged)
			}
		}
		s.close()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("operations of a cut database do not end")
	}
}
