package sessions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
)

// Export returns a snapshot of a session, which Import reads. It returns an error if the session is
// unknown or busy, if a limit is reached (ErrFull), or if ctx ends.
func (m *Manager) Export(ctx context.Context, id string) ([]byte, error) {
	s, err := m.acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	defer m.release(s)
	if err := m.activate(ctx, s); err != nil {
		return nil, err
	}
	return m.coder.encode(s.state, nil, s.pending)
}

// Import makes a session from a snapshot and returns it. It returns ErrForeign if the snapshot
// belongs to another model, tokenizer or precision, and an error if data is damaged, if its state
// cannot take another token, if a limit is reached (ErrTooLong, ErrFull), or if ctx ends.
func (m *Manager) Import(ctx context.Context, data []byte) (Info, error) {
	if err := m.begin(ownerOf(ctx)); err != nil {
		return Info{}, err
	}
	defer m.end(ownerOf(ctx))
	if err := m.checkRoom(ownerOf(ctx)); err != nil {
		return Info{}, err
	}
	from, err := m.coder.decode(data)
	if errors.Is(err, ErrForeign) {
		return Info{}, err
	}
	if err != nil {
		return Info{}, fieldErrorf("snapshot", "%v", err)
	}
	start := from.state.Tokens()
	if start > 0 && len(from.pending) == 0 {
		return Info{}, fieldErrorf("snapshot", "its state has %d tokens, and no token follows", start)
	}
	if err := m.o.checkLength(start, int64(len(from.pending))); err != nil {
		return Info{}, err
	}
	if err := m.tryState(ctx, &from); err != nil {
		return Info{}, err
	}
	key := importKey(data)
	s := &session{id: newID(), owner: ownerOf(ctx), state: from.state, prefix: prefix{chain: key}, pending: from.pending, tokens: start + int64(len(from.pending)), imported: fmt.Sprintf("%x", key), saved: start, start: start}
	if m.store == nil {
		s.ids = from.pending
	}
	info, err := m.add(s, func() error {
		if err := m.imports.write(s.imported, data); err != nil {
			return err
		}
		return m.store.create(s.id, record{Owner: s.owner, Tokens: start, Start: start, Import: s.imported, Bytes: s.bytes}, from.pending)
	})
	if err != nil {
		m.removeImport(s.imported)
	}
	m.files.trim()
	return info, err
}

// tryState reads the first pending token with a copy of an imported state. Numbers of a state whose checksums are
// right may still be forged: it returns an error if the model cannot go on with them, before a session has the state.
func (m *Manager) tryState(ctx context.Context, from *savedState) error {
	if len(from.pending) == 0 {
		return nil
	}
	first := from.pending[0]
	j := &job{ctx: ctx, state: from.state.Clone(), feed: []int32{first, first}} // the last one is not read
	err := m.queue.run(j, nil)
	if err != nil && j.isBroken {
		return fieldErrorf("snapshot", "its state does not go on: %v", err)
	}
	return err
}

// removeImport removes an imported snapshot that no session needs any more. Damaged records may
// need all of them, as in importFiles.load.
func (m *Manager) removeImport(key string) {
	if m.store == nil || key == "" {
		return
	}
	m.imports.remove(key, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, s := range m.sessions {
			if s.imported == key {
				return true
			}
		}
		return len(m.damaged) > 0
	})
}

// importFiles holds the imported snapshots of a store. Sessions need them, because their
// tokens are unknown.
type importFiles struct {
	coder *coder
	dir   string
	limit int64                          // of size, in bytes
	retry func(write func() error) error // Manager.write

	mu   sync.Mutex // of changes of files; Manager.mu may be locked after it, not before
	size atomic.Int64
}

// path returns the file of a snapshot.
func (x *importFiles) path(key string) string { return filepath.Join(x.dir, key) }

// write writes a snapshot. It replaces a file of the same key, which may be damaged.
func (x *importFiles) write(key string, data []byte) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	path, size := x.path(key), int64(len(data))
	if info, err := os.Stat(path); err == nil {
		size -= info.Size()
	}
	if all := x.size.Load() + size; all > x.limit {
		return fmt.Errorf("%w: imported snapshots take %d bytes on disk, the limit is %d", ErrFull, all, x.limit)
	}
	if err := x.retry(func() error { return atomicfile.WriteBytes(path, data) }); err != nil {
		return err
	}
	x.size.Add(size)
	return nil
}

// remove removes a snapshot unless it is needed. A write of the key waits meanwhile, and then writes it anew.
func (x *importFiles) remove(key string, isNeeded func() bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if isNeeded() {
		return
	}
	info, err := os.Stat(x.path(key))
	if err == nil && os.Remove(x.path(key)) == nil { // one that stays is found by the next Open
		x.size.Add(-info.Size())
	}
}

// bytes returns the size of the files.
func (x *importFiles) bytes() int64 { return x.size.Load() }

// open reads a snapshot.
func (x *importFiles) open(key string) (*savedState, error) {
	data, err := infile.ReadFile(x.path(key))
	if err == nil {
		var from savedState
		if from, err = x.coder.decode(data); err == nil {
			from.prefix = prefix{chain: importKey(data)}
			return &from, nil
		}
	}
	return nil, fmt.Errorf("%w: the imported snapshot: %w", ErrDamaged, err)
}

// load counts the snapshots that sessions need. It removes others, unless keepAll is set:
// a damaged record may need them once the database is restored from a copy.
func (x *importFiles) load(records map[string]record, keepAll bool) error {
	needed := map[string]bool{}
	for _, r := range records {
		needed[r.Import] = true
	}
	list, err := os.ReadDir(x.dir)
	if err != nil {
		return err
	}
	for _, f := range list {
		info, err := f.Info()
		if _, ok := parseKey(f.Name()); err != nil || !ok {
			continue
		}
		if needed[f.Name()] || keepAll {
			x.size.Add(info.Size())
		} else if err := os.Remove(x.path(f.Name())); err != nil {
			return err
		}
	}
	return nil
}
