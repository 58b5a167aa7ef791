package states

import (
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// Buffer holds Count numbers for each token of a head. The numbers of consecutive tokens start
// Stride elements apart. A state is a list of buffers: for keys, for values, and for whatever
// else its mechanism keeps. A buffer without Data is unused: Copy does nothing with it.
type Buffer struct {
	Data          []tensor.Float
	Count, Stride int
}

// MakeBuffers returns n buffers without data, each for count numbers per token.
func MakeBuffers(n, count int) []Buffer {
	list := make([]Buffer, n)
	for i := range list {
		list[i].Count, list[i].Stride = count, count
	}
	return list
}

// Resize makes room for n tokens.
func (b *Buffer) Resize(n int) { b.Data = scratch.Resize(b.Data, n*b.Stride) }

// Copy copies n tokens, from tokens j ≤ t < j+n of from to tokens i and following of b. If from
// has no data, it writes zeros.
func (b *Buffer) Copy(i int, from *Buffer, j, n int) {
	switch {
	case b.Data == nil:
	case from.Data == nil:
		clear(b.Data[i*b.Stride:][:n*b.Stride])
	default:
		copy(b.Data[i*b.Stride:], from.Data[j*b.Stride:][:n*b.Stride])
	}
}

// Bytes returns the memory of the buffer.
func (b *Buffer) Bytes() int64 { return int64(cap(b.Data)) * scratch.ElementSize[tensor.Float]() }
