package model

import (
	"context"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// stack is an encoder or a decoder without its head.
type stack[T tensor.Float] struct {
	entry    entry[T]
	position nn.Position[T] // nil: none, or rotations
	blocks   []block[T]
	norm     nn.Norm[T]

	width, d int
	causal   bool
	post     bool               // blocks are norm(x + f(x))
	theta    float64            // base of the rotations; 0: none
	rope     *attention.Rope[T] // rotations of the positions met so far
	drop     attention.Drop     // of passes that are kept, without its key
	rate     float64            // of dropout of the first rows and of what blocks add, in such passes
}

// block is x + f(norm(x)), or x + f(conv(norm(x))), where f is one of three, or
// an ISTA step of norm(x) or conv(norm(x)) alone. With post-norm it is
// norm(x + f(x)), or norm(x + f(conv(x))).
type block[T tensor.Float] struct {
	norm  nn.Norm[T]
	conv  *nn.Conv[T] // nil: none
	mixer nn.Mixer[T]
	cross *nn.Attention[T] // to the source
	mlp   *nn.MLP[T]
	ista  *nn.ISTA[T]
}

// input is what a stack reads.
type input[T tensor.Float] struct {
	b, n   int
	tokens []int32       // [b·n]; nil: numbers
	values tensor.Mat[T] // [b·n,inputs]
	lens   []int64       // [b] valid tokens; nil: all
	key    rng.Key       // of dropout
	ctx    context.Context
	place  *place[T] // of longer sequences; nil: they are whole

	source     tensor.Mat[T] // [b·m,width] outputs of the encoder; cross-attention only
	sourceLens []int64
}

// ended returns the error of the batch's context.
func (in *input[T]) ended() error {
	if in.ctx == nil {
		return nil
	}
	return in.ctx.Err()
}

// trace is what a pass leaves: everything for Backward, or only what the next
// block needs.
type trace[T tensor.Float] struct {
	keep   bool
	in     input[T]
	blocks []blockTrace[T] // one for each block; a single one where nothing is kept
	x, y   []T             // [b·n,width] before and after the last norm
	stats  []T
}

type blockTrace[T tensor.Float] struct {
	x, y  []T // [b·n,width] before the block, where that is kept, and after the norm, or before a post-norm
	z     []T // [b·n,width] after the convolution
	stats []T
	drop  attention.Drop
	mix   nn.Trace[T] // of mixers and cross-attention; nil: none yet
	mlp   nn.MLPTrace[T]
	ista  nn.ISTATrace[T]
}

// scratch is what the gradients of all blocks share.
type scratch[T tensor.Float] struct {
	dx, dy  []T // [b·n,width] of the residual stream, and of a normalised row
	dz      []T // [b·n,width] of a convolution's output
	dbranch []T // [b·n,width] of what a block adds, before dropout
	dsource []T // [b·m,width] of the encoder's outputs
	mix     nn.Scratch[T]

	dread, dpooled []T // of what units before the head read, and [b,width] of what was pooled
	dspread        []T // [b·n,width] of what is pooled; of windows
}

// mat resizes data to a matrix, whose contents are not defined.
func mat[T tensor.Float](data *[]T, rows, cols int) tensor.Mat[T] {
	*data = slices.Grow((*data)[:0], rows*cols)[:rows*cols]
	return tensor.Mat[T]{Data: *data, Rows: rows, Cols: cols, Stride: cols}
}

// aux is what the mechanisms of a pass that is kept lose, in the mean of its
// sequences.
func (tr *trace[T]) aux() (loss float64) {
	for i := range tr.blocks {
		if mix := tr.blocks[i].mix; mix != nil {
			loss += mix.Aux() / float64(tr.in.b)
		}
	}
	return loss
}

// block returns the trace of block i.
func (tr *trace[T]) block(i int) *blockTrace[T] {
	if tr.keep {
		return &tr.blocks[i]
	}
	return &tr.blocks[0]
}

// stream returns the residual stream before block i, or after all of them.
func (tr *trace[T]) stream(i, rows, width int) tensor.Mat[T] {
	if tr.keep && i < len(tr.blocks) {
		return mat(&tr.blocks[i].x, rows, width)
	}
	return mat(&tr.x, rows, width)
}

// forward returns the outputs [b·n,width] of the stack, which lie in tr.
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
	x := tr.stream(0, rows, w)
	s.entry.forward(x, &in)
	if s.position != nil {
		if err := s.position.Forward(x, in.b, in.place.first()); err != nil {
			return x, err
		}
	}
	drops := tr.keep && s.rate > 0
	if drops {
		nn.DropoutForward(s.dropout(in.key, -1), x, tensor.Mat[T]{}, x)
	}
	self := nn.Scope[T]{B: in.b, Causal: s.causal, KeyLens: in.lens, Rope: s.rotations(&in)}
	cross := nn.Scope[T]{B: in.b, KeyLens: in.sourceLens}
	for i := range s.blocks {
		if err := tr.in.ended(); err != nil {
			return x, err
		}
		b, t := &s.blocks[i], tr.block(i)
		next, stats := tr.stream(i+1, rows, w), mat(&t.stats, rows, 2).Data
		in, out := mat(&t.y, rows, w), next
		if s.post {
			in, out = x, in
		} else {
			b.norm.Forward(in, x, stats)
		}
		past, err := tr.in.place.rows(i, in, tr.in.b)
		if err != nil {
			return x, err
		}
		in = b.convolve(in, tr.in.b, past, t)
		if tr.keep && s.drop.Rate > 0 {
			t.drop = s.drop
			t.drop.Key = tr.in.key.Fold(uint64(i))
			self.Drop, cross.Drop = &t.drop, &t.drop
		}
		base := x
		if drops && b.ista == nil {
			clear(out.Data)
			base = out
		}
		switch {
		case b.mlp != nil:
			b.mlp.Forward(out, base, in, &t.mlp)
		case b.ista != nil:
			b.ista.Forward(out, in, &t.ista)
		case b.cross != nil:
			err = b.cross.ForwardTo(out, base, in, tr.in.source, cross, t.mixing(b), tr.keep)
		default:
			err = b.mixer.Forward(out, base, in, tr.in.place.scope(self, i), t.mixing(b), tr.keep)
		}
		if err != nil {
			return x, err
		}
		if drops && b.ista == nil {
			nn.DropoutForward(s.dropout(tr.in.key, i), out, x, out)
		}
		if s.post {
			b.norm.Forward(next, out, stats)
		}
		x = next
	}
	y := mat(&tr.y, rows, w)
	s.norm.Forward(y, x, mat(&tr.stats, rows, 2).Data)
	return y, nil
}

// dropout is that of what block i adds, or of the first rows for -1. Attention draws
// from number i of the key.
func (s *stack[T]) dropout(key rng.Key, i int) nn.Dropout {
	return nn.Dropout{Rate: s.rate, Key: key.Fold(uint64(len(s.blocks) + 1 + i))}
}

// mixing returns the trace of the block's mixer, or of its cross-attention.
func (t *blockTrace[T]) mixing(b *block[T]) nn.Trace[T] {
	switch {
	case t.mix != nil:
	case b.cross != nil:
		t.mix = b.cross.NewTrace()
	default:
		t.mix = b.mixer.NewTrace()
	}
	return t.mix
}

// convolve returns what goes into f: y, or its convolution after the rows past.
func (b *block[T]) convolve(y tensor.Mat[T], batch int, past []T, t *blockTrace[T]) tensor.Mat[T] {
	if b.conv == nil {
		return y
	}
	z := mat(&t.z, y.Rows, y.Cols)
	b.conv.Forward(z, y, batch, past)
	return z
}

// rotations returns those of the positions of in; nil if there are none.
func (s *stack[T]) rotations(in *input[T]) *attention.Rope[T] {
	switch {
	case s.theta == 0:
		return nil
	case in.place != nil:
		return in.place.rope
	}
	if s.rope == nil || s.rope.Rows() < in.n {
		s.rope = attention.NewRope[T](s.d, s.theta, 0, in.n)
	}
	return s.rope
}

// turns sets rope, in the memory that it has, to the rotations of n positions from
// start on.
func (s *stack[T]) turns(rope **attention.Rope[T], n int, start int64) *attention.Rope[T] {
	if *rope == nil {
		*rope = &attention.Rope[T]{Half: s.d / 2}
	}
	r := *rope
	size := n * r.Half
	r.Cos, r.Sin = slices.Grow(r.Cos[:0], size)[:size], slices.Grow(r.Sin[:0], size)[:size]
	if f := (ropeFill[T]{r, s.d, s.theta, start}); n <= ropeRows {
		f.Piece(0, n)
	} else {
		par.Run(n, ropeRows, ropeWork*float64(n)*float64(r.Half), f)
	}
	return r
}

// ropeRows is the number of positions of a piece, ropeWork the arithmetic of a sine and
// a cosine.
const (
	ropeRows = 64
	ropeWork = 1 << 10
)

// ropeFill fills rows of a table from position start on.
type ropeFill[T tensor.Float] struct {
	rope  *attention.Rope[T]
	d     int
	theta float64
	start int64
}

func (f *ropeFill[T]) Piece(i0, i1 int) {
	r, h := f.rope, f.rope.Half
	part := attention.Rope[T]{Half: h, Cos: r.Cos[i0*h : i1*h], Sin: r.Sin[i0*h : i1*h]}
	part.Fill(f.d, f.theta, f.start+int64(i0))
}

// backward adds to the gradients of the weights, from dy [b·n,width] of the
// outputs. With cross-attention it adds to dsource [b·m,width].
func (s *stack[T]) backward(dy, dsource tensor.Mat[T], tr *trace[T], sc *scratch[T]) error {
	rows, w := dy.Rows, s.width
	dx := mat(&sc.dx, rows, w)
	clear(dx.Data)
	s.norm.Backward(dx, dy, tr.stream(len(s.blocks), rows, w), tr.stats)
	for i := len(s.blocks) - 1; i >= 0; i-- {
		if err := tr.in.ended(); err != nil {
			return err
		}
		b, t := &s.blocks[i], tr.block(i)
		x, y := tr.stream(i, rows, w), mat(&t.y, rows, w)
		from, din := y, dy // of f, or of the convolution before it
		dout := dx         // of x + f
		if s.post {
			clear(dy.Data)
			b.norm.Backward(dy, dx, y, t.stats)
			from, din, dout = x, dx, dy
		}
		in, dfrom, dbranch := from, din, dout
		if b.conv != nil {
			in, din = mat(&t.z, rows, w), mat(&sc.dz, rows, w)
		}
		if s.rate > 0 && b.ista == nil {
			dbranch = mat(&sc.dbranch, rows, w)
			nn.DropoutBackward(s.dropout(tr.in.key, i), dbranch, dout)
		}
		var err error
		switch {
		case b.mlp != nil:
			b.mlp.Backward(din, dbranch, in, &t.mlp)
		case b.ista != nil:
			b.ista.Backward(din, dout, in, &t.ista)
			clear(dout.Data) // nothing goes past it
		case b.cross != nil:
			err = b.cross.BackwardTo(din, dsource, dbranch, in, tr.in.source, t.mix, &sc.mix)
		default:
			tr.in.place.lead(&sc.mix, i)
			err = b.mixer.Backward(din, dbranch, in, t.mix, &sc.mix)
		}
		if err != nil {
			return err
		}
		if b.conv != nil {
			ends, err := tr.in.place.ends(i, din, tr.in.b)
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
		nn.DropoutBackward(s.dropout(tr.in.key, -1), dx, dx)
	}
	if s.position != nil {
		s.position.Backward(dx, tr.in.b, tr.in.place.first())
	}
	s.entry.backward(dx, &tr.in)
	return nil
}

// step is forward for the causal mixers of a decoder, continued from position
// start and from what states and past have seen, in the order of the blocks that
// have them. tr keeps nothing.
func (s *stack[T]) step(in input[T], start int64, states []nn.State[T], past [][]T, rope *attention.Rope[T], tr *trace[T], by steps[T]) (tensor.Mat[T], error) {
	rows, w := in.b*in.n, s.width
	t := tr.block(0)
	x := mat(&tr.x, rows, w)
	s.entry.forward(x, &in)
	if s.position != nil {
		if err := s.position.Forward(x, in.b, start); err != nil {
			return x, err
		}
	}
	scope := nn.Scope[T]{B: in.b, Causal: true, Rope: rope}
	var next []T // what the next step reads first
	if by.first != nil {
		next = by.first.Reads(states[0])
	}
	y := mat(&t.y, rows, w)
	stats := mat(&t.stats, rows, 2).Data
	for i := range s.blocks {
		b := &s.blocks[i]
		if s.post {
			copy(y.Data, x.Data)
		} else {
			b.norm.Forward(y, x, stats)
		}
		f := y
		if b.conv != nil {
			f, past = b.convolve(y, in.b, past[0], t), past[1:]
		}
		var err error
		switch {
		case b.mlp != nil && by.blocks != nil:
			var ahead []T
			if i == len(s.blocks)-1 {
				ahead = next
			}
			by.blocks[i].mlp.Forward(x, f, &t.mlp, ahead)
		case b.mlp != nil:
			b.mlp.Forward(x, x, f, &t.mlp)
		case b.ista != nil:
			b.ista.Forward(x, f, &t.ista)
		case i == 0 && by.first != nil:
			var mixer nn.Stepper[T]
			if by.blocks != nil {
				mixer = by.blocks[i].mixer
			}
			r := nn.LookupRows[T]{Tokens: in.tokens, Start: start, X: f, Stats: stats, Places: by.places}
			err = by.first.Step(x, &r, states[0], scope, t.mixing(b), mixer)
		case by.blocks != nil:
			err = by.blocks[i].mixer.Step(x, f, states[0], scope, t.mixing(b))
		default:
			err = b.mixer.Step(x, f, states[0], scope, t.mixing(b))
		}
		if err != nil {
			return x, err
		}
		if s.post {
			b.norm.Forward(x, x, stats)
		}
		if b.mixer != nil {
			states = states[1:]
		}
	}
	s.norm.Forward(y, x, stats)
	return y, nil
}
