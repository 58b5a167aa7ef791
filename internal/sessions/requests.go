package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/generate"
)

// Create makes a session with the tokens ids, which may be empty, and returns it. It starts from
// the state of the longest known prefix of ids. Create returns an error if ids do not fit the
// model, if a limit is reached (ErrTooLong, ErrFull), or if ctx ends.
func (m *Manager) Create(ctx context.Context, ids []int32) (Info, error) {
	if err := m.begin(ownerOf(ctx)); err != nil {
		return Info{}, err
	}
	defer m.end(ownerOf(ctx))
	if err := m.checkRoom(ownerOf(ctx)); err != nil {
		return Info{}, err
	}
	j, _, err := m.newJob(ctx, ids, 0)
	if err != nil {
		return Info{}, err
	}
	if len(j.feed) > 1 {
		if err := m.queue.run(j, nil); err != nil {
			return Info{}, err
		}
	}
	s := &session{id: newID(), owner: ownerOf(ctx), state: j.state, prefix: j.prefix, pending: slices.Clone(j.feed), tokens: int64(len(ids))}
	if m.store == nil {
		s.ids = slices.Clone(ids)
	}
	return m.add(s, func() error { return m.store.create(s.id, record{Owner: s.owner, Bytes: s.state.Bytes()}, ids) })
}

// Append adds the tokens ids to a session. It returns an error if the session is unknown or busy,
// if ids do not fit the model, if a limit is reached (ErrTooLong, ErrFull), or if ctx ends.
func (m *Manager) Append(ctx context.Context, id string, ids []int32) (Info, error) {
	if err := checkIDs(ids, m.o.Model.Config().Vocab); err != nil {
		return Info{}, err
	}
	s, err := m.acquire(ctx, id)
	if err != nil {
		return Info{}, err
	}
	defer m.release(s)
	if err := m.o.checkLength(s.tokens, int64(len(ids))); err != nil {
		return Info{}, err
	}
	err = m.change(ctx, s, nil, func(j *job) ([]int32, error) {
		j.feed = append(j.feed, ids...)
		if len(j.feed) < 2 {
			return ids, nil
		}
		return ids, m.queue.run(j, nil)
	})
	return infoOf(m, s), err
}

// infoOf describes a session of a manager.
func infoOf(m *Manager, s *session) Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	return s.info()
}

// change runs a request that adds tokens to a session. f runs the job and returns the
// tokens that are added. A request that fails leaves the session as it was. Where ctx ends, kept returns the number of
// drawn tokens that stay; nil: none.
func (m *Manager) change(ctx context.Context, s *session, kept func() int, f func(j *job) ([]int32, error)) error {
	if err := m.checkMemory(); err != nil {
		return err
	}
	if err := m.activate(ctx, s); err != nil {
		return err
	}
	u := m.keepUndo(s)
	j := &job{ctx: ctx, state: s.state, prefix: s.prefix, feed: slices.Clone(s.pending), keeps: true, keepFrom: s.state.Tokens(), counted: s.counted}
	if u.state != nil {
		j.counted -= u.state.HeapBytes()
	}
	ids, err := f(j)
	if err == nil {
		err = m.checkGrowth(s, j)
	}
	if err == nil {
		err = m.commit(s, j, ids)
	}
	if err != nil && (!m.isStopped(ctx, j, kept) || m.keepPart(s, u, j, j.ids[:min(kept(), len(j.ids))], j.state.Bytes()) != nil) {
		m.takeBack(s, u)
	}
	if s.imported != "" && errors.Is(err, attention.ErrNonFinite) {
		return fmt.Errorf("%w: its imported snapshot: %w", ErrDamaged, err)
	}
	return err
}

// isStopped reports whether a job was stopped by its caller after tokens that stay.
func (m *Manager) isStopped(ctx context.Context, j *job, kept func() int) bool {
	return ctx.Err() != nil && kept != nil && kept() > 0 && len(j.ids) > 0 && !j.isBroken
}

// checkGrowth returns ErrFull if the state of a session has grown into the room for a running request.
func (m *Manager) checkGrowth(s *session, j *job) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := j.state.HeapBytes()
	more := size - s.counted
	if more <= m.coder.empty.HeapBytes() { // a state of fixed size grows by less
		return nil
	}
	if err := m.checkShareLocked(s.owner, 0, m.stayingBytes(s, more)); err != nil {
		return err
	}
	if m.store == nil && m.canDrop(s) {
		// The next request needs the state a second time, to take back what fails.
		room := min(m.o.Memory/renderRoom, maxRenderRoom)
		if more > room/4 && 2*size+room > m.o.Memory {
			return fmt.Errorf("%w: the state of the session would take %d bytes, and a request needs it twice; the limit of --memory is %d", ErrFull, size, m.o.Memory)
		}
	}
	return m.checkSessionLocked(s, size, more)
}

// Generate draws tokens after those of a session and adds them to it. It calls emit, unless nil,
// with each token. It returns an error if the session is unknown, busy or empty, if a field of d is
// invalid, if a limit is reached (ErrTooLong, ErrFull), if emit returns one, or if ctx ends.
func (m *Manager) Generate(ctx context.Context, id string, d Draw, emit func(token int32) error) (Result, error) {
	sampler, err := m.o.newSampler(d)
	if err != nil {
		return Result{}, err
	}
	s, err := m.acquire(ctx, id)
	if err != nil {
		return Result{}, err
	}
	defer m.release(s)
	if err := m.o.checkLength(s.tokens, int64(d.MaxTokens)); err != nil {
		return Result{}, err
	}
	if s.tokens == 0 {
		return Result{}, fieldErrorf("ids", "the session is empty, there is nothing to continue")
	}
	r := Result{Reason: Length}
	err = m.change(ctx, s, d.Kept, func(j *job) ([]int32, error) {
		if d.MaxTokens == 0 {
			return nil, nil
		}
		j.draw, j.sampler = &d, sampler
		err := m.queue.run(j, emit)
		r.IDs, r.Reason = j.ids, j.reason
		return j.ids, err
	})
	r.Info = infoOf(m, s)
	return r, err
}

// newSampler returns the sampler of d. It returns an error if a field is invalid.
func (o *Options) newSampler(d Draw) (*generate.Sampler, error) {
	if d.MaxTokens < 0 {
		return nil, fieldErrorf("max_tokens", "%d is negative", d.MaxTokens)
	}
	s, err := generate.NewSampler(d.Sampling, o.Model.Config().Vocab)
	if err != nil {
		return nil, &FieldError{"sampling", err.Error()}
	}
	return s, nil
}

// Complete draws tokens after ids without a session. It starts from the state of the longest known
// prefix of ids, and keeps its last state as a known prefix. It calls emit, unless nil, with each
// token. It returns an error if ids are empty or do not fit the model, if a field of d is invalid,
// if a limit is reached (ErrTooLong, ErrFull), if emit returns one, or if ctx ends.
func (m *Manager) Complete(ctx context.Context, ids []int32, d Draw, emit func(token int32) error) (Result, error) {
	sampler, err := m.o.newSampler(d)
	if err != nil {
		return Result{}, err
	}
	if len(ids) == 0 {
		return Result{}, fieldErrorf("ids", "are empty, there is nothing to continue")
	}
	if err := m.begin(ownerOf(ctx)); err != nil {
		return Result{}, err
	}
	defer m.end(ownerOf(ctx))
	find := m.newJob
	if d.Prompt != nil {
		find = m.newWholeJob
	}
	j, reused, err := find(ctx, ids, d.MaxTokens)
	if err != nil {
		return Result{}, err
	}
	r := Result{Reason: Length, Reused: reused}
	j.watch = d.Prompt
	switch {
	case d.MaxTokens > 0:
		j.draw, j.sampler = &d, sampler
		err = m.queue.run(j, emit)
		r.IDs, r.Reason = j.ids, j.reason
	case d.Prompt != nil && len(ids) > 1:
		err = m.queue.run(j, nil)
	}
	r.Info = Info{Tokens: int64(len(ids) + len(r.IDs)), Bytes: j.state.Bytes()}
	// The state of a request that was cancelled is as good as another; a refused one has no room.
	if !j.isBroken && !errors.Is(err, ErrFull) && j.state.Tokens() > reused && d.Prompt == nil {
		m.cache.put(j.prefix, j.state)
		m.trimMemory()
	}
	return r, err
}

// Fork copies a session and returns the copy. The copy of a session without an owner belongs to the
// owner of ctx. Fork returns an error if the session is unknown or busy, if a limit is reached
// (ErrFull), or if ctx ends.
func (m *Manager) Fork(ctx context.Context, id string) (Info, error) {
	s, err := m.acquire(ctx, id)
	if err != nil {
		return Info{}, err
	}
	defer m.release(s)
	if err := m.checkRoom(ownerOf(ctx)); err != nil {
		return Info{}, err
	}
	if err := m.activate(ctx, s); err != nil {
		return Info{}, err
	}
	c := &session{id: newID(), owner: cmp.Or(s.owner, ownerOf(ctx)), tokens: s.tokens, imported: s.imported, saved: s.saved, state: s.state.Clone(), prefix: s.prefix.clone(), pending: slices.Clone(s.pending), start: s.start, ids: slices.Clone(s.ids)}
	m.mu.Lock()
	c.snapshot = s.snapshot
	m.mu.Unlock()
	m.cache.pin(c.snapshot, 1)
	info, err := m.add(c, func() error { return m.store.fork(s.id, c.id, c.owner, c.bytes) })
	if err != nil {
		m.cache.pin(c.snapshot, -1)
	}
	return info, err
}

// Delete removes a session. It returns an error if the session is unknown or busy, or if the store
// cannot be written.
func (m *Manager) Delete(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := m.acquire(ctx, id)
	if errors.Is(err, ErrDamaged) {
		return m.deleteDamaged(ctx, id)
	}
	if err != nil {
		return err
	}
	defer m.release(s)
	if m.store != nil {
		if err := m.store.delete(id); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	m.mu.Lock()
	m.memory.setState(s, nil)
	m.forgetLocked(s)
	m.cache.pin(s.snapshot, -1)
	s.snapshot = nil
	m.mu.Unlock()
	m.removeImport(s.imported)
	return nil
}

// deleteDamaged removes a damaged record.
func (m *Manager) deleteDamaged(ctx context.Context, id string) error {
	if err := m.begin(ownerOf(ctx)); err != nil {
		return err
	}
	defer m.end(ownerOf(ctx))
	err := m.store.delete(id)
	if errors.Is(err, ErrUnknown) {
		err = m.store.forget(id)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.damaged, id)
	last := len(m.damaged) == 0
	m.mu.Unlock()
	if last {
		// The session is deleted. Lines that stay in a damaged database cost space alone.
		_ = m.store.deleteUnread()
	}
	return nil
}

// newJob returns a job of ids from the longest known prefix on, and the number of its
// tokens. The session has more tokens later.
func (m *Manager) newJob(ctx context.Context, ids []int32, more int) (*job, int64, error) {
	if err := m.checkJob(ids, more); err != nil {
		return nil, 0, err
	}
	known := ids[:max(len(ids)-1, 0)]
	keys := chainKeys(m.coder.rootOf(ownerOf(ctx)), known)
	seen := m.cache.observe(keys)
	from, n, err := m.files.findLongest(keys, known)
	if err != nil {
		return nil, 0, err
	}
	if from == nil {
		from = m.coder.newState(ownerOf(ctx))
	}
	m.count(func(s *Stats) { s.TokensReused += int64(n) })
	return &job{ctx: ctx, state: from.state, prefix: from.prefix, feed: ids[n:], keeps: true, keepFrom: int64(n), keepAt: int64(seen)}, int64(n), nil
}

// checkJob returns an error if a job of ids, which the session has more tokens after, is refused.
func (m *Manager) checkJob(ids []int32, more int) error {
	if err := checkIDs(ids, m.o.Model.Config().Vocab); err != nil {
		return err
	}
	if err := m.o.checkLength(int64(len(ids)), int64(more)); err != nil {
		return err
	}
	return m.checkMemory()
}

// newWholeJob is newJob without a known prefix.
func (m *Manager) newWholeJob(ctx context.Context, ids []int32, more int) (*job, int64, error) {
	if err := m.checkJob(ids, more); err != nil {
		return nil, 0, err
	}
	from := m.coder.newState(ownerOf(ctx))
	return &job{ctx: ctx, state: from.state, prefix: from.prefix, feed: ids}, 0, nil
}

// add holds a new session that the caller has filled. create puts it into the store.
func (m *Manager) add(s *session, create func() error) (Info, error) {
	m.mu.Lock()
	refused := m.checkCountLocked()
	if refused == nil {
		refused = m.checkShareLocked(s.owner, 1, m.stayingBytes(s, s.state.HeapBytes())+tokenBytes*int64(len(s.ids)))
	}
	if refused == nil {
		refused = m.checkSessionLocked(s, s.state.HeapBytes(), s.state.HeapBytes())
	}
	if refused != nil {
		m.mu.Unlock()
		return Info{}, refused
	}
	s.isBusy = true
	m.sessions[s.id] = s
	m.memory.texts += tokenBytes * int64(len(s.ids))
	m.memory.setState(s, s.state)
	info := s.info()
	m.mu.Unlock()
	var err error
	if m.store != nil {
		err = create()
	}
	m.mu.Lock()
	if err != nil {
		m.forgetLocked(s)
		m.memory.setState(s, nil)
	}
	m.mu.Unlock()
	if err == nil {
		m.saveBehind(s)
	}
	m.mu.Lock()
	s.isBusy, s.used = false, time.Now()
	m.memory.setIdle(s, err == nil && s.state != nil)
	m.mu.Unlock()
	m.trimMemory()
	return info, err
}
