package sessions

import (
	"container/list"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/farfield-ml/farfield/model"
)

// checkIDs returns an error if an id is out of a vocabulary.
func checkIDs(ids []int32, vocab int) error {
	for i, t := range ids {
		if t < 0 || int(t) >= vocab {
			return fieldErrorf("ids", "element %d is %d, the vocabulary has %d tokens", i, t, vocab)
		}
	}
	return nil
}

// checkLength returns an error if a session of n tokens is too long with more. Their sum may
// be beyond an int64.
func (o *Options) checkLength(n, more int64) error {
	if more > o.MaxTokens-n {
		return fmt.Errorf("%w: %d are needed, a session has at most %d", ErrTooLong, uint64(n)+uint64(more), o.MaxTokens)
	}
	return nil
}

// newID returns a random id of 128 bits.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// begin counts a request of an owner in. It returns an error if the Manager is closed, or if too many
// requests run or wait. An owner may have as many of them as there are free places, so that one
// whose requests fill half of the queue leaves the other half to the others.
func (m *Manager) begin(owner string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.beginLocked(owner)
}

// beginLocked is begin for a caller that holds m.mu.
func (m *Manager) beginLocked(owner string) error {
	switch {
	case m.closed:
		return ErrClosed
	case m.running >= m.o.MaxQueue:
		return fmt.Errorf("%w: %d requests run or wait", ErrFull, m.running)
	case owner != "" && m.owners[owner] >= m.o.MaxQueue-m.running:
		return fmt.Errorf("%w: %d requests of this key run or wait, and %d of all; a key may have as many as places are free, of %d", ErrFull, m.owners[owner], m.running, m.o.MaxQueue)
	}
	m.running++
	m.owners[owner]++
	return nil
}

// end counts a request of an owner out.
func (m *Manager) end(owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running--
	if m.owners[owner]--; m.owners[owner] == 0 {
		delete(m.owners, owner)
	}
	if m.closed && m.running == 0 {
		select {
		case <-m.drained:
		default:
			close(m.drained)
		}
	}
}

// acquire begins a request of a session that the owner of ctx sees.
func (m *Manager) acquire(ctx context.Context, id string) (*session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	s, err := m.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.isBusy {
		return nil, ErrBusy
	}
	if err := m.beginLocked(ownerOf(ctx)); err != nil {
		return nil, err
	}
	s.isBusy, s.requester = true, ownerOf(ctx)
	m.memory.setIdle(s, false)
	return s, nil
}

// release ends a request of a session.
func (m *Manager) release(s *session) {
	m.mu.Lock()
	requester := s.requester
	s.isBusy, s.used = false, time.Now()
	m.memory.setIdle(s, s.state != nil && m.sessions[s.id] == s)
	m.mu.Unlock()
	m.trimMemory()
	m.end(requester)
}

// memory holds the states of sessions in memory. Manager.mu protects it.
type memory struct {
	idleSessions list.List // sessions with a state and no request, the latest in front
	bytes        int64     // of all states
	texts        int64     // bytes of the tokens of sessions in memory alone
	reserved     int64     // bytes of Manager.Reserve
}

// tokenBytes is the memory of a token of a session in memory alone.
const tokenBytes = 4

// Reserve sets bytes of memory aside, beside the states of sessions, until Release. It removes
// states that can be computed again to make room, and returns ErrFull if the others leave none.
func (m *Manager) Reserve(bytes int64) error {
	m.mu.Lock()
	if !m.fitsLocked(bytes) {
		defer m.mu.Unlock()
		return m.fullMemory()
	}
	m.memory.reserved += bytes
	m.mu.Unlock()
	m.trimMemory()
	return nil
}

// Release gives back bytes that Reserve has set aside.
func (m *Manager) Release(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memory.reserved -= bytes
}

// reserve counts the memory of a session whose state is read next.
func (x *memory) reserve(s *session) {
	x.bytes += s.bytes
	s.counted = s.bytes
}

// setIdle moves s into or out of the list of idle sessions.
func (x *memory) setIdle(s *session, is bool) {
	if s.idleElement != nil {
		x.idleSessions.Remove(s.idleElement)
		s.idleElement = nil
	}
	if is {
		s.idleElement = x.idleSessions.PushFront(s)
	}
}

// setState gives s a state, nil for none, and counts its memory.
func (x *memory) setState(s *session, state *model.Session) {
	x.bytes -= s.counted
	s.state, s.counted = state, 0
	if state != nil {
		s.bytes, s.counted = state.Bytes(), state.HeapBytes()
		x.bytes += s.counted
	}
}

// setState gives s a state, nil for none.
func (m *Manager) setState(s *session, state *model.Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memory.setState(s, state)
}

// checkMemory returns ErrFull if the states that have to stay in memory take all of it.
func (m *Manager) checkMemory() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return checkMemoryLocked(m)
}

// checkMemoryLocked is checkMemory for a caller that holds m.mu.
func checkMemoryLocked(m *Manager) error {
	if !m.fitsLocked(1) {
		return m.fullMemory()
	}
	return nil
}

// pinnedBytes returns the bytes that have to stay in memory: of states, and reserved ones. Where they
// and more fit below the limit, it may count idle sessions too. m.mu is held.
func pinnedBytes(m *Manager, more int64) int64 {
	n := m.memory.bytes + m.memory.texts + m.memory.reserved + m.queue.bytes.Load()
	if n+more >= m.o.Memory {
		for at := m.memory.idleSessions.Front(); at != nil; at = at.Next() {
			if s := at.Value.(*session); m.canDrop(s) {
				n -= s.counted
			}
		}
	}
	return n
}

// oldestIdle returns the idle session whose state can be dropped and was used the longest ago; nil: there is none.
// m.mu is held.
func (m *Manager) oldestIdle() *session {
	for at := m.memory.idleSessions.Back(); at != nil; at = at.Prev() {
		if s := at.Value.(*session); m.canDrop(s) {
			return s
		}
	}
	return nil
}

// trimMemory drops or saves states while they exceed the limit: prefixes first, then idle
// sessions, each the one that was used the longest ago. Without a store the state of a session is dropped, and its
// next request reads its tokens again.
func (m *Manager) trimMemory() {
	for {
		m.mu.Lock()
		m.cache.mu.Lock()
		over := m.memory.bytes+m.memory.texts+m.memory.reserved+m.queue.bytes.Load()+m.cache.memoryBytes-m.cache.savingBytes > m.o.Memory
		var e *entry
		if over {
			e = victim(&m.cache.memory, true)
		}
		spills := e != nil && m.store != nil && e.fileSize == 0
		if e != nil && !spills {
			m.cache.dropMemory(e)
		}
		m.cache.mu.Unlock()
		if spills {
			m.cache.setSaving(e, true)
		}
		var s *session
		if over && e == nil {
			s = m.oldestIdle()
		}
		var state *model.Session
		var known prefix // of state; a request may own s after m.mu
		if s != nil {
			state, known = s.state, s.prefix
			m.memory.setIdle(s, false)
			m.memory.setState(s, nil)
			if m.store == nil {
				m.stats.Recomputed++
			}
		}
		m.mu.Unlock()
		switch {
		case s != nil && m.store == nil:
		case s != nil:
			// If the disk is behind, the next request reads tokens from the log.
			m.saver.add(known, state, s)
		case spills:
			if !m.saver.queue(saving{e: e}) {
				m.cache.mu.Lock()
				m.cache.dropMemory(e)
				m.cache.mu.Unlock()
			}
		case e == nil:
			return
		}
	}
}

// checkRoom returns ErrFull if no session more of an owner fits.
func (m *Manager) checkRoom(owner string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.checkCountLocked(); err != nil {
		return err
	}
	if err := checkMemoryLocked(m); err != nil {
		return err
	}
	return m.checkShareLocked(owner, 1, 0)
}

// checkCountLocked returns ErrFull if there are as many sessions as there may be, and none is expired. m.mu is held.
func (m *Manager) checkCountLocked() error {
	for len(m.sessions) >= m.o.MaxSessions {
		if !m.expireLocked() {
			return fmt.Errorf("%w: %d sessions are held, as many as --max-sessions allows; %s", ErrFull, len(m.sessions), m.remedy("DELETE some"))
		}
	}
	return nil
}
