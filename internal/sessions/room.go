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
	if m.store != nil {
		return false
	}
	var s *session
	for _, x := range m.sessions {
		if !x.isBusy && is(x) && (s == nil || x.used.Before(s.used)) {
			s = x
		}
	}
	if s == nil || time.Since(s.used) < m.o.SessionTTL {
		return false
	}
	m.memory.setIdle(s, false)
	m.memory.setState(s, nil)
	m.forgetLocked(s)
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

// forgetLocked removes a session whose state is dropped. m.mu is held.
func (m *Manager) forgetLocked(s *session) {
	delete(m.sessions, s.id)
	m.memory.texts -= tokenBytes * int64(len(s.ids))
	s.ids = nil
}

// remedy returns what makes room for a session, beside first.
func (m *Manager) remedy(first string) string {
	if m.store != nil {
		return first
	}
	return fmt.Sprintf("%s, or wait until some are idle for %v (--session-ttl)", first, m.o.SessionTTL)
}

// fullMemory returns the error of memory that states fill. m.mu is held.
func (m *Manager) fullMemory() error {
	remedy := "wait for running requests, or give --memory more"
	if m.store == nil && len(m.sessions) > 0 {
		remedy = "wait for running requests, give --memory more, keep sessions in a --store, " + m.remedy("DELETE some")
	}
	return fmt.Errorf("%w: states take %d bytes of memory, the limit is %d; %s", ErrFull, pinnedBytes(m, 0), m.o.Memory, remedy)
}

// stayingBytes returns the bytes of a state of s that does not make room for others; 0: it is computed again.
func (m *Manager) stayingBytes(s *session, bytes int64) int64 {
	if m.canDrop(s) {
		return 0
	}
	return bytes
}

// checkShareLocked returns ErrFull if an owner holds its share already: more sessions than are free, or more bytes in
// memory than are free, with those that are added. n owners that take all they get leave as much to the others as
// each of them has. States that are computed again do not count. m.mu is held.
func (m *Manager) checkShareLocked(owner string, sessions int, bytes int64) error {
	if m.o.Owners < 2 || owner == "" {
		return nil
	}
	isOwn := func(s *session) bool { return s.owner == owner }
	for {
		count, own, all := 0, int64(0), m.memory.texts
		for _, s := range m.sessions {
			all += m.stayingBytes(s, s.counted)
			if isOwn(s) {
				count++
				own += m.stayingBytes(s, s.counted) + tokenBytes*int64(len(s.ids))
			}
		}
		var err error
		switch free := m.o.MaxSessions - len(m.sessions); {
		case count+sessions > free:
			err = fmt.Errorf("%w: %d sessions of this key are held, and %d of all; a key may have as many as are free, of --max-sessions %d; DELETE some", ErrFull, count, len(m.sessions), m.o.MaxSessions)
		case m.store == nil && own+bytes > m.o.Memory-all:
			err = fmt.Errorf("%w: imported states and tokens of this key take %d bytes of memory and need %d more, all take %d; a key may have as much as is free, of --memory %d; DELETE some", ErrFull, own, bytes, all, m.o.Memory)
		}
		if err == nil || !m.expireOfLocked(isOwn) {
			return err
		}
	}
}

// renderRoom is a share of Options.Memory that imported sessions leave to Reserve, at most maxRenderRoom bytes.
const (
	renderRoom    = 8
	maxRenderRoom = 1 << 20
)

// checkSessionLocked returns ErrFull if the state of s, which takes bytes and more of them than before, does not leave
// room for a running request beside the states that stay. Only states of imported sessions in memory alone stay:
// others are computed again. The first session alone may take all. m.mu is held.
func (m *Manager) checkSessionLocked(s *session, bytes, more int64) error {
	if m.canDrop(s) {
		return nil
	}
	for {
		var held int64
		others, largest := false, max(bytes, m.coder.empty.HeapBytes())
		for _, x := range m.sessions {
			if !m.canDrop(x) {
				held += x.counted
				others = others || x.counted > 0
				largest = max(largest, x.counted)
			}
		}
		room := largest + min(m.o.Memory/renderRoom, maxRenderRoom)
		switch {
		case !others || held+more+room <= m.o.Memory:
			return nil
		case !m.expireLocked():
			return m.fullMemory()
		}
	}
}
