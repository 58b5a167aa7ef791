package model

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// embeddingInput computes the first rows of a stack from tokens or numbers, with positions and
// types. With PoolCLS a learned row precedes each sequence.
type embeddingInput struct {
	embed    nn.Embedding
	scale    float         // of embeddings; 1: none
	numbers  nn.Linear     // [width,inputs], in place of the embedding; W nil: tokens
	front    *param.Param  // [width]; nil: none
	position nn.Position   // nil: none, or rotations
	types    *nn.Embedding // nil: none
	norm     nn.Norm       // of the sum; nil: none
}

// entryTrace holds the rows before the norm for backward.
type entryTrace struct {
	x     []float // [b·n,width]
	stats []float
}

// forward sets x [b·n,width] to the first rows for in, whose first position is start. keep
// saves what backward needs. It returns an error if learned positions run out.
func (e *embeddingInput) forward(x tensor.Mat, in *input, start int64, tr *entryTrace, keep bool) error {
	sum := x
	if e.norm != nil && keep {
		sum = resizeMatrix(&tr.x, x.Rows, x.Cols)
	}
	e.embedRows(sum, in)
	if e.types != nil {
		e.types.Add(sum, in.types)
	}
	if table := e.positionTable(in); table != nil {
		table.Add(sum, in.positions)
	} else if e.position != nil {
		if err := e.position.Forward(sum, in.b, start); err != nil {
			return err
		}
	}
	if e.norm != nil {
		e.norm.Forward(x, sum, resizeMatrix(&tr.stats, x.Rows, 2).Data)
	}
	return nil
}

// positionTable returns the learned table if in names rows of it; nil otherwise.
func (e *embeddingInput) positionTable(in *input) *nn.Embedding {
	table, learned := e.position.(*nn.Learned)
	if in.positions == nil || !learned {
		return nil
	}
	return &nn.Embedding{W: table.W}
}

// embedRows sets x [b·n,width] to the embeddings of in. The elements of in at a learned
// front position are ignored.
func (e *embeddingInput) embedRows(x tensor.Mat, in *input) {
	if e.numbers.W != nil {
		e.numbers.Forward(x, in.values, false)
	} else {
		e.embed.Forward(x, in.tokens)
		e.scaleRows(x)
	}
	if e.front != nil {
		for i := 0; i < x.Rows; i += in.n {
			copy(x.Row(i), e.front.Data)
		}
	}
}

// scaleRows multiplies x by the scale of embeddings.
func (e *embeddingInput) scaleRows(x tensor.Mat) {
	if e.scale == 1 {
		return
	}
	k := kernel.Active[float]()
	for i := range x.Rows {
		k.Scale(x.Row(i), e.scale, x.Row(i))
	}
}

// backward adds to the gradients of the weights and overwrites dx [b·n,width].
func (e *embeddingInput) backward(dx tensor.Mat, in *input, start int64, tr *entryTrace, sc *scratch) {
	if e.norm != nil {
		dsum := resizeMatrix(&sc.dentry, dx.Rows, dx.Cols)
		clear(dsum.Data)
		e.norm.Backward(dsum, dx, resizeMatrix(&tr.x, dx.Rows, dx.Cols), tr.stats)
		dx = dsum
	}
	if table := e.positionTable(in); table != nil {
		table.Backward(dx, in.positions)
	} else if e.position != nil {
		e.position.Backward(dx, in.b, start)
	}
	if e.types != nil {
		e.types.Backward(dx, in.types)
	}
	if e.front != nil {
		for i := 0; i < dx.Rows; i += in.n {
			row := dx.Row(i)
			for j, d := range row {
				e.front.Grad[j] += d
			}
			clear(row)
		}
	}
	if e.numbers.W != nil {
		e.numbers.BackwardWeights(dx, in.values)
	} else {
		e.scaleRows(dx)
		e.embed.Backward(dx, in.tokens)
	}
}

// batchCopy holds copies of the sequences of a batch with front positions.
type batchCopy struct {
	tokens []int32
	values []float
	lens   []int64
	mask   []bool
}

// readBatch returns b with front positions before each sequence.
func (r *batchCopy) readBatch(b *Batch, inputs, front int) input {
	in := input{b: b.B, n: b.N + front, tokens: b.Tokens, lens: b.Lens, mask: b.KeyMask, positions: b.Positions, types: b.Types, key: b.Key.Fold(0)}
	if inputs > 0 {
		in.values = resizeMatrix(&r.values, in.b*in.n, inputs)
		for i := range in.b {
			to := in.values.Data[i*in.n*inputs:][:in.n*inputs]
			clear(to[:front*inputs])
			for j, x := range b.Values[i*b.N*inputs:][:b.N*inputs] {
				to[front*inputs+j] = float(x)
			}
		}
	}
	if front == 0 {
		return in
	}
	if inputs == 0 {
		r.tokens = r.tokens[:0]
		for i := range in.b {
			r.tokens = append(r.tokens, make([]int32, front)...)
			r.tokens = append(r.tokens, b.Tokens[i*b.N:][:b.N]...)
		}
		in.tokens = r.tokens
	}
	if b.Lens != nil {
		r.lens = r.lens[:0]
		for _, l := range b.Lens {
			r.lens = append(r.lens, l+int64(front))
		}
		in.lens = r.lens
	}
	if b.KeyMask != nil {
		r.mask = r.mask[:0]
		for i := range in.b {
			for range front {
				r.mask = append(r.mask, true)
			}
			r.mask = append(r.mask, b.KeyMask[i*b.N:][:b.N]...)
		}
		in.mask = r.mask
	}
	return in
}
