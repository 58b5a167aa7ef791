package sessions

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/farfield-ml/farfield/generate"
	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/model"
)

// Manager holds the sessions of one model. Its methods may run concurrently.
type Manager struct {
	o Options

	mu       sync.Mutex
	sessions map[string]*session
	running  int
	closed   bool
	stats    Stats
	model    sync.Mutex // one step at a time
}

// session is one text in progress.
type session struct {
	id      string
	busy    bool
	ids     []int32
	state   *model.Session[float32]
	pending []int32
}

// Open returns a Manager. It returns an error if the model has no sessions or a limit is
// negative.
func Open(ctx context.Context, o Options) (*Manager, error) {
	if o.Model == nil {
		return nil, errors.New("model: it is nil")
	}
	if !o.Model.Config().HasSessions() {
		return nil, errors.New("model: it has no sessions")
	}
	if o.MaxSessions == 0 {
		o.MaxSessions = defaultMaxSessions
	}
	if o.MaxTokens == 0 {
		o.MaxTokens = defaultMaxTokens
	}
	if o.MaxQueue == 0 {
		o.MaxQueue = defaultMaxQueue
	}
	return &Manager{o: o, sessions: map[string]*session{}}, nil
}

// Create returns a new session of the tokens ids, which may be empty. It returns an error
// if ids do not fit the model, a limit is reached, or ctx ends.
func (m *Manager) Create(ctx context.Context, ids []int32) (Info, error) {
	s := &session{id: newID(), busy: true}
	var err error
	if s.state, err = m.o.Model.NewSession(1); err != nil {
		return Info{}, err
	}
	m.mu.Lock()
	if len(m.sessions) >= m.o.MaxSessions {
		m.mu.Unlock()
		return Info{}, fmt.Errorf("%w: %d sessions are held", ErrFull, m.o.MaxSessions)
	}
	m.sessions[s.id] = s
	m.mu.Unlock()
	return m.Append(ctx, s.id, ids)
}

// Append adds the tokens ids to a session.
func (m *Manager) Append(ctx context.Context, id string, ids []int32) (Info, error) {
	s, err := m.acquire(id)
	if err != nil {
		return Info{}, err
	}
	defer m.release(s)
	if err := m.checkTokens(s, ids, 0); err != nil {
		return Info{}, err
	}
	s.ids = append(s.ids, ids...)
	s.pending = append(s.pending, ids...)
	for len(s.pending) > 256 {
		if _, err := m.step(s, s.pending[:256]); err != nil {
			return Info{}, err
		}
		s.pending = s.pending[256:]
	}
	return s.info(), ctx.Err()
}

func (m *Manager) step(s *session, ids []int32) ([]float32, error) {
	m.model.Lock()
	defer m.model.Unlock()
	return s.state.Step(ids, len(ids))
}

// Generate draws tokens after the tokens of a session, which then holds them. It calls
// emit, unless nil, with each token.
func (m *Manager) Generate(ctx context.Context, id string, d Draw, emit func(token int32) error) (Result, error) {
	s, err := m.acquire(id)
	if err != nil {
		return Result{}, err
	}
	defer m.release(s)
	if err := m.checkTokens(s, nil, d.MaxTokens); err != nil {
		return Result{}, err
	}
	if len(s.pending) == 0 {
		return Result{}, fieldErrorf("ids", "the session is empty, there is nothing to continue")
	}
	sampler, err := generate.NewSampler(d.Sampling, m.o.Model.Config().Vocab)
	if err != nil {
		return Result{}, &FieldError{"sampling", err.Error()}
	}
	r := Result{Reason: Length}
	for i := range d.MaxTokens {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		logits, err := m.step(s, s.pending)
		if err != nil {
			return r, err
		}
		t, err := sampler.DrawToken(logits, uint64(i))
		if err != nil {
			return r, err
		}
		s.pending = append(s.pending[:0:0], t)
		s.ids = append(s.ids, t)
		r.IDs = append(r.IDs, t)
		if emit != nil {
			if err := emit(t); err != nil {
				return r, err
			}
		}
		if d.StopAtEnd && slices.Contains(m.o.EndTokens, t) || d.Stop != nil && d.Stop(r.IDs) {
			r.Reason = Stopped
			break
		}
	}
	r.Info = s.info()
	return r, nil
}

// Complete draws tokens after ids without a session.
func (m *Manager) Complete(ctx context.Context, ids []int32, d Draw, emit func(token int32) error) (Result, error) {
	info, err := m.Create(ctx, ids)
	if err != nil {
		return Result{}, err
	}
	defer m.Delete(context.WithoutCancel(ctx), info.ID)
	r, err := m.Generate(ctx, info.ID, d, emit)
	r.Info.ID = ""
	return r, err
}

// Fork returns a new session of the same tokens.
func (m *Manager) Fork(ctx context.Context, id string) (Info, error) {
	s, err := m.acquire(id)
	if err != nil {
		return Info{}, err
	}
	defer m.release(s)
	return m.add(&session{ids: slices.Clone(s.ids), state: s.state.Clone(), pending: slices.Clone(s.pending)})
}

// add holds a new session.
func (m *Manager) add(s *session) (Info, error) {
	s.id = newID()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return Info{}, ErrClosed
	}
	if len(m.sessions) >= m.o.MaxSessions {
		return Info{}, fmt.Errorf("%w: %d sessions are held", ErrFull, m.o.MaxSessions)
	}
	m.sessions[s.id] = s
	return s.info(), nil
}

// Get describes a session.
func (m *Manager) Get(id string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[id]; s != nil {
		return s.info(), nil
	}
	return Info{}, ErrUnknown
}

// List describes all sessions, in the order of their ids.
func (m *Manager) List() []Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Info, 0, len(m.sessions))
	for _, s := range m.sessions {
		list = append(list, s.info())
	}
	slices.SortFunc(list, func(a, b Info) int { return compareIDs(a.ID, b.ID) })
	return list
}

func compareIDs(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

const (
	snapshotMagic   = "farfield exported session"
	snapshotVersion = 1
)

// Export returns a snapshot of a session for Import.
func (m *Manager) Export(ctx context.Context, id string) ([]byte, error) {
	s, err := m.acquire(id)
	if err != nil {
		return nil, err
	}
	defer m.release(s)
	state, err := s.state.AppendBinary(nil)
	if err != nil {
		return nil, err
	}
	return framed.Append(nil, snapshotMagic, snapshotVersion, []byte(m.o.Identity), state), nil
}

// Import returns a new session of a snapshot. It returns ErrForeign if the snapshot is of
// another model, tokenizer or precision.
func (m *Manager) Import(ctx context.Context, data []byte) (Info, error) {
	parts, err := framed.ReadParts(data, snapshotMagic, snapshotVersion, 2)
	if err != nil {
		return Info{}, fieldErrorf("snapshot", "%v", err)
	}
	if string(parts[0]) != m.o.Identity {
		return Info{}, ErrForeign
	}
	state, err := m.o.Model.RestoreSession(parts[1])
	if err != nil {
		return Info{}, fieldErrorf("snapshot", "%v", err)
	}
	return m.add(&session{state: state})
}

// Delete forgets a session.
func (m *Manager) Delete(ctx context.Context, id string) error {
	s, err := m.acquire(id)
	if err != nil {
		return err
	}
	defer m.release(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sessions, id)
	return nil
}

// Stats returns counts of the Manager.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Sessions, s.Running = len(m.sessions), m.running
	return s
}

// Close refuses further requests, waits for the running ones until ctx ends, and releases
// the store.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

func (m *Manager) acquire(id string) (*session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	switch {
	case m.closed:
		return nil, ErrClosed
	case s == nil:
		return nil, ErrUnknown
	case m.running >= m.o.MaxQueue:
		return nil, fmt.Errorf("%w: %d requests wait", ErrFull, m.running)
	}
	if s.busy && len(s.ids) > 0 {
		return nil, ErrBusy
	}
	s.busy = true
	m.running++
	return s, nil
}

func (m *Manager) release(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.busy = false
	m.running--
}

func (s *session) info() Info {
	return Info{s.id, int64(len(s.ids)), s.state.Bytes()}
}

// checkTokens returns an error if ids and more tokens do not fit the session.
func (m *Manager) checkTokens(s *session, ids []int32, more int) error {
	vocab := m.o.Model.Config().Vocab
	for i, t := range ids {
		if t < 0 || int(t) >= vocab {
			return fieldErrorf("ids", "element %d is %d, the vocabulary has %d tokens", i, t, vocab)
		}
	}
	if more < 0 {
		return fieldErrorf("max_tokens", "%d is negative", more)
	}
	if n := int64(len(s.ids)) + int64(len(ids)) + int64(more); n > m.o.MaxTokens {
		return fmt.Errorf("%w: %d are needed, a session has at most %d", ErrTooLong, n, m.o.MaxTokens)
	}
	return nil
}

// newID returns a random id of 128 bits.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
