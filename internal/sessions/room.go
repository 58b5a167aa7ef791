package sessions

import (
	"fmt"
	"slices"
	"time"
)

// maxExpired bounds the ids of expired sessions that are remembered, for the words of their errors.
const maxExpired = 1024

// noticeTime is the least time between two lines about expired sessions.
const noticeTime = time.Minute

// expired holds what is known of sessions that made room for others. Manager.mu protects it.
type expired struct {
	ids  []string  // the latest
	news int64     // sessions of which the operator was not told
	told time.Time // when the operator was told last
}

// expireLocked deletes the idle session that was used the longest ago, if that is longer than Options.SessionTTL,
// and reports whether it did. Sessions of a store stay: they go to its disk. m.mu is held.
func (m *Manager) expireLocked() bool { return m.expireOfLocked(func(*session) bool { return true }) }

// expireOfLocked is expireLocked for the sessions that is reports. m.mu is held.
func (m *Manager) expireOfLocked(is func(s *session) bool) bool {
	last := m.memory.idleSessions.Back()
	for last != nil && !is(last.Value.(*session)) {
		last = last.Prev()
	}
	if m.store != nil || last == nil {
		return false
	}
	s := last.Value.(*session)
	if time.Since(s.used) < m.o.SessionTTL {
		return false
	}
	m.memory.setIdle(s, false)
	m.memory.setState(s, nil)
	delete(m.sessions, s.id)
	x := &m.expired
	if len(x.ids) == maxExpired {
		x.ids = slices.Delete(x.ids, 0, 1)
	}
	x.ids = append(x.ids, s.id)
	m.stats.Expired++
	x.news++
	if m.o.Notify != nil && time.Since(x.told) >= noticeTime {
		m.o.Notify(fmt.Sprintf("sessions that were idle for more than %v made room for others: %d", m.o.SessionTTL, x.news))
		x.told, x.news = time.Now(), 0
	}
	return true
}

// fitsLocked reports whether more bytes fit into memory beside those that have to stay. Expired sessions make room. m.mu is held.
func (m *Manager) fitsLocked(more int64) bool {
	for pinnedBytes(m, more)+more > m.o.Memory {
		if !m.expireLocked() {
			return false
		}
	}
	return true
}

// fullMemory returns the error of memory that states fill. m.mu is held.
func (m *Manager) fullMemory() error {
	remedy := "wait for running requests, or give --memory more"
	if m.store == nil && len(m.sessions) > 0 {
		remedy = fmt.Sprintf("DELETE sessions, wait until some are idle for %v (--session-ttl), keep them in a --store, or give --memory more", m.o.SessionTTL)
	}
	return fmt.Errorf("%w: states take %d bytes of memory, the limit is %d; %s", ErrFull, pinnedBytes(m, 0), m.o.Memory, remedy)
}

// checkShareLocked returns ErrFull if an owner holds its share already: more sessions than are free, or more bytes in
// memory than are free, with those that are added. n owners that take all they get leave as much to the others as
// each of them has. m.mu is held.
func (m *Manager) checkShareLocked(owner string, sessions int, bytes int64) error {
	if m.o.Owners < 2 || owner == "" {
		return nil
	}
	isOwn := func(s *session) bool { return s.owner == owner }
	for {
		count, own := 0, int64(0)
		for _, s := range m.sessions {
			if isOwn(s) {
				count++
				own += s.counted
			}
		}
		var err error
		switch free := m.o.MaxSessions - len(m.sessions); {
		case count+sessions > free:
			err = fmt.Errorf("%w: %d sessions of this key are held, and %d of all; a key may have as many as are free, of --max-sessions %d; DELETE some", ErrFull, count, len(m.sessions), m.o.MaxSessions)
		case m.store == nil && own+bytes > m.o.Memory-m.memory.bytes:
			err = fmt.Errorf("%w: states of this key take %d bytes of memory and need %d more, all take %d; a key may have as much as is free, of --memory %d; DELETE some", ErrFull, own, bytes, m.memory.bytes, m.o.Memory)
		}
		if err == nil || !m.expireOfLocked(isOwn) {
			return err
		}
	}
}

// renderRoom is a share of Options.Memory that sessions leave to Reserve, at most maxRenderRoom bytes.
const (
	renderRoom    = 8
	maxRenderRoom = 1 << 20
)

// checkSessionLocked returns ErrFull if the state of a session, of more bytes than it had, does not leave room for a
// running request beside the states that stay. The first session alone may take all. With a store states go to its
// disk. m.mu is held.
func (m *Manager) checkSessionLocked(bytes, more int64) error {
	if m.store != nil {
		return nil
	}
	for {
		others, largest := false, max(bytes, m.coder.empty.HeapBytes())
		for _, s := range m.sessions {
			others = others || s.counted > 0
			largest = max(largest, s.counted)
		}
		room := largest + min(m.o.Memory/renderRoom, maxRenderRoom)
		switch {
		case !others || m.memory.bytes+more+room <= m.o.Memory:
			return nil
		case !m.expireLocked():
			return m.fullMemory()
		}
	}
}
