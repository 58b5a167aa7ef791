//go:build !float64

package states

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/snapshot"
)

// What a buffer writes is what a buffer of another stride reads, with zeros for missing tokens.
func TestBuffersOfAnyStrideHaveTheSameBytes(t *testing.T) {
	packed := Buffer{Data: []float32{1, 2, 3, 4, 5, 6}, Count: 2, Stride: 2}
	padded := Buffer{Data: []float32{1, 2, 0, 3, 4, 0, 5, 6, 0}, Count: 2, Stride: 3}
	write := func(b *Buffer, at, n, missing int) []byte {
		w := snapshot.NewWriter(nil)
		(&Pass{kind: writing, w: w}).Buffers(at, n, missing, *b)
		data, err := w.End()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	data := write(&packed, 1, 2, 1)
	if other := write(&padded, 1, 2, 1); !slices.Equal(data, other) {
		t.Errorf("strides 2 and 3 write % x and % x", data, other)
	}
	for _, stride := range []int{2, 3} {
		r, err := snapshot.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		b := Buffer{Count: 2, Stride: stride}
		b.Resize(3)
		(&Pass{kind: reading, r: r}).Buffers(0, 3, 0, b)
		if err := r.End(); err != nil {
			t.Fatal(err)
		}
		var got []float32
		for j := range 3 {
			got = append(got, b.Data[j*stride:][:2]...)
		}
		if want := []float32{3, 4, 5, 6, 0, 0}; !slices.Equal(got, want) {
			t.Errorf("stride %d reads %v, want %v", stride, got, want)
		}
	}
}

func TestCopyOfABufferWithoutDataIsZeros(t *testing.T) {
	b := Buffer{Data: []float32{1, 2, 3}, Count: 1, Stride: 1}
	b.Copy(1, &Buffer{Count: 1, Stride: 1}, 0, 2)
	if want := []float32{1, 0, 0}; !slices.Equal(b.Data, want) {
		t.Errorf("copied %v, want %v", b.Data, want)
	}
	b = MakeBuffers(1, 1)[0]
	b.Copy(0, &Buffer{Data: []float32{1}, Count: 1, Stride: 1}, 0, 1) // nothing to hold it
	if b.Data != nil || b.Bytes() != 0 {
		t.Errorf("a buffer without data holds %v", b.Data)
	}
}
