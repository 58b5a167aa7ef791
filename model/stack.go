package model

import (
	"context"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// stack is an encoder or a decoder without its head.
type stack[T tensor.Float] struct {
	entry    embeddingInput[T]
	position nn.Position[T] // nil: none, or rotations
	blocks   []block[T]
	period   int // blocks of a layer
	norm     nn.Norm[T]

	width, d int
	causal   bool
	post     bool               // blocks are norm(x + f(x))
	theta    float64            // base of the rotations; 0: none
	rope     *attention.Rope[T] // rotations of the positions met so far
	drop     attention.Drop     // of passes that are kept, without its key
	rate     float64            // rate of dropout of the first rows and of branch outputs, in such passes
}

// block is x + f(norm(x)), or x + f(conv(norm(x))), where f is the branch. With post-norm
// it is norm(x + f(x)), or norm(x + f(conv(x))). Without residual x is not added.
type block[T tensor.Float] struct {
	norm     nn.Norm[T]
	conv     *nn.Conv[T] // nil: none
	branch   nn.Branch[T]
	mixer    nn.Mixer[T] // the branch, where sessions have a state of it; nil: they have none
	residual bool
}

// input is the input of a stack.
type input[T tensor.Float] struct {
	b, n    int
	tokens  []int32       // [b·n]; nil: numbers
	values  tensor.Mat[T] // [b·n,inputs]
	lens    []int64       // [b] valid tokens; nil: all
	key     rng.Key       // of dropout
	ctx     context.Context
	segment *segmentContext[T] // of longer sequences; nil: they are whole

	source     tensor.Mat[T] // [b·m,width] outputs of the encoder; cross-attention only
	sourceLens []int64
}

// contextErr returns the error of the batch's context.
func (in *input[T]) contextErr() error {
	if in.ctx == nil {
		return nil
	}
	return in.ctx.Err()
}

// trace holds the intermediate results of a pass: all for Backward, or only the input
// of the next block.
type trace[T tensor.Float] struct {
	keep     bool
	in       input[T]
	blocks   []blockTrace[T] // one for each block; a single one where nothing is kept
	branches []nn.Trace[T]   // one for each block; one for each block of a layer where nothing is kept
	x, y     []T             // [b·n,width] before and after the last norm
	stats    []T
}

type blockTrace[T tensor.Float] struct {
	x, y  []T // [b·n,width] before the block, where that is kept, and after the norm, or before a post-norm
	z     []T // [b·n,width] after the convolution
	stats []T
	drop  attention.Drop
}

// scratch holds buffers of gradients that all blocks share.
type scratch[T tensor.Float] struct {
	dx, dy  []T // [b·n,width] of the residual stream, and of a normalised row
	dz      []T // [b·n,width] of a convolution's output
	dbranch []T // [b·n,width] of a branch's output before dropout
	dsource []T // [b·m,width] of the encoder's outputs
	branch  nn.Scratch[T]

	dread, dpooled []T // of the input of the units before the head, and [b,width] of the pooled rows
	dspread        []T // [b·n,width] of the rows that are pooled, or of windows
}

// resizeMatrix resizes data to a matrix. Its elements are undefined.
func resizeMatrix[T tensor.Float](data *[]T, rows, cols int) tensor.Mat[T] {
	*data = slices.Grow((*data)[:0], rows*cols)[:rows*cols]
	return tensor.Mat[T]{Data: *data, Rows: rows, Cols: cols, Stride: cols}
}

// auxLoss returns the auxiliary loss of the mechanisms in a saved pass, in the mean of
// its sequences.
func (tr *trace[T]) auxLoss() (loss float64) {
	for _, branch := range tr.branches {
		loss += branch.Aux() / float64(tr.in.b)
	}
	return loss
}

// branchTrace returns the trace of the branch of block i.
func (tr *trace[T]) branchTrace(s *stack[T], i int) nn.Trace[T] {
	at := i
	if !tr.keep {
		at %= s.period
	}
	if at == len(tr.branches) {
		tr.branches = append(tr.branches, s.blocks[i].branch.NewTrace())
	}
	return tr.branches[at]
}

// blockTrace returns the trace of block i.
func (tr *trace[T]) blockTrace(i int) *blockTrace[T] {
	if tr.keep {
		return &tr.blocks[i]
	}
	return &tr.blocks[0]
}

// residualStream returns the residual stream before block i, or after the last block.
func (tr *trace[T]) residualStream(i, rows, width int) tensor.Mat[T] {
	if tr.keep && i < len(tr.blocks) {
		return resizeMatrix(&tr.blocks[i].x, rows, width)
	}
	return resizeMatrix(&tr.x, rows, width)
}

// forward returns the outputs [b·n,width] of the stack. They lie in tr.
func (s *stack[T]) forward(in input[T], tr *trace[T]) (tensor.Mat[T], error) {
	rows, w := in.b*in.n, s.width
	tr.in = in
	if tr.blocks == nil {
		if tr.keep {
			tr.blocks = make([]blockTrace[T], len(s.blocks))
		} else {
			tr.blocks = make([]blockTrace[T], 1)
		}
	}
	x := tr.residualStream(0, rows, w)
	s.entry.forward(x, &in)
	if s.position != nil {
		if err := s.position.Forward(x, in.b, in.segment.firstPosition()); err != nil {
			return x, err
		}
	}
	drops := tr.keep && s.rate > 0
	if drops {
		nn.DropoutForward(s.blockDropout(in.key, -1), x, tensor.Mat[T]{}, x)
	}
	scope := nn.Scope[T]{B: in.b, Causal: s.causal, KeyLens: in.lens, Rope: s.inputRotations(&in), Source: in.source, SourceLens: in.sourceLens}
	for i := range s.blocks {
		if err := tr.in.contextErr(); err != nil {
			return x, err
		}
		b, t := &s.blocks[i], tr.blockTrace(i)
		next, stats := tr.residualStream(i+1, rows, w), resizeMatrix(&t.stats, rows, 2).Data
		in, out := resizeMatrix(&t.y, rows, w), next
		if s.post {
			in, out = x, in
		} else {
			b.norm.Forward(in, x, stats)
		}
		past, err := tr.in.segment.pastRows(i, in, tr.in.b)
		if err != nil {
			return x, err
		}
		in = b.applyConv(in, tr.in.b, past, t)
		if tr.keep && s.drop.Rate > 0 {
			t.drop = s.drop
			t.drop.Key = tr.in.key.Fold(uint64(i))
			scope.Drop = &t.drop
		}
		base := x
		if drops && b.residual {
			clear(out.Data)
			base = out
		}
		if err := b.branch.Forward(out, base, in, tr.in.segment.blockScope(scope, i), tr.branchTrace(s, i), tr.keep); err != nil {
			return x, err
		}
		if drops && b.residual {
			nn.DropoutForward(s.blockDropout(tr.in.key, i), out, x, out)
		}
		if s.post {
			b.norm.Forward(next, out, stats)
		}
		x = next
	}
	y := resizeMatrix(&tr.y, rows, w)
	s.norm.Forward(y, x, resizeMatrix(&tr.stats, rows, 2).Data)
	return y, nil
}

// blockDropout returns the dropout of the output of block i, or of the first rows for i
// = -1. Attention draws from number i of the key.
func (s *stack[T]) blockDropout(key rng.Key, i int) nn.Dropout {
	return nn.Dropout{Rate: s.rate, Key: key.Fold(uint64(len(s.blocks) + 1 + i))}
}

// applyConv returns the input of the branch: y, or the convolution of y after the rows
// past.
func (b *block[T]) applyConv(y tensor.Mat[T], batch int, past []T, t *blockTrace[T]) tensor.Mat[T] {
	if b.conv == nil {
		return y
	}
	z := resizeMatrix(&t.z, y.Rows, y.Cols)
	b.conv.Forward(z, y, batch, past)
	return z
}

// inputRotations returns the rotations of the positions of in; nil if there are none.
func (s *stack[T]) inputRotations(in *input[T]) *attention.Rope[T] {
	switch {
	case s.theta == 0:
		return nil
	case in.segment != nil:
		return in.segment.rope
	}
	if s.rope == nil || s.rope.Rows() < in.n {
		s.rope = attention.NewRope[T](s.d, s.theta, 0, in.n)
	}
	return s.rope
}

// setRotations sets rope to the rotations of n positions from start on, in its own
// memory.
func (s *stack[T]) setRotations(rope **attention.Rope[T], n int, start int64) *attention.Rope[T] {
	if *rope == nil {
		*rope = &attention.Rope[T]{Half: s.d / 2}
	}
	r := *rope
	size := n * r.Half
	r.Cos, r.Sin = slices.Grow(r.Cos[:0], size)[:size], slices.Grow(r.Sin[:0], size)[:size]
	r.Fill(s.d, s.theta, start)
	return r
}

// backward adds to the gradients of the weights, from the gradient dy [b·n,width] of
// the outputs. With cross-attention it adds to dsource [b·m,width].
func (s *stack[T]) backward(dy, dsource tensor.Mat[T], tr *trace[T], sc *scratch[T]) error {
	rows, w := dy.Rows, s.width
	dx := resizeMatrix(&sc.dx, rows, w)
	clear(dx.Data)
	sc.branch.DSource = dsource
	s.norm.Backward(dx, dy, tr.residualStream(len(s.blocks), rows, w), tr.stats)
	for i := len(s.blocks) - 1; i >= 0; i-- {
		if err := tr.in.contextErr(); err != nil {
			return err
		}
		b, t := &s.blocks[i], tr.blockTrace(i)
		x, y := tr.residualStream(i, rows, w), resizeMatrix(&t.y, rows, w)
		from, din := y, dy // of f, or of the convolution before it
		dout := dx         // of x + f
		if s.post {
			clear(dy.Data)
			b.norm.Backward(dy, dx, y, t.stats)
			from, din, dout = x, dx, dy
		}
		in, dfrom, dbranch := from, din, dout
		if b.conv != nil {
			in, din = resizeMatrix(&t.z, rows, w), resizeMatrix(&sc.dz, rows, w)
		}
		if s.rate > 0 && b.residual {
			dbranch = resizeMatrix(&sc.dbranch, rows, w)
			nn.DropoutBackward(s.blockDropout(tr.in.key, i), dbranch, dout)
		}
		tr.in.segment.setStateGrads(&sc.branch, i)
		if err := b.branch.Backward(din, dbranch, in, tr.branchTrace(s, i), &sc.branch); err != nil {
			return err
		}
		if !b.residual {
			clear(dout.Data)
		}
		if b.conv != nil {
			ends, err := tr.in.segment.convEnds(i, din, tr.in.b)
			if err != nil {
				return err
			}
			b.conv.Backward(dfrom, din, from, tr.in.b, ends)
		}
		if s.post {
			nn.AddTo(dx, dy)
		} else {
			b.norm.Backward(dx, dy, x, t.stats)
		}
	}
	if s.rate > 0 {
		nn.DropoutBackward(s.blockDropout(tr.in.key, -1), dx, dx)
	}
	if s.position != nil {
		s.position.Backward(dx, tr.in.b, tr.in.segment.firstPosition())
	}
	s.entry.backward(dx, &tr.in)
	return nil
}

// step is forward for the causal mixers of a decoder, from position start on. states
// and past continue the mixers and convolutions, in the order of their blocks. Nothing
// is saved in tr.
func (s *stack[T]) step(in input[T], start int64, states []nn.State[T], past [][]T, rope *attention.Rope[T], tr *trace[T], by stepWays[T]) (tensor.Mat[T], error) {
	rows, w := in.b*in.n, s.width
	t := tr.blockTrace(0)
	x := resizeMatrix(&tr.x, rows, w)
	s.entry.forward(x, &in)
	if s.position != nil {
		if err := s.position.Forward(x, in.b, start); err != nil {
			return x, err
		}
	}
	scope := nn.Scope[T]{B: in.b, Causal: true, Rope: rope}
	first := states[0]
	y := resizeMatrix(&t.y, rows, w)
	stats := resizeMatrix(&t.stats, rows, 2).Data
	for i := range s.blocks {
		b := &s.blocks[i]
		if s.post {
			copy(y.Data, x.Data)
		} else {
			b.norm.Forward(y, x, stats)
		}
		f := y
		if b.conv != nil {
			f, past = b.applyConv(y, in.b, past[0], t), past[1:]
		}
		var state nn.State[T]
		if b.mixer != nil {
			state, states = states[0], states[1:]
		}
		branch := nn.Stepper[T](b.branch)
		if by.blocks != nil {
			branch = by.blocks[i]
		}
		if by.first != nil && i == len(s.blocks)-1 {
			scope.Next = by.first.StateMemory(first)
		}
		var err error
		if by.first != nil && i == 0 {
			r := nn.CachedRows[T]{Tokens: in.tokens, Start: start, X: f, Stats: stats, Positions: by.places}
			err = by.first.Step(x, &r, state, scope, tr.branchTrace(s, i), branch)
		} else {
			err = branch.Step(x, f, state, scope, tr.branchTrace(s, i))
		}
		if err != nil {
			return x, err
		}
		if s.post {
			b.norm.Forward(x, x, stats)
		}
	}
	s.norm.Forward(y, x, stats)
	return y, nil
}
