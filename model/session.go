package model

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// Session is a decoder in the middle of sequences. It holds the states of all mixers.
// Streaming mixers need constant memory and constant time per token. Logits do not
// depend on how tokens are divided into calls.
//
// A session packs the weights in the order in which a step reads them. It caches the
// first layer's projections of each token where their table is small
// (nn.FirstLayerCache). The model's weights must not change while the session is in
// use. Methods must not run at the same time.
type Session struct {
	decoding
	model  *Model
	frozen *packedModel // shared with clones

	trace  trace
	piece  packedStep
	logits []float

	group *SessionGroup // of the last StepTogether, and its round
	round uint64

	failure error // of a step, until Reset; nil: none

	head   head // of Losses
	next   targets
	losses []float64
}

// A step takes at most stepRows rows through the layers at a time, or stepPiece tokens
// of each sequence if that is more. The limit bounds the memory of a long prompt.
const (
	stepRows  = 1024 // enough to keep workers busy between two layers
	stepPiece = 256
)

// pieceSize returns the number of tokens of each sequence that go through the layers at
// a time.
func (s *Session) pieceSize() int { return max(stepRows/s.batch, stepPiece) }

// HasSessions reports whether models of the configuration have sessions: they need to be decoders
// of tokens with outputs at every position.
func (c Config) HasSessions() bool {
	return c.checkSessions(Decoder) == nil
}

// NewSession returns a session of batch empty sequences. It returns an error if the
// configuration has no sessions, batch is out of range, or a mixer has no state.
func (m *Model) NewSession(batch int) (*Session, error) {
	return sessionMaker{model: m}.start(batch)
}

// sessionMaker makes sessions of a model.
type sessionMaker struct {
	model  *Model
	frozen *packedModel // nil: packed for each session
}

// start returns a session of batch empty sequences.
func (f sessionMaker) start(batch int) (*Session, error) {
	if err := f.model.config.checkSessions(Decoder); err != nil {
		return nil, err
	}
	s, err := f.create(batch)
	if err != nil {
		return nil, err
	}
	return s, s.addStates(nil)
}

// addStates adds an empty state for each mixer. source returns the state of a layer of
// cross-attention; it may be nil if the model has none.
func (s *Session) addStates(source func(nn.CrossAttention) nn.State) error {
	for i := range s.model.main.blocks {
		b := &s.model.main.blocks[i]
		if cross, is := b.branch.(nn.CrossAttention); is {
			s.states = append(s.states, source(cross))
		} else if b.mixer != nil {
			state, err := b.mixer.NewState(s.batch)
			if err != nil {
				return err
			}
			s.states = append(s.states, state)
		}
	}
	return nil
}

// checkSessions returns an error if models of the configuration have no sessions of the given
// kind, which is Decoder, or EncoderDecoder for sessions with a source.
func (c Config) checkSessions(kind Kind) error {
	switch {
	case c.Kind == EncoderDecoder && kind == Decoder:
		return fmt.Errorf("session: kind is %s, whose sessions need a source", c.Kind)
	case c.Kind != kind:
		return fmt.Errorf("session: kind is %s, needs %s", c.Kind, kind)
	case c.Inputs > 0 || c.Pool != "" || c.HeadHidden > 0:
		return errors.New("session: the model reads numbers, pools, or has units before its head; a session needs tokens and outputs at every position")
	}
	return nil
}

// create returns a session without states. It returns an error if batch is out of range.
func (f sessionMaker) create(batch int) (*Session, error) {
	m, frozen := f.model, f.frozen
	if batch < 1 || batch > maxSize {
		return nil, fmt.Errorf("session: batch %d, needs to be from 1 to %d", batch, maxSize)
	}
	if frozen == nil {
		frozen = newPackedModel(m, batch)
	}
	s := &Session{decoding: decoding{batch: batch}, model: m, frozen: frozen}
	s.start(&m.main.turns, 0)
	s.trace.blocks = m.main.newBlockTraces(false)
	for i := range m.main.blocks {
		if c := m.main.blocks[i].conv; c != nil {
			s.convRows = append(s.convRows, make([]float, batch*c.PastSize()))
		}
	}
	return s, nil
}

// Step adds n tokens to each sequence, tokens [batch·n], and returns the logits
// [batch,outputs] after the last token. The logits are valid until the next call.
//
// Step returns an error if tokens do not fit the model, learned positions run out, a
// mixer fails, or logits are not finite (attention.ErrNonFinite). After the last two
// errors the states of the layers may differ in their tokens. The session then refuses
// further tokens and AppendBinary, with ErrSessionFailed, until Reset. If ctx ends, Step
// returns the error of ctx between two pieces of a long prompt. The session is then usable
// and holds the number of tokens that Tokens returns.
func (s *Session) Step(ctx context.Context, tokens []int32, n int) (logits []tensor.Float, err error) {
	m := s.model
	var y tensor.Mat
	if err := s.eachPiece(ctx, tokens, n, func(_, _ int, rows tensor.Mat) { y = rows }); err != nil {
		return nil, err
	}
	// The last row of each sequence.
	n = y.Rows / s.batch
	last := tensor.Mat{Data: y.Data[(n-1)*y.Stride:], Rows: s.batch, Cols: y.Cols, Stride: n * y.Stride}
	s.frozen.logits(resizeMatrix(&s.logits, s.batch, m.config.outputSize()), last)
	return s.logits, s.fail(checkFinite("logits", s.logits, m.config.outputSize()))
}

// Losses adds n tokens to each sequence, tokens [batch·n]. It sets dst [batch·n] to the
// loss of each target [batch·n] in nats, 0 for target -1.
//
// Losses returns an error if Step would, if dst or targets do not fit, or if the model's loss is
// not cross-entropy.
func (s *Session) Losses(ctx context.Context, dst []float64, tokens, targets []int32, n int) error {
	m := s.model
	if len(dst) != s.batch*n {
		return fmt.Errorf("losses: destination has %d elements, batch·n is %d·%d", len(dst), s.batch, n)
	}
	if m.config.Loss != CrossEntropy {
		return fmt.Errorf("losses: the model loses %s, a session knows classes alone", m.config.Loss)
	}
	if err := checkTokens("targets", targets, s.batch, n, m.config.outputSize(), -1); err != nil {
		return err
	}
	s.head.Linear, s.head.limit = m.head.Linear, m.head.limit // in memory of its own: sessions run beside each other
	err := s.eachPiece(ctx, tokens, n, func(i, size int, y tensor.Mat) {
		s.next.classes = s.next.classes[:0]
		for b := range s.batch {
			s.next.classes = append(s.next.classes, targets[b*n+i:][:size]...)
		}
		s.losses = slices.Grow(s.losses[:0], y.Rows)[:y.Rows]
		s.head.setLosses(s.losses, y, &s.next)
		for b := range s.batch {
			copy(dst[b*n+i:][:size], s.losses[b*size:])
		}
	})
	if err != nil {
		return err
	}
	return s.fail(checkFinite("losses", dst, 1))
}

// ErrSessionFailed is in the errors of a session in which a step has failed.
var ErrSessionFailed = errors.New("a step of the session failed")

// fail notes the error of a step, unless it is nil, and returns it.
func (s *Session) fail(err error) error {
	if err != nil {
		s.failure = err
	}
	return err
}

// checkFailure returns an error if a step has failed.
func (s *Session) checkFailure() error {
	if s.failure == nil {
		return nil
	}
	return fmt.Errorf("session: %w, and its states may differ in their tokens; reset it, or restore an earlier snapshot: %w", ErrSessionFailed, s.failure)
}

// eachPiece adds n tokens to each sequence. It calls each with the head's input for
// size tokens, from token i on. It returns the error of ctx between two pieces.
func (s *Session) eachPiece(ctx context.Context, tokens []int32, n int, each func(i, size int, y tensor.Mat)) error {
	m := s.model
	if err := s.checkTokens(tokens, n); err != nil {
		return err
	}
	for i, size := 0, 0; i < n; i += size {
		if err := ctx.Err(); err != nil {
			return err
		}
		left, err := s.sameTurns(ctx)
		if err != nil && ctx.Err() == nil {
			err = s.fail(err)
		}
		if err != nil {
			return err
		}
		size = min(s.pieceSize(), n-i, left)
		s.piece.clear()
		s.piece.add(&s.decoding, tokens, i, size)
		y := m.main.step(&s.piece, &s.trace, s.frozen.stepWays(s.batch*size))
		if err := s.piece.parts[0].Err; err != nil {
			return s.fail(err)
		}
		s.tokens += int64(size)
		each(i, size, y)
	}
	return nil
}

// sameTurns returns how many further tokens, 1 or more, the session can take without a change of the
// rotations of earlier tokens. If the next token changes them, sameTurns first recomputes the states
// of the earlier tokens with the rotations of a longer sequence. It returns an error if ctx ends
// meanwhile or the states cannot be computed; the session is then unchanged.
func (s *Session) sameTurns(ctx context.Context) (int, error) {
	if s.past == nil {
		return math.MaxInt, nil
	}
	turns := &s.model.main.turns
	if left := int64(turns.scaling.OriginalContext) - s.tokens; left > 0 {
		return int(left), nil
	}
	longer, err := sessionMaker{s.model, s.frozen}.start(s.batch)
	if err != nil {
		return 0, err
	}
	longer.decoding.start(turns, turns.lengthClass(s.tokens+1))
	if err := longer.eachPiece(ctx, slices.Concat(s.past...), int(s.tokens), func(int, int, tensor.Mat) {}); err != nil {
		return 0, err
	}
	s.decoding = longer.decoding
	return math.MaxInt, nil
}

// checkTokens returns an error if the session cannot take n tokens of each sequence.
func (s *Session) checkTokens(tokens []int32, n int) error {
	m := s.model
	if err := s.checkFailure(); err != nil {
		return err
	}
	if n < 1 {
		return fmt.Errorf("step: %d tokens, needs at least 1", n)
	}
	if err := checkTokens("tokens", tokens, s.batch, n, m.config.Vocab, 0); err != nil {
		return err
	}
	if c := int64(m.config.LearnedPositions()); m.config.Positions == Learned && int64(n) > c-s.tokens {
		return fmt.Errorf("positions: %d are needed, the learned table has %d", uint64(s.tokens)+uint64(n), c)
	}
	if r := m.main.turns.scaling; r != nil && r.Kind == DynamicScaling && int64(n) > int64(r.OriginalContext)-s.tokens {
		return fmt.Errorf("rope_scaling: kind %s rotates all tokens anew with each token after original_context %d, and a session keeps rotated ones; %d are needed", r.Kind, r.OriginalContext, uint64(s.tokens)+uint64(n))
	}
	return nil
}

// Batch returns the number of sequences.
func (s *Session) Batch() int { return s.batch }

// Tokens returns the number of tokens of each sequence.
func (s *Session) Tokens() int64 { return s.tokens }

// Bytes returns the memory of the session: states of mixers and convolutions in all layers, cached
// positions, and tokens kept for LongScaling.
func (s *Session) Bytes() int64 { return s.stateBytes() + s.places.Bytes() + s.pastBytes() }

// pastBytes returns the memory of the tokens whose states may have to be recomputed.
func (s *decoding) pastBytes() (n int64) {
	for _, x := range s.past {
		n += 4 * int64(len(x))
	}
	return n
}

// stateBytes returns the memory of the states of mixers and convolutions.
func (s *Session) stateBytes() int64 {
	var n int64
	for _, state := range s.states {
		n += state.Bytes()
	}
	var z float
	for _, p := range s.convRows {
		n += int64(len(p)) * int64(unsafe.Sizeof(z))
	}
	return n
}

// HeapBytes returns the memory of the session: Bytes, the working memory of its states, and its own
// fields. It does not count packed weights and the memory of Step.
func (s *Session) HeapBytes() int64 {
	n := s.Bytes() + int64(unsafe.Sizeof(*s)+unsafe.Sizeof(Session{}))
	for _, state := range s.states {
		if x, counts := state.(interface{ HeapBytes() int64 }); counts {
			n += x.HeapBytes() - state.Bytes()
		}
	}
	for i := range s.trace.blocks {
		n += int64(unsafe.Sizeof(s.trace.blocks[i]))
	}
	return n
}

// Clone returns an independent session that continues from the same tokens. The clone of a failed
// session has failed as well.
func (s *Session) Clone() *Session {
	c := &Session{decoding: decoding{tokens: s.tokens, batch: s.batch}, model: s.model, frozen: s.frozen, failure: s.failure}
	c.turns = s.turns
	for _, x := range s.past {
		c.past = append(c.past, slices.Clone(x))
	}
	c.trace.blocks = s.model.main.newBlockTraces(false)
	for _, state := range s.states {
		c.states = append(c.states, state.Clone())
	}
	for _, p := range s.convRows {
		c.convRows = append(c.convRows, slices.Clone(p))
	}
	return c
}

// Reset removes all tokens, and the error of a failed step.
func (s *Session) Reset() {
	s.tokens, s.failure = 0, nil
	s.start(&s.model.main.turns, 0)
	for _, state := range s.states {
		state.Reset()
	}
	for _, p := range s.convRows {
		clear(p)
	}
}
