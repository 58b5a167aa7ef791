package model

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// segmentContext describes a part of longer sequences: its positions, and the states of blocks.
type segmentContext struct {
	start  int64
	ropes  ropes      // of its positions
	last   bool       // nothing follows
	ranks  *comm.Comm // that have the parts before and after; nil: none
	blocks []blockContext
}

// blockContext holds the states of a block before and after a part.
type blockContext struct {
	init, final                     nn.State             // of its mixer; nil: nothing came before, or what comes after is not wanted
	dinit, dfinal                   *attention.StateGrad // their gradients; nil: nothing came before, nothing follows
	pastRows, currentRows, nextRows []float              // of its convolution: rows before, their copy that Forward advances, and nn.ConvEnds.NextGrads
}

// firstPosition returns the position of the first token.
func (p *segmentContext) firstPosition() int64 {
	if p == nil {
		return 0
	}
	return p.start
}

// blockScope returns s with the states of block i.
func (p *segmentContext) blockScope(s nn.Scope, i int) nn.Scope {
	if p != nil {
		s.Init, s.Final, s.Ranks = p.blocks[i].init, p.blocks[i].final, p.ranks
	}
	return s
}

// pastRows returns the convolution's input rows before the part, for block i. x holds
// the input rows of the part, of batch sequences.
func (p *segmentContext) pastRows(i int, x tensor.Mat, batch int) ([]float, error) {
	if p == nil {
		return nil, nil
	}
	b := &p.blocks[i]
	if p.ranks != nil && b.pastRows != nil {
		if err := rowsBefore(p.ranks, b.pastRows, x, batch); err != nil {
			return nil, err
		}
		b.currentRows = append(b.currentRows[:0], b.pastRows...)
	}
	return b.currentRows, nil
}

// convEnds returns the rows and gradients around the part for the convolution of block
// i. dy is the gradient of the convolution's output, of batch sequences.
func (p *segmentContext) convEnds(i int, dy tensor.Mat, batch int) (nn.ConvEnds, error) {
	if p == nil {
		return nn.ConvEnds{}, nil
	}
	b := &p.blocks[i]
	if p.ranks != nil {
		b.nextRows = slices.Grow(b.nextRows[:0], len(b.pastRows))[:len(b.pastRows)]
		if err := rowsAfter(p.ranks, b.nextRows, dy, batch); err != nil {
			return nn.ConvEnds{}, err
		}
	}
	return nn.ConvEnds{PastRows: b.pastRows, NextGrads: b.nextRows, Last: p.last}, nil
}

// setStateGrads sets the gradients of states in sc for block i.
func (p *segmentContext) setStateGrads(sc *nn.Scratch, i int) {
	sc.DInit, sc.DFinal = nil, nil
	if p != nil {
		sc.DInit, sc.DFinal = p.blocks[i].dinit, p.blocks[i].dfinal
	}
}

// segments divides the sequences of a batch into parts of size positions for a decoder.
type segments struct {
	ctx    context.Context
	m      *Model
	b      *Batch
	size   int
	tokens []int32
	lens   []int64
	turns  [rotationKinds]attention.Frequencies
	ropes  ropes
}

// CanSegment returns an error if the model cannot process sequences in parts of size
// positions. It can if it is a decoder of tokens without pooling, units before the head and
// dropout, if its mixers are attention with a state of fixed size that has gradients, and if
// size is at least 1 and at least Config.Conv.
func (m *Model) CanSegment(size int) error {
	c := &m.config
	switch {
	case c.Kind != Decoder:
		return fmt.Errorf("segment: kind is %s, needs %s", c.Kind, Decoder)
	case c.Pool != "":
		return fmt.Errorf("segment: pool is %s, which needs all positions at once", c.Pool)
	case c.HeadHidden > 0:
		return fmt.Errorf("segment: head_hidden is %d, segments have no units before the head", c.HeadHidden)
	case c.Inputs > 0:
		return fmt.Errorf("segment: the model reads %d numbers at a position, needs tokens", c.Inputs)
	case c.Dropout > 0 || c.AttentionDropout > 0:
		return errors.New("segment: with dropout, states would be of other parts of rows than gradients")
	case size < 1 || size < c.Conv:
		return fmt.Errorf("segment: %d tokens, needs 1 or more, and those of the convolution, %d", size, c.Conv)
	}
	for i := range m.main.blocks {
		if x := m.main.blocks[i].mixer; x != nil {
			a, ok := x.(*nn.Attention)
			if !ok {
				return fmt.Errorf("segment: gradients of the state of %s are not defined", c.Mechanism)
			}
			if t := a.Traits(); !t.Streaming || !t.Linear && !t.CausalOnly && !t.Segments {
				return fmt.Errorf("segment: %s has no state of fixed size that gradients go through", t.Name)
			}
		}
	}
	return nil
}

// TrainSegments computes Forward and Backward of b in segments of size positions. The
// gradient is the gradient of the whole sequences. A first pass saves the states at the
// ends of segments. A second pass goes from the last segment to the first: it recomputes
// each segment and passes the gradients of its initial states on. Memory grows with size,
// and by one set of states with each segment.
//
// done, if not nil, is called with the numbers of finished positions and of all positions of
// both passes.
//
// TrainSegments returns an error if CanSegment does, b does not fit the model, no
// target is counted, or done returns one.
func (m *Model) TrainSegments(ctx context.Context, b *Batch, size int, scale tensor.Float, done func(done, all int) error) (loss float64, err error) {
	s, t, err := newTrainSegments(ctx, m, b, size)
	if err != nil {
		return 0, err
	}
	size = min(size, b.N)
	count := (b.N + size - 1) / size
	told := func(n int) error {
		if done == nil {
			return nil
		}
		return done(n, b.N+(count-1)*size)
	}
	kept := make([]*segmentContext, count)
	kept[0] = s.firstContext()
	for i := range count - 1 {
		if kept[i+1], err = s.runForward(kept[i], i, true); err != nil {
			return 0, err
		}
		if err := told((i + 1) * size); err != nil {
			return 0, err
		}
	}
	var following *segmentContext
	for i := count - 1; i >= 0; i-- {
		p := kept[i]
		kept[i] = nil
		s.linkGradients(p, following)
		sum, err := s.runBackward(p, i, t, scale)
		if err != nil {
			return 0, err
		}
		loss += sum
		if err := told((count-1)*size + b.N - i*size); err != nil {
			return 0, err
		}
		following = p
	}
	return loss / float64(t.counted), checkFinite("loss", []float64{loss}, 1)
}

// SegmentLosses sets dst [B·N] to the Losses of b, computed in segments of size positions.
// Memory grows with size only. done, if not nil, is called with the numbers of finished
// positions and of all positions.
//
// SegmentLosses returns an error if CanSegment does, b or dst do not fit the model, a
// loss is not finite, or done returns one.
func (m *Model) SegmentLosses(ctx context.Context, b *Batch, size int, dst []float64, done func(done, all int) error) error {
	s, err := newSegments(ctx, m, b, size)
	if err != nil {
		return err
	}
	if len(dst) != b.B*b.N {
		return fmt.Errorf("losses: destination has %d elements, B·N is %d·%d", len(dst), b.B, b.N)
	}
	var t targets
	if err := t.setTargets(&m.config, b); err != nil {
		return err
	}
	p := s.firstContext()
	var losses []float64
	for i := 0; i*size < b.N; i++ {
		next, err := s.runForward(p, i, false)
		if err != nil {
			return err
		}
		n := s.segmentLength(i)
		losses = slices.Grow(losses[:0], b.B*n)[:b.B*n]
		m.head.setLosses(losses, m.eval.body, s.segmentTargets(&t, i))
		for r := range b.B {
			copy(dst[r*b.N+i*size:][:n], losses[r*n:])
		}
		p = next
		if done != nil {
			if err := done(i*size+n, b.N); err != nil {
				return err
			}
		}
	}
	return checkFinite("losses", dst, 1)
}

// newSegments divides a batch. It returns an error if the model or the batch cannot be divided.
func newSegments(ctx context.Context, m *Model, b *Batch, size int) (*segments, error) {
	if err := m.CanSegment(size); err != nil {
		return nil, err
	}
	if err := b.check(&m.config); err != nil {
		return nil, err
	}
	if c := m.config; c.Positions == Learned && b.N > c.LearnedPositions() {
		return nil, fmt.Errorf("positions: %d are needed, the learned table has %d", b.N, c.LearnedPositions())
	}
	if b.KeyMask != nil || b.Positions != nil || b.Types != nil {
		return nil, fmt.Errorf("segment: key_mask, positions and types have %d, %d and %d elements, segments take none", len(b.KeyMask), len(b.Positions), len(b.Types))
	}
	class, err := m.main.turns.batchClass(b.B, b.N, b.Lens, nil)
	if err != nil {
		return nil, err
	}
	return &segments{ctx: ctx, m: m, b: b, size: size, turns: m.main.turns.ofClass(class)}, nil
}

// newTrainSegments returns the segments and the targets of b for a gradient. It returns
// an error if newSegments does or no target is counted.
func newTrainSegments(ctx context.Context, m *Model, b *Batch, size int) (*segments, *targets, error) {
	s, err := newSegments(ctx, m, b, size)
	if err != nil {
		return nil, nil, err
	}
	m.canBackward, m.canBackwardOutputs = false, false
	t := new(targets)
	if err := t.setTargets(&m.config, b); err != nil {
		return nil, nil, err
	}
	if t.counted == 0 {
		return nil, nil, errNotCounted
	}
	return s, t, nil
}

// firstContext returns the context of the first segment.
func (s *segments) firstContext() *segmentContext {
	p := &segmentContext{blocks: make([]blockContext, len(s.m.main.blocks))}
	for i := range p.blocks {
		if c := s.m.main.blocks[i].conv; c != nil {
			p.blocks[i].pastRows = make([]float, s.b.B*c.PastSize())
		}
	}
	return p
}

// segmentLength returns the number of positions of segment i.
func (s *segments) segmentLength(i int) int { return min(s.size, s.b.N-i*s.size) }

// segmentInput returns the input of segment i with the context p.
func (s *segments) segmentInput(p *segmentContext, i int) input {
	b, n, at := s.b, s.segmentLength(i), i*s.size
	s.tokens, s.lens = s.tokens[:0], s.lens[:0]
	for r := range b.B {
		s.tokens = append(s.tokens, b.Tokens[r*b.N+at:][:n]...)
	}
	in := input{b: b.B, n: n, tokens: s.tokens, segment: p, ctx: s.ctx}
	if b.Lens != nil {
		for _, l := range b.Lens {
			s.lens = append(s.lens, min(max(l-int64(at), 0), int64(n)))
		}
		in.lens = s.lens
	}
	p.start, p.last = int64(at), at+n == b.N
	p.ropes = s.ropes.fill(&s.turns, int64(at), n)
	for j := range p.blocks {
		p.blocks[j].currentRows = append(p.blocks[j].currentRows[:0], p.blocks[j].pastRows...)
	}
	return in
}

// runForward runs segment i with the context p and returns the context of the next
// segment. Without keep, initial states are overwritten by final states. The last
// segment has no final states.
func (s *segments) runForward(p *segmentContext, i int, keep bool) (*segmentContext, error) {
	main := s.m.main
	next := &segmentContext{blocks: make([]blockContext, len(p.blocks))}
	in := s.segmentInput(p, i)
	for j := range p.blocks {
		if x := main.blocks[j].mixer; x != nil && !p.last {
			state := p.blocks[j].init
			if keep || state == nil {
				var err error
				if state, err = x.(*nn.Attention).NewSums(s.b.B); err != nil {
					return nil, err
				}
			}
			p.blocks[j].final, next.blocks[j].init = state, state
		}
	}
	var err error
	if s.m.eval.body, err = main.forward(in, &s.m.eval.main); err != nil {
		return nil, err
	}
	for j := range p.blocks {
		next.blocks[j].pastRows = slices.Clone(p.blocks[j].currentRows)
	}
	return next, nil
}

// segmentTargets returns the targets of segment i.
func (s *segments) segmentTargets(t *targets, i int) *targets {
	n := s.segmentLength(i)
	x := targets{loss: t.loss, each: t.each}
	for r := range s.b.B {
		of := t.slice(r*s.b.N+i*s.size, r*s.b.N+i*s.size+n)
		x.classes = append(x.classes, of.classes...)
		x.numbers = append(x.numbers, of.numbers...)
	}
	return &x
}

// linkGradients sets the gradients of p's final states to those of the initial states of
// following, the next segment. following is nil if there is none.
func (s *segments) linkGradients(p, following *segmentContext) {
	for j := range p.blocks {
		x := &p.blocks[j]
		if following != nil {
			x.dfinal, x.nextRows = following.blocks[j].dinit, following.blocks[j].nextRows
		} else {
			x.nextRows = make([]float, len(x.pastRows))
		}
		if x.init != nil {
			x.dinit = new(attention.StateGrad)
		}
	}
}

// runBackward recomputes segment i, adds scale times its gradient to the gradients of the
// weights, and returns the sum of its losses.
func (s *segments) runBackward(p *segmentContext, i int, t *targets, scale float) (loss float64, err error) {
	m := s.m
	tr, sc := &m.train, &m.scratch
	tr.in = s.segmentInput(p, i)
	if tr.body, err = m.main.forward(tr.in, &tr.main); err != nil {
		return 0, err
	}
	y, part := tr.body, s.segmentTargets(t, i)
	m.losses = slices.Grow(m.losses[:0], y.Rows)[:y.Rows]
	m.head.setLosses(m.losses, y, part)
	for _, l := range m.losses {
		loss += l
	}
	dy := resizeMatrix(&sc.dy, y.Rows, y.Cols)
	m.head.backward(dy, y, part, scale/float(t.counted))
	return loss, m.main.backward(dy, tensor.Mat{}, &tr.main, sc)
}
