package sessions

import (
	"context"
	"slices"
)

// Tokens returns the tokens of a session. unknown is the number of tokens before them, which came
// with an imported snapshot and whose ids are not known. It returns an error if the session is
// unknown or its files are damaged.
func (m *Manager) Tokens(ctx context.Context, id string) (ids []int32, unknown int64, err error) {
	m.mu.Lock()
	s, err := m.find(ctx, id)
	if err == nil && m.store == nil {
		ids, unknown = slices.Clone(s.ids), s.start
	}
	m.mu.Unlock()
	if err != nil || m.store == nil {
		return ids, unknown, err
	}
	r, ids, err := m.store.read(id, 0)
	return ids, r.Start, err
}

// MaxBeginning is the largest number of tokens that Beginning returns.
const MaxBeginning = 64

// Beginning returns the first known tokens of a session, at most MaxBeginning. It returns an error
// if the session is unknown or its files are damaged.
func (m *Manager) Beginning(ctx context.Context, id string) ([]int32, error) {
	m.mu.Lock()
	s, err := m.find(ctx, id)
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	n, era := min(s.tokens-s.start, MaxBeginning), s.era
	ids := s.begin
	if m.store == nil {
		ids = s.ids[:min(n, int64(len(s.ids)))]
	}
	ids = slices.Clone(ids)
	m.mu.Unlock()
	if int64(len(ids)) >= n || m.store == nil {
		return ids, nil
	}
	if ids, err = m.store.begin(id, MaxBeginning); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.era == era { // no rewind came between
		s.begin = ids
	}
	return slices.Clone(ids), nil
}

// Rewind shortens a session to its first tokens, and forgets the others. Forks keep theirs. It
// returns an error if the session is unknown or busy, if it has fewer tokens, or if the ids of the
// tokens are unknown because they came with an imported snapshot.
func (m *Manager) Rewind(ctx context.Context, id string, tokens int64) (Info, error) {
	s, err := m.acquire(ctx, id)
	if err != nil {
		return Info{}, err
	}
	defer m.release(s)
	switch {
	case tokens < 0 || tokens > s.tokens:
		return Info{}, fieldErrorf("tokens", "%d is not between 0 and the %d of the session", tokens, s.tokens)
	case tokens == s.tokens:
		return infoOf(m, s), nil
	case tokens <= s.start && s.imported != "":
		return Info{}, fieldErrorf("tokens", "%d, but the first %d came with an imported snapshot, and the state behind fewer is unknown; needs more", tokens, s.start)
	case !m.canDrop(s):
		return Info{}, fieldErrorf("tokens", "%d, but the session is of an imported snapshot, which is kept with --store alone", tokens)
	}
	if m.store != nil {
		if err := m.store.rewind(id, tokens); err != nil {
			return Info{}, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memory.setState(s, nil) // the next request computes it from a known prefix
	s.era++
	s.begin = nil
	m.cache.pin(s.snapshot, -1)
	s.snapshot, s.saved, s.tokens = nil, s.start, tokens
	if m.store == nil {
		n := tokens - s.start
		m.memory.texts -= tokenBytes * (int64(len(s.ids)) - n)
		s.ids = slices.Clone(s.ids[:n])
	}
	return s.info(), nil
}
