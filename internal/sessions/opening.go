package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/model"
)

// Manager holds the sessions of one model. Its methods may be called concurrently. If two requests
// need one session at a time, the second gets ErrBusy; Get and List do not need it. A request is
// acknowledged when its method returns nil. If there is a store, its tokens are then on disk and
// survive the end of the process at any moment. A request that fails leaves its session unchanged.
type Manager struct {
	o     Options
	coder coder

	lock    *lock.Lock
	store   *store // nil: sessions are in memory only
	imports importFiles
	files   stateFiles
	cache   *cache
	saver   *saver // nil: sessions are in memory only
	queue   *scheduler

	mu       sync.Mutex
	sessions map[string]*session
	expired  expired
	damaged  map[string]bool // ids of sessions whose records are damaged, until they are deleted
	memory   memory
	running  int
	owners   map[string]int // number of running requests of each owner
	closed   bool
	drained  chan struct{} // closed when, after Close, no request is running
	stats    Stats
}

// Open returns a Manager. If there is a store, Open locks it until Close, and sessions are restored
// when they are first used. It returns an error if the model has no sessions, if a limit is out of
// range, or if the store is in use, damaged, of another model (ErrForeign) or not writable.
func Open(ctx context.Context, o Options) (*Manager, error) {
	if err := errors.Join(ctx.Err(), o.complete()); err != nil {
		return nil, err
	}
	m := &Manager{o: o, cache: newCache(), sessions: map[string]*session{}, damaged: map[string]bool{}, owners: map[string]int{}, drained: make(chan struct{})}
	var err error
	if m.coder, err = newCoder(o.Model, o.Identity); err != nil {
		return nil, err
	}
	m.files.coder, m.files.cache, m.files.dir, m.files.limit = &m.coder, m.cache, filepath.Join(o.Store, statesFolder), o.Disk
	m.files.imports = &m.imports
	m.imports.retry = m.write
	m.imports.coder, m.imports.dir, m.imports.limit = &m.coder, filepath.Join(o.Store, importsFolder), o.Disk
	if o.Store != "" {
		if err := m.openStore(); err != nil {
			return nil, err
		}
		m.saver = newSaver(m)
		m.files.trim()
	}
	m.queue = newScheduler(m)
	return m, nil
}

// setLimit sets a limit of 0 to its default. It returns an error if it is not between 1 and
// most.
func setLimit[N int | int64 | time.Duration](name string, limit *N, start, most N) error {
	*limit = cmp.Or(*limit, start)
	if *limit < 1 || *limit > most {
		return fmt.Errorf("%s: %v is not between 1 and %v", name, *limit, most)
	}
	return nil
}

// complete sets defaults. It returns an error for the first invalid field.
func (o *Options) complete() error {
	if o.Model == nil {
		return errors.New("model: it is nil")
	}
	for _, err := range []error{
		setLimit("memory", &o.Memory, defaultMemory, math.MaxInt64),
		setLimit("disk", &o.Disk, defaultDisk, math.MaxInt64),
		setLimit("max tokens", &o.MaxTokens, defaultMaxTokens, math.MaxInt32),
		setLimit("max sessions", &o.MaxSessions, defaultMaxSessions, math.MaxInt32),
		setLimit("max queue", &o.MaxQueue, defaultMaxQueue, math.MaxInt32),
		setLimit("max batch", &o.MaxBatch, defaultMaxBatch, 1<<16),
		setLimit("session ttl", &o.SessionTTL, defaultSessionTTL, math.MaxInt64),
	} {
		if err != nil {
			return err
		}
	}
	if c := o.Model.Config(); c.Positions == model.Learned {
		o.MaxTokens = min(o.MaxTokens, int64(c.LearnedPositions()))
	}
	return nil
}

// openStore locks the folder and reads its sessions.
func (m *Manager) openStore() (err error) {
	for _, dir := range []string{m.files.dir, m.imports.dir} {
		if err := atomicfile.MakeFolder(dir); err != nil {
			return err
		}
		// States reveal the texts of their sessions. A folder of another user keeps its mode.
		_ = os.Chmod(dir, 0o700)
	}
	if m.lock, err = lock.LockFolder(m.o.Store); err != nil {
		return err
	}
	var records map[string]record
	var damaged []string
	if err = m.files.load(); err == nil { // first, as the store may need their room
		m.store, records, damaged, err = openStore(m.o.Store, m.o.Identity, m.write)
	}
	if err == nil {
		err = m.imports.load(records, len(damaged) > 0)
	}
	if err != nil {
		if m.store != nil {
			m.store.close()
		}
		m.lock.Release()
		return err
	}
	for id, r := range records {
		s := &session{id: id, owner: r.Owner, tokens: r.Tokens, bytes: r.Bytes, imported: r.Import, start: r.Start, era: r.Rewinds}
		if key, ok := parseKey(r.Snapshot); ok {
			s.snapshot = m.cache.lookup(key)
			m.cache.pin(s.snapshot, 1)
		}
		m.sessions[id] = s
	}
	for _, id := range damaged {
		m.damaged[id] = true
	}
	return nil
}

// Close refuses new requests and waits for the running ones, until ctx ends and they are cancelled.
// It writes the states of sessions and prefixes, so that after the next Open no token has to be
// read again, and releases the store. A second call does nothing. Close returns the error of ctx if
// it ended first.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	if m.running == 0 {
		close(m.drained)
	}
	m.mu.Unlock()
	select {
	case <-m.drained:
	case <-ctx.Done():
	}
	m.queue.close()
	if m.store != nil {
		m.saver.close()
		m.saveAll(ctx)
		m.store.close()
		m.lock.Release()
	}
	return ctx.Err()
}

// saveAll writes the states in memory until ctx ends. Each leaves memory, and none is dropped
// for the limit of memory.
func (m *Manager) saveAll(ctx context.Context) {
	m.mu.Lock()
	var list []*session
	for at := m.memory.idleSessions.Back(); at != nil; at = at.Prev() {
		list = append(list, at.Value.(*session))
	}
	m.mu.Unlock()
	var saved []saving
	for _, s := range list {
		if ctx.Err() != nil {
			break
		}
		m.mu.Lock()
		state, known := s.state, s.prefix // state is nil where trimMemory was first
		m.memory.setIdle(s, false)
		m.memory.setState(s, nil)
		m.mu.Unlock()
		if state == nil || s.tokens == 0 {
			continue
		}
		e := m.cache.put(known, state)
		m.cache.setSaving(e, true)
		if m.saveEntry(e) {
			saved = append(saved, saving{e, s.id, s.era})
		}
	}
	m.setSnapshots(saved)
	m.cache.mu.Lock()
	var states []*entry
	for at := m.cache.memory.Back(); at != nil; at = at.Prev() {
		states = append(states, at.Value.(*entry))
	}
	m.cache.mu.Unlock()
	for _, e := range states {
		if ctx.Err() != nil {
			return
		}
		m.cache.setSaving(e, true)
		m.saveEntry(e)
	}
}

// Get describes a session. It returns ErrUnknown if the owner of ctx may not see it or it does not
// exist, and ErrDamaged if its record is damaged.
func (m *Manager) Get(ctx context.Context, id string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.find(ctx, id)
	if err != nil {
		return Info{}, err
	}
	return s.look(), nil
}

// find returns the session of an id. m.mu is held. A damaged record has no owner: each owner
// that has its id sees it.
func (m *Manager) find(ctx context.Context, id string) (*session, error) {
	s := m.sessions[id]
	switch {
	case s != nil && s.isVisible(ownerOf(ctx)):
		return s, nil
	case s == nil && slices.Contains(m.expired.ids, id):
		return nil, fmt.Errorf("%w: the session was idle for more than %v and made room for others (--session-ttl)", ErrUnknown, m.o.SessionTTL)
	case m.damaged[id]:
		return nil, fmt.Errorf("%w: its record", ErrDamaged)
	}
	return nil, ErrUnknown
}

// Damaged returns the sorted ids of sessions whose records in the store are damaged. Requests for
// them return ErrDamaged; Delete removes them.
func (m *Manager) Damaged() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.damaged))
}

// List describes the sessions that the owner of ctx may see, in the order of their ids.
func (m *Manager) List(ctx context.Context) []Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Info, 0, len(m.sessions))
	for _, s := range m.sessions {
		if s.isVisible(ownerOf(ctx)) {
			list = append(list, s.look())
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Stats returns the counts of the Manager.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Sessions, s.Running, s.StateBytes = len(m.sessions), m.running, m.memory.bytes+m.memory.texts
	s.PrefixBytes, s.DiskBytes = m.cache.bytes()
	s.WorkBytes = m.queue.bytes.Load() + m.memory.reserved
	s.DiskBytes += m.imports.bytes()
	s.Restored, s.Damaged = m.files.restored.Load(), m.files.damaged.Load()
	s.DamagedSessions = len(m.damaged)
	return s
}

// count applies f to the counts.
func (m *Manager) count(f func(*Stats)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.stats)
}
