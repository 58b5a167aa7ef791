package sessions

import (
	"cmp"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/model"
)

// Folders of the store.
const (
	statesFolder  = "states"  // of the cache: every file may be removed
	importsFolder = "imports" // snapshots without known tokens: sessions need them
)

// stateFiles holds the states of the cache that are on disk.
type stateFiles struct {
	coder *coder
	cache *cache
	dir   string
	limit int64 // of cache.diskBytes and imports

	// Of a disk that was full; cache.mu protects them.
	fullLimit int64     // of cache.diskBytes
	fullUntil time.Time // end of fullLimit

	imports *importFiles

	restored, damaged atomic.Int64
}

// path returns the file of an entry. cache.mu is held. Its name has the node, the tokens after it and
// the key, so that the trie is known without reading the files.
func (f *stateFiles) path(e *entry) string {
	name := hex.EncodeToString(e.prefix.chain[:]) + "-" + strconv.Itoa(len(e.prefix.rest)) + "-" + hex.EncodeToString(e.key[:])
	return filepath.Join(f.dir, name)
}

// parseKey reads a key in hexadecimal digits.
func parseKey(text string) (k prefixKey, ok bool) {
	if len(text) != 2*len(k) {
		return k, false
	}
	_, err := hex.Decode(k[:], []byte(text))
	return k, err == nil
}

// load adds the files to the cache, by their times of change.
func (f *stateFiles) load() error {
	list, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	type file struct {
		info fs.FileInfo
		e    *entry
	}
	var files []file
	for _, x := range list {
		info, err := x.Info()
		parts := strings.Split(x.Name(), "-")
		if err != nil || !info.Mode().IsRegular() || len(parts) != 3 {
			continue
		}
		chain, ok1 := parseKey(parts[0])
		key, ok2 := parseKey(parts[2])
		n, err := strconv.Atoi(parts[1])
		if ok1 && ok2 && err == nil && n >= 0 && n < chunkTokens {
			files = append(files, file{info, f.cache.entryOf(key, prefix{chain, make([]int32, n)})})
		}
	}
	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(a.info.ModTime().Compare(b.info.ModTime()), cmp.Compare(a.info.Name(), b.info.Name()))
	})
	for _, x := range files {
		f.cache.addFile(x.e, max(x.info.Size(), 1))
	}
	return nil
}

// open returns a state of an entry that the caller may step. It returns nil, and
// removes the entry, if the file is damaged.
func (f *stateFiles) open(e *entry) (*savedState, error) {
	f.cache.mu.Lock()
	state, known, path := e.state, e.prefix, f.path(e)
	f.cache.mu.Unlock()
	if state != nil {
		return &savedState{state: state.Clone(), prefix: known.clone()}, nil
	}
	data, err := infile.ReadFile(path)
	var s savedState
	if err == nil {
		s, err = f.coder.decode(data)
	}
	if err == nil && s.prefix.key() == e.key {
		f.restored.Add(1)
		return &s, nil
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		f.damaged.Add(1)
	}
	f.remove(e)
	return nil, nil
}

// remove forgets the file of an entry.
func (f *stateFiles) remove(e *entry) {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	os.Remove(f.path(e)) // one that stays is found by the next Open
	f.cache.setFile(e, 0)
	f.cache.forget(e)
}

// findLongest returns the state of the longest known prefix of ids, for the caller to
// step, and its number of tokens. It returns nil if none is known.
func (f *stateFiles) findLongest(keys []prefixKey, ids []int32) (*savedState, int, error) {
	for {
		e, n := f.cache.find(keys, ids)
		if e == nil {
			return nil, 0, nil
		}
		s, err := f.open(e)
		if s != nil || err != nil {
			return s, n, err
		}
	}
}

// save writes the state of an entry and drops it from memory. It reports whether there is
// a file. Without one, the log still has the tokens.
func (f *stateFiles) save(e *entry) bool {
	f.cache.mu.Lock()
	state, known, path, size := e.state, e.prefix, f.path(e), e.fileSize
	f.cache.mu.Unlock()
	if size == 0 && state != nil {
		if data, err := f.coder.encode(state, &known, nil); err == nil && int64(len(data)) <= f.room() {
			if err := atomicfile.WriteBytes(path, data); err == nil {
				size = int64(len(data))
				f.cache.addFile(e, size)
			}
		}
	}
	f.cache.setSaving(e, false)
	if size == 0 { // another attempt would fail, too
		f.cache.mu.Lock()
		f.cache.dropMemory(e)
		f.cache.mu.Unlock()
	}
	return size > 0
}

// room returns the bytes that states may take on disk beside imported snapshots.
func (f *stateFiles) room() int64 {
	room := f.limit - f.imports.bytes()
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	if time.Now().Before(f.fullUntil) {
		room = min(room, f.fullLimit)
	}
	return room
}

// trim removes files while they exceed the limit.
func (f *stateFiles) trim() {
	for {
		room := f.room()
		f.cache.mu.Lock()
		var e *entry
		if f.cache.diskBytes > room {
			e = victim(&f.cache.disk, false)
		}
		f.cache.mu.Unlock()
		if e == nil {
			return
		}
		f.remove(e)
	}
}

// saver writes states behind the requests.
type saver struct {
	m     *Manager
	mu    sync.Mutex
	list  []saving
	stop  bool
	wake  chan struct{} // capacity 1
	ended chan struct{}
}

// saving is an entry to be written, and the session whose last snapshot it becomes.
type saving struct {
	e   *entry
	id  string // "": none
	era int64  // of the session
}

// Limits of the states that wait for the disk.
const (
	maxSaving   = 64
	savingShare = 8 // of Options.Memory that they may take besides, unless it is one
)

// newSaver starts a saver.
func newSaver(m *Manager) *saver {
	s := &saver{m: m, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go s.serve()
	return s
}

// add queues the entry of p, the prefix of a session, for the disk. It returns false if the queue is full.
func (s *saver) add(p prefix, state *model.Session, of *session) bool {
	e := s.m.cache.put(p, state)
	s.m.cache.setSaving(e, true)
	s.m.mu.Lock()
	era := of.era
	s.m.mu.Unlock()
	return s.queue(saving{e, of.id, era})
}

// queue queues an entry that is marked as saving. It returns false, and takes the mark
// back, if the queue is full.
func (s *saver) queue(next saving) bool {
	e := next.e
	s.mu.Lock()
	full := s.stop || len(s.list) >= maxSaving || s.m.cache.isWaitFull(e, s.m.o.Memory/savingShare)
	if !full {
		s.list = append(s.list, next)
	}
	s.mu.Unlock()
	if full {
		s.m.cache.setSaving(e, false)
		return false
	}
	signal(s.wake)
	return true
}

// serve writes entries until close.
func (s *saver) serve() {
	defer close(s.ended)
	for {
		s.mu.Lock()
		list, stop := s.list, s.stop
		var next saving
		if len(list) > 0 {
			next, s.list = list[0], list[1:]
		}
		s.mu.Unlock()
		switch {
		case next.e != nil:
			if s.m.saveEntry(next.e) && next.id != "" {
				s.m.setSnapshots([]saving{next})
			}
		case stop:
			return
		default:
			<-s.wake
		}
	}
}

// close writes what is queued and ends the goroutine.
func (s *saver) close() {
	s.mu.Lock()
	s.stop = true
	s.mu.Unlock()
	signal(s.wake)
	<-s.ended
}

// saveEntry writes the state of an entry and keeps the limits. It reports whether there is
// a file.
func (m *Manager) saveEntry(e *entry) bool {
	isSaved := m.files.save(e)
	m.trimMemory()
	m.files.trim()
	return isSaved
}

// setSnapshots makes entries the last snapshots of their sessions, unless those were rewound meanwhile.
func (m *Manager) setSnapshots(list []saving) {
	m.mu.Lock()
	list = slices.DeleteFunc(list, func(x saving) bool {
		s := m.sessions[x.id]
		if s == nil || s.snapshot == x.e || s.era != x.era {
			return true
		}
		m.cache.pin(x.e, 1)
		m.cache.pin(s.snapshot, -1)
		s.snapshot = x.e
		return false
	})
	m.mu.Unlock()
	if len(list) > 0 {
		// An error only makes the next restart longer.
		_ = m.store.setSnapshots(list)
	}
}
