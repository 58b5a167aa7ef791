package sessions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/infile"
)

// Export returns a snapshot of a session for Import. It returns an error if the session is
// unknown or busy, a limit is reached (ErrFull), or ctx ends.
func (m *Manager) Export(ctx context.Context, id string) ([]byte, error) {
	s, err := m.acquire(id)
	if err != nil {
		return nil, err
	}
	defer m.release(s)
	if err := m.activate(ctx, s); err != nil {
		return nil, err
	}
	return m.encodeState(s.state, nil, s.pending)
}

// Import returns a new session of a snapshot. It returns ErrForeign if the snapshot is of
// another model, tokenizer or precision, and an error if data is damaged or a limit is
// reached (ErrTooLong, ErrFull).
func (m *Manager) Import(ctx context.Context, data []byte) (Info, error) {
	if err := m.begin(); err != nil {
		return Info{}, err
	}
	defer m.end()
	if err := m.checkRoom(); err != nil {
		return Info{}, err
	}
	from, err := m.decodeState(data)
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
	if err := m.checkLength(start + int64(len(from.pending))); err != nil {
		return Info{}, err
	}
	key := importKey(data)
	s := &session{id: newID(), state: from.state, prefix: prefix{chain: key}, pending: from.pending, tokens: start + int64(len(from.pending)), imported: fmt.Sprintf("%x", key), saved: start}
	info, err := m.add(s, func() error {
		if err := m.writeImport(s.imported, data); err != nil {
			return err
		}
		return m.store.create(s.id, record{Tokens: start, Start: start, Import: s.imported, Bytes: s.bytes}, from.pending)
	})
	if err != nil {
		m.removeImport(s.imported)
	}
	return info, err
}

// writeImport writes an imported snapshot, unless a session has it.
func (m *Manager) writeImport(key string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	path, size := m.importPath(key), int64(len(data))
	if m.importBytes+size > m.o.Disk {
		return fmt.Errorf("%w: imported snapshots take %d bytes on disk, the limit is %d", ErrFull, m.importBytes+size, m.o.Disk)
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := writeFile(path, data); err != nil {
		return err
	}
	m.importBytes += size
	return nil
}

// removeImport removes an imported snapshot that no session needs any more.
func (m *Manager) removeImport(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.store == nil || key == "" {
		return
	}
	for _, s := range m.sessions {
		if s.imported == key {
			return
		}
	}
	info, err := os.Stat(m.importPath(key))
	if err == nil && os.Remove(m.importPath(key)) == nil { // one that stays is found by the next Open
		m.importBytes -= info.Size()
	}
}

// openImport reads the imported snapshot of a key.
func (m *Manager) openImport(key string) (*savedState, error) {
	data, err := infile.ReadFile(m.importPath(key))
	if err == nil {
		var from savedState
		if from, err = m.decodeState(data); err == nil {
			from.prefix = prefix{chain: importKey(data)}
			return &from, nil
		}
	}
	return nil, fmt.Errorf("%w: the imported snapshot: %w", ErrDamaged, err)
}

// loadImports counts the imported snapshots that sessions need, and removes others.
func (m *Manager) loadImports(records map[string]record) error {
	needed := map[string]bool{}
	for _, r := range records {
		needed[r.Import] = true
	}
	dir := filepath.Join(m.o.Store, importsFolder)
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range list {
		info, err := f.Info()
		if _, ok := parseKey(f.Name()); err != nil || !ok {
			continue
		}
		if needed[f.Name()] {
			m.importBytes += info.Size()
		} else if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}
