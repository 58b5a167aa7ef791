package states

import (
	"slices"

	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/tensor"
)

// Buffer holds Count numbers for each token of a head. The numbers of consecutive tokens start
// Stride elements apart. A state is a list of buffers: for keys, for values, and for whatever
// else its mechanism keeps. A buffer without Data is unused: Copy, Write and Read do nothing
// with it.
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

// CloneBuffers returns deep copies of the buffers.
func CloneBuffers(list []Buffer) []Buffer {
	c := slices.Clone(list)
	for i := range c {
		c[i].Data = slices.Clone(c[i].Data)
	}
	return c
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

// Write appends the numbers of n tokens, starting with token at, and then zeros for missing
// more tokens.
func (b *Buffer) Write(w *snapshot.Writer, at, n, missing int) {
	if b.Data == nil {
		return
	}
	if b.Count == b.Stride {
		snapshot.WriteElements(w, b.Data[at*b.Stride:][:n*b.Stride])
	} else {
		for j := at; j < at+n; j++ {
			snapshot.WriteElements(w, b.Data[j*b.Stride:][:b.Count])
		}
	}
	w.Data = append(w.Data, make([]byte, missing*b.Count*int(scratch.ElementSize[tensor.Float]()))...)
}

// Read sets the first n tokens from numbers that Write appended.
func (b *Buffer) Read(r *snapshot.Reader, n int) {
	if b.Data == nil {
		return
	}
	if b.Count == b.Stride {
		snapshot.ReadElements(r, b.Data[:n*b.Stride])
		return
	}
	for j := range n {
		snapshot.ReadElements(r, b.Data[j*b.Stride:][:b.Count])
	}
}
