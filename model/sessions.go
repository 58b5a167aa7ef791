package model

import "context"

// Session is a decoder in the middle of sequences. It holds the states of all mixers.
// Streaming mixers need constant memory and constant time per token. Logits do not
// depend on how tokens are divided into calls.
//
// A session packs the weights in the order in which a step reads them. It caches the
// first layer's projections of each token where their table is small
// (nn.FirstLayerCache). The model's weights must not change while the session is in
// use. Methods must not run at the same time.
type Session struct{ of sessionMethods }

// sessionMethods are the methods of sessionOf[float32].
type sessionMethods interface {
	Step(ctx context.Context, tokens []int32, n int) (logits []float32, err error)
	Losses(ctx context.Context, dst []float64, tokens, targets []int32, n int) error
	Batch() int
	Tokens() int64
	Bytes() int64
	HeapBytes() int64
	clone() *Session
	Reset()
	AppendBinary(b []byte) ([]byte, error)
	SnapshotBytes() int64
}

// float32Session has the methods of sessionOf[float32] with results that are not generic.
type float32Session struct{ *sessionOf[float32] }

// newSessionFace returns the Session of s, unless there is an error.
func newSessionFace(s *sessionOf[float32], err error) (*Session, error) {
	if err != nil {
		return nil, err
	}
	return &Session{float32Session{s}}, nil
}

func (s float32Session) clone() *Session { return &Session{float32Session{s.Clone()}} }

// Step adds n tokens to each sequence, tokens [batch·n], and returns the logits
// [batch,outputs] after the last token. The logits are valid until the next call.
//
// Step returns an error if tokens do not fit the model, learned positions run out, a
// mixer fails, or logits are not finite (attention.ErrNonFinite). After the last two
// errors the states of the layers may differ in their tokens. The session then refuses
// further tokens and AppendBinary, with ErrSessionFailed, until Reset. When ctx ends, Step
// returns its error between two pieces of a long prompt: the session goes on after the
// Tokens that it has by then.
func (s *Session) Step(ctx context.Context, tokens []int32, n int) (logits []float32, err error) {
	return s.of.Step(ctx, tokens, n)
}

// Losses adds n tokens to each sequence, tokens [batch·n]. It sets dst [batch·n] to the
// loss of each target [batch·n] in nats, 0 for target -1.
//
// Losses returns an error where Step does, and if dst or targets do not fit or the
// model's loss is not cross-entropy.
func (s *Session) Losses(ctx context.Context, dst []float64, tokens, targets []int32, n int) error {
	return s.of.Losses(ctx, dst, tokens, targets, n)
}

// Batch returns the number of sequences.
func (s *Session) Batch() int { return s.of.Batch() }

// Tokens returns the number of tokens of each sequence.
func (s *Session) Tokens() int64 { return s.of.Tokens() }

// Bytes returns the memory of the session: states of mixers and convolutions in all layers, and
// cached positions.
func (s *Session) Bytes() int64 { return s.of.Bytes() }

// HeapBytes returns the memory that the session takes: Bytes, the tasks of its states, and its
// own fields. Packed weights, and the memory of Step, are left out.
func (s *Session) HeapBytes() int64 { return s.of.HeapBytes() }

// Clone returns an independent session that continues from the same tokens, or has failed
// as well.
func (s *Session) Clone() *Session { return s.of.clone() }

// Reset removes all tokens, and the error of a failed step.
func (s *Session) Reset() { s.of.Reset() }

// AppendBinary appends a snapshot of the session, without the weights, for
// RestoreSession. It returns ErrSessionFailed after a step that failed, and an error if a
// state has no snapshot.
func (s *Session) AppendBinary(b []byte) ([]byte, error) { return s.of.AppendBinary(b) }

// SnapshotBytes returns the number of bytes that AppendBinary appends, or about this number
// where states grow with the tokens or no snapshot was made before.
func (s *Session) SnapshotBytes() int64 { return s.of.SnapshotBytes() }

// SessionGroup steps sessions of one model together: their rows share the products with
// the weights. It packs the weights once for all sessions that it makes. Its memory is
// kept for the largest step.
//
// The model's weights must not change while the group is in use. NewSession and
// RestoreSession may run at any time. Other methods must not run at the same time, and not
// beside methods of the sessions that a call names.
type SessionGroup struct{ of groupMethods }

// groupMethods are the methods of groupOf[float32].
type groupMethods interface {
	newSourceSession(source []int32, lens []int64, batch int) (*Session, error)
	newSession(batch int) (*Session, error)
	restoreSession(data []byte) (*Session, error)
	stepTogether(steps []SessionStep)
}

// float32Group has the methods of groupOf[float32] with parameters that are not generic.
type float32Group struct {
	*groupOf[float32]
	steps []stepOf[float32] // of a call
}

func (g *float32Group) newSession(batch int) (*Session, error) {
	return newSessionFace(g.NewSession(batch))
}

func (g *float32Group) newSourceSession(source []int32, lens []int64, batch int) (*Session, error) {
	return newSessionFace(g.NewSourceSession(source, lens, batch))
}

func (g *float32Group) restoreSession(data []byte) (*Session, error) {
	return newSessionFace(g.RestoreSession(data))
}

func (g *float32Group) stepTogether(steps []SessionStep) {
	g.steps = g.steps[:0]
	for i := range steps {
		x := stepOf[float32]{Tokens: steps[i].Tokens, SkipLogits: steps[i].SkipLogits}
		if s := steps[i].Session; s != nil {
			x.Session = s.of.(float32Session).sessionOf
		}
		g.steps = append(g.steps, x)
	}
	g.StepTogether(g.steps)
	for i := range steps {
		steps[i].Logits, steps[i].Err = g.steps[i].Logits, g.steps[i].Err
	}
	clear(g.steps) // of references to sessions
}

// SessionStep is new tokens of a session, and the result of SessionGroup.StepTogether.
type SessionStep struct {
	Session *Session
	Tokens  []int32 // [batch·N]: N tokens of each of the session's sequences

	// SkipLogits leaves Logits nil: more tokens of a prompt follow.
	SkipLogits bool

	Logits []float32 // [batch,outputs] after the last token; nil with an error
	Err    error     // of Session.Step
}

// NewSourceSession returns Model.NewSourceSession with the packed weights of the group. It
// returns an error where Model.NewSourceSession does.
func (g *SessionGroup) NewSourceSession(source []int32, lens []int64, batch int) (*Session, error) {
	return g.of.newSourceSession(source, lens, batch)
}

// NewSession returns Model.NewSession with the packed weights of the group. It returns an
// error where Model.NewSession does.
func (g *SessionGroup) NewSession(batch int) (*Session, error) { return g.of.newSession(batch) }

// RestoreSession returns Model.RestoreSession with the packed weights of the group. It
// returns an error where Model.RestoreSession does.
func (g *SessionGroup) RestoreSession(data []byte) (*Session, error) {
	return g.of.restoreSession(data)
}

// StepTogether sets Logits and Err of each step. It has the bits of Session.Step of each
// session alone. The logits are valid until the next call.
//
// Steps may have different numbers of tokens, and their sessions different positions. The
// error of a step leaves the others as they are. Err is the error of Session.Step, or says
// that the session is nil, of another model, or in an earlier step of the call. Sessions
// whose tokens are refused keep their state; after other errors a session has failed, as
// after Session.Step, and must be Reset.
func (g *SessionGroup) StepTogether(steps []SessionStep) { g.of.stepTogether(steps) }
