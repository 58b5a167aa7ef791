package model

import (
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// decoding holds the states of a stack in the middle of sequences.
type decoding struct {
	states   []nn.State // of each mixer
	convRows [][]float  // of each convolution, the rows before the next token
	tokens   int64      // of each sequence
	batch    int        // sequences

	// turns holds the frequencies of rotations. With LongScaling, past [batch] keeps the tokens of
	// each sequence until the frequencies change, at OriginalContext tokens.
	turns [rotationKinds]attention.Frequencies
	past  [][]int32

	places nn.PositionCache
}

// start sets the frequencies of s to those of a length class.
func (s *decoding) start(r *rotations, class int64) {
	s.turns, s.past = r.ofClass(class), nil
	if class == 0 && r.scaling != nil && r.scaling.Kind == LongScaling {
		s.past = make([][]int32, s.batch)
	}
}

// packedStep holds new tokens of some sessions, one session after another.
type packedStep struct {
	tokens   []int32
	sessions []*decoding
	parts    []nn.StepPart // of each session
	ropes    []ropes       // of each session, in memory that stays from step to step
}

// clear removes all sessions.
func (p *packedStep) clear() {
	clear(p.sessions)
	clear(p.parts)
	p.tokens, p.sessions, p.parts, p.ropes = p.tokens[:0], p.sessions[:0], p.parts[:0], p.ropes[:0]
}

// add adds the tokens from ≤ i < from+n of each sequence in tokens [batch·N] for session s.
func (p *packedStep) add(s *decoding, tokens []int32, from, n int) {
	start := len(p.tokens)
	for b := range s.batch {
		of := tokens[b*len(tokens)/s.batch+from:][:n]
		p.tokens = append(p.tokens, of...)
		if s.past != nil {
			s.past[b] = append(s.past[b], of...)
		}
	}
	p.sessions = append(p.sessions, s)
	part := len(p.ropes)
	p.ropes = slices.Grow(p.ropes, 1)[:part+1]
	p.ropes[part].fill(&s.turns, s.tokens, n)
	p.parts = append(p.parts, nn.StepPart{
		B: s.batch, Start: start, End: len(p.tokens), Position: s.tokens, Positions: &s.places,
	})
}

// scope sets the states and rotations of b in each part, and returns the scope of the step.
// state is the index of the state of b.
func (p *packedStep) scope(b *block, state int) nn.Scope {
	for i := range p.parts {
		x := &p.parts[i]
		x.Rope = p.ropes[i][b.rotation]
		if b.hasState() {
			x.State = p.sessions[i].states[state]
		}
	}
	return nn.Scope{B: p.parts[0].B, Causal: true, Rope: p.parts[0].Rope}
}

// embed sets x [rows,width] to the first rows.
func (p *packedStep) embed(e *embeddingInput, x tensor.Mat, tr *trace) {
	for i := range p.parts {
		part := &p.parts[i]
		tr.in = input{b: part.B, n: (part.End - part.Start) / part.B, tokens: p.tokens[part.Start:part.End]}
		part.Err = e.forward(part.Rows(x), &tr.in, part.Position, &tr.entry, false)
	}
}

// convolve returns the convolution of y [rows,width] in b. conv is the index of the convolution.
func (p *packedStep) convolve(b *block, y tensor.Mat, conv int, t *blockTrace) tensor.Mat {
	z := resizeMatrix(&t.z, y.Rows, y.Cols)
	for i := range p.parts {
		part := &p.parts[i]
		b.conv.Forward(part.Rows(z), part.Rows(y), part.B, p.sessions[i].convRows[conv])
	}
	return z
}

// step returns the head's input [rows,width] for the new tokens of p in a decoder. It updates the
// states of the sessions. If a part fails it sets the error of the part; other parts are not
// affected. tr is working memory: nothing is saved for Backward.
func (s *stack) step(p *packedStep, tr *trace, by stepWays) tensor.Mat {
	rows, w := len(p.tokens), s.width
	t := tr.blockTrace(0)
	x := resizeMatrix(&tr.x, rows, w)
	p.embed(&s.entry, x, tr)
	y := resizeMatrix(&t.y, rows, w)
	stats := resizeMatrix(&t.stats, rows, 2).Data
	states, convs := 0, 0
	for i := range s.blocks {
		b := &s.blocks[i]
		scope := p.scope(b, states)
		f := y
		switch {
		case s.post:
			copy(y.Data, x.Data)
		case !b.parallel:
			b.norm.Forward(y, x, stats)
			s.normaliseParallel(i+1, y, x, tr)
		case b.norm != nil:
			f = resizeMatrix(&tr.blockTrace(i).y, rows, w)
		}
		if b.conv != nil {
			f = p.convolve(b, y, convs, t)
			convs++
		}
		if b.hasState() {
			states++
		}
		branch := nn.Stepper(b.branch)
		if by.blocks != nil {
			branch = by.blocks[i]
		}
		if by.first != nil && i == len(s.blocks)-1 && len(p.parts) == 1 {
			scope.Next = by.first.StateMemory(p.sessions[0].states[0])
		}
		to := x
		if b.out != nil {
			to = resizeMatrix(&t.f, rows, w)
			clear(to.Data)
		}
		s.stepBlock(i, to, f, stats, p, scope, tr, branch, by.first)
		if b.out != nil {
			b.out.Forward(to, to, resizeMatrix(&t.outStats, rows, 2).Data)
			nn.AddTo(x, to)
		}
		if len(p.parts) == 1 && p.parts[0].Err != nil {
			return y
		}
		if s.post {
			b.norm.Forward(x, x, stats)
		}
	}
	s.norm.Forward(y, x, stats)
	return y
}

// stepBlock adds to x [rows,width] the output of block i for f [rows,width]. It computes the output
// by branch, in the first block by first unless that is nil. stats are those of the norm of f.
func (s *stack) stepBlock(i int, x, f tensor.Mat, stats []float, p *packedStep, scope nn.Scope, tr *trace, branch nn.Stepper, first *nn.FirstLayerCache) {
	to, part := tr.branchTrace(s, i), &p.parts[0]
	one := len(p.parts) == 1
	switch {
	case first != nil && i == 0:
		tr.cached = nn.CachedRows{Tokens: p.tokens, X: f, Stats: stats}
		if !one {
			first.StepParts(x, &tr.cached, p.parts, scope, to, branch)
		} else if part.Err == nil {
			tr.cached.Start, tr.cached.Positions = part.Position, part.Positions
			part.Err = first.Step(x, &tr.cached, part.State, scope, to, branch)
		}
	case one && part.Err == nil:
		part.Err = branch.Step(x, f, part.State, scope, to)
	case s.blocks[i].byRow:
		_ = branch.Step(x, f, nil, scope, to) // branches without states return no error
	case !one:
		nn.StepParts(branch, x, f, p.parts, scope, to)
	}
}
