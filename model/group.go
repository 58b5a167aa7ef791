package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// SessionGroup steps sessions of one model together: their rows share the products with
// the weights. It packs the weights once for all sessions that it makes. Its memory is
// kept for the largest step.
//
// The model's weights must not change while the group is in use. NewSession and
// RestoreSession may run at any time. Other methods must not run at the same time as each
// other, nor as methods of the sessions in their steps.
type SessionGroup struct {
	sessionMaker

	trace  trace
	piece  packedStep
	queue  []groupEntry // steps of the call
	parts  []int        // indices in queue of the parts of piece
	rows   []float      // [sequences,width] input of the head
	logits []float      // [sequences,outputs]
	round  uint64       // number of the call
}

// groupEntry is the progress of a step in a call.
type groupEntry struct {
	step   int // index of the step
	tokens int // tokens of each sequence
	begun  int // tokens of each sequence that are in the session or in the piece
	row    int // row in the head's input; -1: none
}

// SessionStep holds new tokens of a session, and the result of SessionGroup.StepTogether.
type SessionStep struct {
	Session *Session
	Tokens  []int32 // [batch·N]: N tokens of each of the session's sequences

	// SkipLogits leaves Logits nil, for parts of a prompt that more tokens follow.
	SkipLogits bool

	Logits []tensor.Float // [batch,outputs] after the last token; nil with an error
	Err    error          // of Session.Step
}

// NewSessionGroup returns a group without sessions. It returns an error if the
// configuration has no sessions.
func (m *Model) NewSessionGroup() (*SessionGroup, error) {
	kind := Decoder
	if m.config.Kind == EncoderDecoder {
		kind = EncoderDecoder
	}
	if err := m.config.checkSessions(kind); err != nil {
		return nil, err
	}
	g := &SessionGroup{sessionMaker: sessionMaker{m, newPackedModel(m, nn.GEMVRows+1)}} // of any number of rows
	g.trace.blocks = m.main.newBlockTraces(false)
	return g, nil
}

// NewSession returns a session as Model.NewSession does, which uses the packed weights of the
// group.
func (g *SessionGroup) NewSession(batch int) (*Session, error) {
	return g.start(batch)
}

// RestoreSession returns a session as Model.RestoreSession does, which uses the packed weights
// of the group.
func (g *SessionGroup) RestoreSession(data []byte) (*Session, error) {
	return g.restore(data)
}

// StepTogether adds the tokens of each step to its session, and sets Logits and Err of the step.
// Logits are bitwise those of Session.Step for each session alone. They are valid until the next
// call.
//
// Steps may have different numbers of tokens, and their sessions different positions. The
// error of a step does not affect other steps. Err is the error of Session.Step, or an error if
// the session is nil, of another model, or in an earlier step of the call. Sessions whose tokens
// are refused keep their state; after other errors a session has failed, as after Session.Step,
// and must be Reset.
func (g *SessionGroup) StepTogether(steps []SessionStep) {
	g.round++
	g.queue = g.queue[:0]
	rows := 0
	for i := range steps {
		s := &steps[i]
		s.Logits = nil
		if s.Err = g.checkStep(s); s.Err != nil {
			continue
		}
		e := groupEntry{step: i, tokens: len(s.Tokens) / s.Session.batch, row: -1}
		if !s.SkipLogits {
			e.row, rows = rows, rows+s.Session.batch
		}
		g.queue = append(g.queue, e)
	}
	last := resizeMatrix(&g.rows, rows, g.model.main.width)
	clear(last.Data) // rows of steps that fail
	for g.fillPiece(steps) {
		y := g.model.main.step(&g.piece, &g.trace, g.frozen.stepWays(len(g.piece.tokens)))
		for i, entry := range g.parts {
			g.finishPart(&g.queue[entry], steps, &g.piece.parts[i], y, last)
		}
	}
	g.piece.clear() // of references to sessions
	g.trace.cached = nn.CachedRows{}
	g.setLogits(steps, last)
}

// checkStep returns an error if s cannot take part in the call. It marks the session of s as used
// in this call.
func (g *SessionGroup) checkStep(s *SessionStep) error {
	x := s.Session
	switch {
	case x == nil:
		return errors.New("session: it is nil")
	case x.model != g.model:
		return errors.New("session: it is of another model than the group")
	case len(s.Tokens)%x.batch != 0:
		return fmt.Errorf("tokens: has %d elements, the session has %d sequences", len(s.Tokens), x.batch)
	}
	if err := x.checkTokens(s.Tokens, len(s.Tokens)/x.batch); err != nil {
		return err
	}
	if x.group == g && x.round == g.round {
		return errors.New("session: it is in an earlier step of the call")
	}
	x.group, x.round = g, g.round
	return nil
}

// fillPiece puts the next tokens of steps into the piece, in order. It returns false if
// none are left.
func (g *SessionGroup) fillPiece(steps []SessionStep) bool {
	g.piece.clear()
	g.parts = g.parts[:0]
	for i := range g.queue {
		e := &g.queue[i]
		s := &steps[e.step]
		if s.Err != nil || e.begun == e.tokens {
			continue
		}
		n := min(e.tokens-e.begun, (stepRows-len(g.piece.tokens))/s.Session.batch)
		if len(g.parts) == 0 {
			n = max(n, 1)
		}
		if n > 0 {
			left, err := s.Session.sameTurns(context.Background())
			if err != nil {
				s.Err = s.Session.fail(err)
				continue
			}
			n = min(n, left)
			g.piece.add(&s.Session.decoding, s.Tokens, e.begun, n)
			g.parts = append(g.parts, i)
			e.begun += n
		}
	}
	return len(g.parts) > 0
}

// finishPart counts the tokens of a part of the piece, whose outputs are y. It copies its
// last rows to last if the step is done.
func (g *SessionGroup) finishPart(e *groupEntry, steps []SessionStep, part *nn.StepPart, y, last tensor.Mat) {
	s := &steps[e.step]
	if s.Err = s.Session.fail(part.Err); s.Err != nil {
		return
	}
	n := (part.End - part.Start) / part.B
	s.Session.tokens += int64(n)
	for b := 0; b < part.B && e.begun == e.tokens && e.row >= 0; b++ {
		copy(last.Row(e.row+b), y.Row(part.Start+(b+1)*n-1))
	}
}

// setLogits sets the logits of steps from the input [sequences,width] of the head.
func (g *SessionGroup) setLogits(steps []SessionStep, last tensor.Mat) {
	if last.Rows == 0 {
		return
	}
	outputs := g.model.config.outputSize()
	g.frozen.logits(resizeMatrix(&g.logits, last.Rows, outputs), last)
	for i := range g.queue {
		e := &g.queue[i]
		s := &steps[e.step]
		if s.Err != nil || e.row < 0 {
			continue
		}
		logits := g.logits[e.row*outputs:][:s.Session.batch*outputs]
		if s.Err = s.Session.fail(checkFinite("logits", logits, outputs)); s.Err == nil {
			s.Logits = logits
		}
	}
}
