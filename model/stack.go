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
type stack struct {
	entry  embeddingInput
	blocks []block
	period int // blocks of a layer
	norm   nn.Norm

	width      int
	causal     bool
	post       bool           // blocks are norm(x + f(x))
	parallel   bool           // both blocks of a layer read its input
	turns      rotations      // frequencies of rotations
	ropes      ropes          // rotations of the positions met so far
	ropesClass int64          // of lengths, of ropes
	drop       attention.Drop // of passes that are kept, without its key
	rate       float64        // rate of dropout of the first rows and of branch outputs, in such passes
}

// block is x + f(norm(x)), or x + f(conv(norm(x))), where f is the branch. With post-norm
// it is norm(x + f(x)), or norm(x + f(conv(x))). Without residual x is not added. With the norm
// out it is x + out(f(norm(x))). A parallel block reads the input x of the block before it,
// through its own norm, or if it has none, through the norm of that block.
type block struct {
	norm     nn.Norm
	parallel bool
	byRow    bool     // the branch computes each row by itself
	rotation int      // kind of the rotations
	conv     *nn.Conv // nil: none
	branch   nn.Branch
	out      nn.Norm  // nil: none
	mixer    nn.Mixer // the branch if sessions have a state of it; nil: they have none
	residual bool
}

// hasState reports whether sessions have a state of the block.
func (b *block) hasState() bool {
	_, cross := b.branch.(nn.CrossAttention)
	return cross || b.mixer != nil
}

// input is the input of a stack.
type input struct {
	b, n   int
	tokens []int32    // [b·n]; nil: numbers
	values tensor.Mat // [b·n,inputs]
	lens   []int64    // [b] valid tokens; nil: all
	mask   []bool     // [b·n] positions that exist, beside lens; nil: all

	positions, types []int32 // [b·n] rows of the tables; nil: in order, and 0
	key              rng.Key // of dropout
	ctx              context.Context
	segment          *segmentContext // of longer sequences; nil: they are whole

	source     tensor.Mat // [b·m,width] outputs of the encoder; cross-attention only
	sourceLens []int64
}

// contextErr returns the error of the batch's context.
func (in *input) contextErr() error {
	if in.ctx == nil {
		return nil
	}
	return in.ctx.Err()
}

// trace holds the intermediate results of a pass: with keep all that Backward needs, otherwise
// only the input of the next block.
type trace struct {
	keep     bool
	in       input
	entry    entryTrace
	blocks   []blockTrace // one for each block; one or two where nothing is kept
	branches []nn.Trace   // one for each block; one for each block of a layer where nothing is kept
	x, y     []float      // [b·n,width] before and after the last norm
	stats    []float
	cached   nn.CachedRows // of a step

	// visit, if not nil, is called with the rows before each layer, after the last layer, and
	// after the final norm.
	visit func(layer int, rows tensor.Mat) error
}

type blockTrace struct {
	x, y  []float // [b·n,width] input of the block, with keep, and rows after the norm, or before a post-norm
	z     []float // [b·n,width] after the convolution
	stats []float
	drop  attention.Drop

	f, outStats []float // [b·n,width] output of the branch before a norm of it
}

// scratch holds buffers of gradients that all blocks share.
type scratch struct {
	dx, dy  []float // [b·n,width] of the residual stream, and of a normalised row
	dz      []float // [b·n,width] of a convolution's output
	dbranch []float // [b·n,width] of a branch's output before dropout
	dout    []float // [b·n,width] of a branch's output before a norm of it
	dsecond []float // [b·n,width] of the input of a parallel block
	dentry  []float // [b·n,width] of the rows before the entry's norm
	dsource []float // [b·m,width] of the encoder's outputs
	branch  nn.Scratch

	dhidden        []float // of the units before the head's norm
	dread, dpooled []float // of the input of the units before the head, and [b,width] of the pooled rows
	dspread        []float // [b·n,width] of the rows that are pooled, or of windows
}

// resizeMatrix resizes data to a matrix. Its elements are undefined.
func resizeMatrix(data *[]float, rows, cols int) tensor.Mat {
	*data = slices.Grow((*data)[:0], rows*cols)[:rows*cols]
	return tensor.Mat{Data: *data, Rows: rows, Cols: cols, Stride: cols}
}

// auxLoss returns the auxiliary loss of the mechanisms in a pass with keep, averaged over its
// sequences.
func (tr *trace) auxLoss() (loss float64) {
	for _, branch := range tr.branches {
		loss += branch.Aux() / float64(tr.in.b)
	}
	return loss
}

// branchTrace returns the trace of the branch of block i.
func (tr *trace) branchTrace(s *stack, i int) nn.Trace {
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
func (tr *trace) blockTrace(i int) *blockTrace {
	return &tr.blocks[i%len(tr.blocks)]
}

// newBlockTraces returns the traces of blocks. Parallel blocks need two at a time.
func (s *stack) newBlockTraces(keep bool) []blockTrace {
	switch {
	case keep:
		return make([]blockTrace, len(s.blocks))
	case s.parallel:
		return make([]blockTrace, 2)
	}
	return make([]blockTrace, 1)
}

// residualStream returns the residual stream before block i, or after the last block.
func (tr *trace) residualStream(i, rows, width int) tensor.Mat {
	if tr.keep && i < len(tr.blocks) {
		return resizeMatrix(&tr.blocks[i].x, rows, width)
	}
	return resizeMatrix(&tr.x, rows, width)
}

// forward returns the outputs [b·n,width] of the stack. They lie in tr.
func (s *stack) forward(in input, tr *trace) (tensor.Mat, error) {
	rows, w := in.b*in.n, s.width
	tr.in = in
	if tr.blocks == nil {
		tr.blocks = s.newBlockTraces(tr.keep)
	}
	x := tr.residualStream(0, rows, w)
	if err := s.entry.forward(x, &in, in.segment.firstPosition(), &tr.entry, tr.keep); err != nil {
		return x, err
	}
	drops := tr.keep && s.rate > 0
	if drops {
		nn.DropoutForward(s.blockDropout(in.key, -1), x, tensor.Mat{}, x)
	}
	scope := nn.Scope{B: in.b, Causal: s.causal, KeyLens: in.lens, KeyMask: in.mask, Source: in.source, SourceLens: in.sourceLens}
	turns, err := s.inputRotations(&in)
	if err != nil {
		return x, err
	}
	for i := range s.blocks {
		if visit := tr.visit; visit != nil && i%s.period == 0 {
			if err := visit(i/s.period, x); err != nil {
				return x, err
			}
		}
		if err := tr.in.contextErr(); err != nil {
			return x, err
		}
		b, t := &s.blocks[i], tr.blockTrace(i)
		next, stats := tr.residualStream(i+1, rows, w), resizeMatrix(&t.stats, rows, 2).Data
		in, out := resizeMatrix(&t.y, rows, w), next
		scope.Rope = turns[b.rotation]
		switch {
		case s.post:
			in, out = x, in
		case !tr.keep && s.takesParts(b, rows, &scope, &tr.in):
			scope.Norm, scope.Room, in = b.norm, in.Data, x
		case !b.parallel:
			b.norm.Forward(in, x, stats)
			s.normaliseParallel(i+1, in, x, tr)
		case b.norm == nil:
			in = resizeMatrix(&tr.blockTrace(i-1).y, rows, w)
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
		base, to := x, out
		if b.out != nil {
			to = resizeMatrix(&t.f, rows, w)
		}
		if drops && b.residual || b.out != nil {
			clear(to.Data)
			base = to
		}
		part := rows
		if b.byRow && !tr.keep {
			part = partRows
		}
		for r := 0; r < rows; r += part {
			end := min(r+part, rows)
			if err := b.branch.Forward(to.Slice(r, end), base.Slice(r, end), in.Slice(r, end), tr.in.segment.blockScope(scope, i), tr.branchTrace(s, i), tr.keep); err != nil {
				return x, err
			}
		}
		scope.Norm, scope.Room = nil, nil
		if b.out != nil {
			y, term := out, x
			if !tr.keep { // out is x
				y, term = to, to
			}
			b.out.Forward(y, to, resizeMatrix(&t.outStats, rows, 2).Data)
			if !drops {
				nn.AddTo(out, term)
			}
		}
		if drops && b.residual {
			nn.DropoutForward(s.blockDropout(tr.in.key, i), out, x, out)
		}
		if s.post {
			b.norm.Forward(next, out, stats)
		}
		x = next
	}
	if tr.visit != nil {
		if err := tr.visit(len(s.blocks)/s.period, x); err != nil {
			return x, err
		}
	}
	y := resizeMatrix(s.outputMemory(tr), rows, w)
	s.norm.Forward(y, x, resizeMatrix(&tr.stats, rows, 2).Data)
	if tr.visit != nil {
		return y, tr.visit(len(s.blocks)/s.period+1, y)
	}
	return y, nil
}

// takesParts reports whether the branch of b can apply the norm to its input itself, and put its
// outputs in the memory of the normalised rows.
func (s *stack) takesParts(b *block, rows int, scope *nn.Scope, in *input) bool {
	a, attends := b.mixer.(*nn.Attention)
	return attends && !s.parallel && b.conv == nil && in.segment == nil && a.H*a.D == s.width && a.TakesParts(rows, scope)
}

// partRows is the number of rows that an MLP computes at a time without keep. It bounds the memory
// of hidden units.
const partRows = 2048

// outputMemory returns the memory for the outputs of a pass. Without keep it is memory of a
// block.
func (s *stack) outputMemory(tr *trace) *[]float {
	if tr.keep {
		return &tr.y
	}
	return &tr.blocks[0].y
}

// normaliseParallel sets the input of block i from the input x of the layer, if the block
// is parallel and has a norm.
func (s *stack) normaliseParallel(i int, y, x tensor.Mat, tr *trace) {
	if i == len(s.blocks) || !s.blocks[i].parallel || s.blocks[i].norm == nil {
		return
	}
	t := tr.blockTrace(i)
	s.blocks[i].norm.Forward(resizeMatrix(&t.y, y.Rows, y.Cols), x, resizeMatrix(&t.stats, y.Rows, 2).Data)
}

// blockDropout returns the dropout of the output of block i, or of the first rows for i
// = -1. Attention draws from number i of the key.
func (s *stack) blockDropout(key rng.Key, i int) nn.Dropout {
	return nn.Dropout{Rate: s.rate, Key: key.Fold(uint64(len(s.blocks) + 1 + i))}
}

// applyConv returns the input of the branch: y, or the convolution of y after the rows
// past.
func (b *block) applyConv(y tensor.Mat, batch int, past []float, t *blockTrace) tensor.Mat {
	if b.conv == nil {
		return y
	}
	z := resizeMatrix(&t.z, y.Rows, y.Cols)
	b.conv.Forward(z, y, batch, past)
	return z
}

// inputRotations returns the rotations of the positions of in. It returns an error if its sequences
// need different rotations.
func (s *stack) inputRotations(in *input) (ropes, error) {
	if in.segment != nil {
		return in.segment.ropes, nil
	}
	class, err := s.turns.batchClass(in.b, in.n, in.lens, in.mask)
	if r := s.ropes[globalRotation]; err == nil && s.turns.pairs > 0 && (r == nil || r.Rows() < in.n || s.ropesClass != class) {
		s.ropes, s.ropesClass = ropes{}, class // calls may still read the tables before
		f := s.turns.ofClass(class)
		s.ropes.fill(&f, 0, in.n)
	}
	return s.ropes, err
}

// backward adds to the gradients of the weights, from the gradient dy [b·n,width] of
// the outputs. With cross-attention it adds to dsource [b·m,width].
func (s *stack) backward(dy, dsource tensor.Mat, tr *trace, sc *scratch) error {
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
		if b.parallel {
			din = resizeMatrix(&sc.dsecond, rows, w)
			if b.norm == nil {
				from = resizeMatrix(&tr.blockTrace(i-1).y, rows, w)
			}
		}
		dout := dx // of x + f
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
		if b.out != nil {
			df := resizeMatrix(&sc.dout, rows, w)
			clear(df.Data)
			b.out.Backward(df, dbranch, resizeMatrix(&t.f, rows, w), t.outStats)
			dbranch = df
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
		switch {
		case s.post:
			nn.AddTo(dx, dy)
		case !b.parallel:
			s.backwardParallel(i+1, dx, dy, x, tr, sc)
			b.norm.Backward(dx, dy, x, t.stats)
		}
	}
	if s.rate > 0 {
		nn.DropoutBackward(s.blockDropout(tr.in.key, -1), dx, dx)
	}
	s.entry.backward(dx, &tr.in, tr.in.segment.firstPosition(), &tr.entry, sc)
	return nil
}

// backwardParallel adds the gradient of the input of block i, if the block is parallel: to
// dy, or through its norm to dx. x is the input of the layer.
func (s *stack) backwardParallel(i int, dx, dy, x tensor.Mat, tr *trace, sc *scratch) {
	if i == len(s.blocks) || !s.blocks[i].parallel {
		return
	}
	d := resizeMatrix(&sc.dsecond, x.Rows, x.Cols)
	if b := &s.blocks[i]; b.norm == nil {
		nn.AddTo(dy, d)
	} else {
		b.norm.Backward(dx, d, x, tr.blockTrace(i).stats)
	}
}
