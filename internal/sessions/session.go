package sessions

import (
	"container/list"
	"context"
	"slices"
	"time"

	"github.com/farfield-ml/farfield/model"
)

// session is a text in progress. Manager.mu protects the fields that a
// request does not own.
type session struct {
	id          string
	owner       string    // "": none
	isBusy      bool      // a request holds it
	requester   string    // owner of this request
	used        time.Time // when its last request ended
	tokens      int64
	bytes       int64
	counted     int64  // bytes of state, in memory.bytes
	imported    string // key of the snapshot before its log; "": the log has all tokens
	snapshot    *entry // the last on disk; nil: none
	idleElement *list.Element

	// The request that holds the session owns these.
	state   *model.Session // nil: not in memory
	prefix  prefix         // of the tokens that state has read
	pending []int32        // tokens that state has not read; an empty session alone has none
	saved   int64          // tokens of the last snapshot that was queued for the disk

	start int64   // tokens before an imported snapshot, which are unknown
	ids   []int32 // the other tokens, of a session in memory alone; Manager.mu protects changes
	era   int64   // number of rewinds; Manager.mu protects it
	begin []int32 // first known tokens, as Beginning read them from the store; Manager.mu protects it
}

// canDrop reports whether the state of s can be computed again: its tokens are in the store or in memory.
func (m *Manager) canDrop(s *session) bool { return m.store != nil || s.imported == "" }

// info describes the session. Manager.mu is held.
func (s *session) info() Info { return Info{ID: s.id, Tokens: s.tokens, Bytes: s.bytes} }

// look is info with what only callers beside its requests want to know. Manager.mu is held.
func (s *session) look() Info { return Info{s.id, s.tokens, s.bytes, s.isBusy, s.used} }

// activate brings the state of a session into memory. It returns ErrFull if memory has no
// room for it.
func (m *Manager) activate(ctx context.Context, s *session) (err error) {
	if s.state != nil {
		return nil
	}
	m.mu.Lock()
	if err = checkMemoryLocked(m); err == nil {
		m.memory.reserve(s)
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			m.setState(s, nil)
		}
	}()
	m.trimMemory()
	from, ids, err := m.lastState(s)
	if err != nil {
		return err
	}
	j := &job{ctx: ctx, state: from.state, prefix: from.prefix, feed: ids, keeps: true, keepFrom: from.state.Tokens(), counted: s.counted}
	s.saved = from.state.Tokens()
	if len(ids) > 1 {
		if err := m.queue.run(j, nil); err != nil {
			return err
		}
		m.count(func(s *Stats) { s.Replayed += int64(len(ids) - 1) })
	}
	s.prefix, s.pending = j.prefix, slices.Clone(j.feed)
	m.setState(s, j.state)
	return nil
}

// lastState returns the last known state of a session and the tokens after it.
func (m *Manager) lastState(s *session) (*savedState, []int32, error) {
	if m.store == nil {
		known := s.ids[:max(len(s.ids)-1, 0)]
		from, n, err := m.files.findLongest(chainKeys(m.coder.rootOf(s.owner), known), known)
		if from == nil {
			from, n = m.coder.newState(s.owner), 0
		}
		return from, s.ids[n:], err
	}
	from, ids, err := m.lastSnapshot(s)
	if from == nil && err == nil {
		from, ids, err = m.longestState(s)
	}
	return from, ids, err
}

// lastSnapshot returns the last snapshot of a session and the tokens after it. It returns
// nil if there is none, or if its file is damaged.
func (m *Manager) lastSnapshot(s *session) (*savedState, []int32, error) {
	m.mu.Lock()
	e := s.snapshot
	m.mu.Unlock()
	if e == nil {
		return nil, nil, nil
	}
	from, err := m.files.open(e)
	if from == nil || from.state.Tokens() > s.tokens {
		return nil, nil, err
	}
	_, ids, err := m.store.read(s.id, from.state.Tokens())
	return from, ids, err
}

// longestState returns the state of the longest known prefix of a session and the tokens
// after it.
func (m *Manager) longestState(s *session) (*savedState, []int32, error) {
	r, ids, err := m.store.read(s.id, 0)
	if err != nil {
		return nil, nil, err
	}
	root := m.coder.rootOf(s.owner)
	if r.Import != "" {
		root, _ = parseKey(r.Import)
	}
	known := ids[:max(len(ids)-1, 0)]
	from, n, err := m.files.findLongest(chainKeys(root, known), known)
	switch {
	case err != nil:
		return nil, nil, err
	case from != nil && from.state.Tokens() == r.Start+int64(n):
	case r.Import != "":
		if from, err = m.imports.open(r.Import); err != nil {
			return nil, nil, err
		}
		n = 0
	default:
		from, n = m.coder.newState(s.owner), 0
	}
	return from, ids[n:], nil
}

// undo keeps what a request changes of a session.
type undo struct {
	state   *model.Session // nil: the state is read from the store
	prefix  prefix
	pending []int32
}

// keepUndo returns the undo of a request. It copies the state where it would be read from
// far before, or nowhere.
func (m *Manager) keepUndo(s *session) undo {
	u := undo{prefix: s.prefix.clone(), pending: slices.Clone(s.pending)}
	if m.store == nil || s.tokens-s.saved > logDistance {
		u.state = s.state.Clone()
	}
	return u
}

// takeBack sets a session as it was before a request.
func (m *Manager) takeBack(s *session, u undo) {
	s.prefix, s.pending = u.prefix, u.pending
	m.setState(s, u.state)
}

// commit acknowledges ids of a request, whose job is done, and queues a snapshot where the
// last one is far.
func (m *Manager) commit(s *session, j *job, ids []int32) error {
	bytes := j.state.Bytes()
	if m.store != nil && len(ids) > 0 {
		if err := m.store.append(s.id, ids, bytes); err != nil {
			return err
		}
	}
	s.prefix, s.pending = j.prefix, slices.Clone(j.feed)
	m.setState(s, j.state)
	m.addTokens(s, ids)
	m.saveBehind(s)
	return nil
}

// addTokens counts ids as tokens of a session.
func (m *Manager) addTokens(s *session, ids []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.tokens += int64(len(ids))
	if m.store == nil {
		s.ids = append(s.ids, ids...)
		m.memory.texts += tokenBytes * int64(len(ids))
	}
}

// keepPart acknowledges ids, the first tokens that a job has drawn before it was stopped. u is the undo of its
// request. It returns an error if the store cannot be written.
func (m *Manager) keepPart(s *session, u undo, j *job, ids []int32, bytes int64) error {
	if len(ids) == len(j.ids) {
		return m.commit(s, j, ids)
	}
	if m.store != nil {
		if err := m.store.append(s.id, ids, bytes); err != nil {
			return err
		}
	}
	// The state has read more tokens: the next request reads ids again.
	m.takeBack(s, u)
	s.pending = append(s.pending, ids...)
	m.addTokens(s, ids)
	return nil
}

// saveBehind queues a snapshot of a session for the disk if a restart would read many
// tokens.
func (m *Manager) saveBehind(s *session) {
	n := s.state.Tokens()
	if m.store == nil || n-s.saved < restartDistance(n, s.state.Bytes()) {
		return
	}
	if m.saver.add(s.prefix, s.state.Clone(), s) {
		s.saved = n
	}
}
