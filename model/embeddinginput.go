package model

import (
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// embeddingInput makes the first rows of a stack from tokens or numbers. If the head
// reads a class position, a learned row precedes each sequence.
type embeddingInput[T tensor.Float] struct {
	embed   nn.Embedding[T]
	numbers nn.Linear[T]    // [width,inputs], in place of the embedding; W nil: tokens
	front   *param.Param[T] // [width]; nil: none
}

// forward sets x [b·n,width] to the embeddings of in. The elements of in at a learned
// front position are ignored.
func (e *embeddingInput[T]) forward(x tensor.Mat[T], in *input[T]) {
	if e.numbers.W != nil {
		e.numbers.Forward(x, in.values, false)
	} else {
		e.embed.Forward(x, in.tokens)
	}
	if e.front != nil {
		for i := 0; i < x.Rows; i += in.n {
			copy(x.Row(i), e.front.Data)
		}
	}
}

// backward adds to the gradients of the weights and overwrites dx [b·n,width].
func (e *embeddingInput[T]) backward(dx tensor.Mat[T], in *input[T]) {
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
		e.embed.Backward(dx, in.tokens)
	}
}

// batchCopy holds the sequences of a batch with front positions, where the batch's own
// slices have none.
type batchCopy[T tensor.Float] struct {
	tokens []int32
	values []T
	lens   []int64
}

// readBatch returns b with front positions before each sequence.
func (r *batchCopy[T]) readBatch(b *Batch, inputs, front int) input[T] {
	in := input[T]{b: b.B, n: b.N + front, tokens: b.Tokens, lens: b.Lens, key: b.Key.Fold(0), ctx: b.Ctx}
	if inputs > 0 {
		in.values = resizeMatrix(&r.values, in.b*in.n, inputs)
		for i := range in.b {
			to := in.values.Data[i*in.n*inputs:][:in.n*inputs]
			clear(to[:front*inputs])
			for j, x := range b.Values[i*b.N*inputs:][:b.N*inputs] {
				to[front*inputs+j] = T(x)
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
	return in
}
