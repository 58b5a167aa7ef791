package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// groupOf is SessionGroup with elements of type T.
type groupOf[T tensor.Float] struct {
	sessionMaker[T]

	trace  trace[T]
	piece  packedStep[T]
	queue  []groupEntry // steps of the call
	parts  []int        // queue entries of the parts of piece
	rows   []T          // [sequences,width] input of the head
	logits []T          // [sequences,outputs]
	round  uint64       // of the call
}

// groupEntry is the progress of a step in a call.
type groupEntry struct {
	step   int // its index
	tokens int // of each sequence
	begun  int // tokens of each sequence that the session has or the piece
	row    int // of the head's input; -1: none
}

// stepOf is SessionStep with elements of type T.
type stepOf[T tensor.Float] struct {
	Session *sessionOf[T]
	Tokens  []int32 // [batch·N]: N tokens of each of the session's sequences

	// SkipLogits leaves Logits nil: more tokens of a prompt follow.
	SkipLogits bool

	Logits []T   // [batch,outputs] after the last token; nil with an error
	Err    error // of Session.Step
}

// NewSessionGroup is Model.NewSessionGroup.
func (m *modelOf[T]) NewSessionGroup() (*groupOf[T], error) {
	kind := Decoder
	if m.config.Kind == EncoderDecoder {
		kind = EncoderDecoder
	}
	if err := m.config.checkSessions(kind); err != nil {
		return nil, err
	}
	g := &groupOf[T]{sessionMaker: sessionMaker[T]{m, newPackedModel(m, nn.GEMVRows+1)}} // of any number of rows
	g.trace.blocks = m.main.newBlockTraces(false)
	return g, nil
}

// NewSession is SessionGroup.NewSession.
func (g *groupOf[T]) NewSession(batch int) (*sessionOf[T], error) {
	return g.start(batch)
}

// RestoreSession is SessionGroup.RestoreSession.
func (g *groupOf[T]) RestoreSession(data []byte) (*sessionOf[T], error) {
	return g.restore(data)
}

// StepTogether is SessionGroup.StepTogether.
func (g *groupOf[T]) StepTogether(steps []stepOf[T]) {
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
	g.trace.cached = nn.CachedRows[T]{}
	g.setLogits(steps, last)
}

// checkStep returns an error if s cannot take part in the call, and counts its session in.
func (g *groupOf[T]) checkStep(s *stepOf[T]) error {
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
func (g *groupOf[T]) fillPiece(steps []stepOf[T]) bool {
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
func (g *groupOf[T]) finishPart(e *groupEntry, steps []stepOf[T], part *nn.StepPart[T], y, last tensor.Mat[T]) {
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
func (g *groupOf[T]) setLogits(steps []stepOf[T], last tensor.Mat[T]) {
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
