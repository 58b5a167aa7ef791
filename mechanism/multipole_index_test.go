package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// indexSteps is an index with what its steps need.
type indexSteps struct {
	*multipoleIndex
	keys tensor.Mat
	ar   *arena.Arena
}

func newIndexSteps(span, sinks, n int) *indexSteps {
	const d = 4
	x := &multipoleAttention{span: span, sinks: sinks, size: 4, tol: 0.01}
	return &indexSteps{newMultipoleIndex(x), normalRows(n, d, 254), new(arena.Arena)}
}

// step returns the output of an index for token i.
func (s *indexSteps) step(x headwise.KeyIndex, i int) []float {
	s.ar.Reset(0)
	k, out := s.keys.Slice(0, i+1), make([]float, s.keys.Cols)
	x.Forward(&headwise.Head{Q: s.keys.Slice(i, i+1), K: k, V: k, Out: tensor.Mat{Data: out, Rows: 1, Cols: k.Cols, Stride: k.Cols},
		Causal: true, Offset: i, Shift: i, Scratch: s.ar, Table: kernel.Active[float](), KeyHeads: 1})
	return out
}

// A clone has the block that was joined ahead, and does not join it again.
func TestMultipoleClonesKeepTheBlockAhead(t *testing.T) {
	const span = 8
	s := newIndexSteps(span, 0, 21*span)
	for i := range 17 * span { // in span 16 the spans before it are joined
		s.step(s, i)
	}
	if j0, j1 := 0, firstSpans*span; !s.pass.ahead.holds(j0, j1) {
		t.Fatalf("the keys from %d to %d are not joined ahead", j0, j1)
	}
	c := s.Clone().(*multipoleIndex)
	fresh := newMultipoleIndex(s.pass.multipoleAttention)
	for i := 17*span - 1; i < s.keys.Rows; i++ {
		memory := c.pass.ahead.memory
		got, want := s.step(c, i), s.step(fresh, i)
		if i == 17*span-1 && c.pass.ahead.memory != memory {
			t.Error("the first step of a clone joins again")
		}
		for e := range got {
			if got[e] != want[e] {
				t.Fatalf("token %d: a clone gives %v, a new index %v", i, got, want)
			}
		}
	}
}

// While all keys are near no block is made ahead.
func TestMultipoleJoinsNoSinks(t *testing.T) {
	const span = 2
	s := newIndexSteps(span, 20*span, 20*span)
	for i := range s.keys.Rows {
		s.step(s, i)
		if s.pass.ahead.memory != nil {
			t.Fatalf("token %d: the keys from %d to %d are joined", i, s.pass.ahead.j0, s.pass.ahead.j1)
		}
	}
}

// Blocks have the memory that they take, and all memory counts.
func TestMultipoleIndexCountsItsMemory(t *testing.T) {
	const span = 128
	s := newIndexSteps(span, 0, 17*span)
	for i := range s.keys.Rows {
		s.step(s, i)
	}
	size := s.far.Size()
	for _, b := range append(s.pass.blocks, s.pass.ahead) {
		size += b.memory.Size()
		if taken, size := b.memory.Mark(), b.memory.Size(); size > taken+8 { // for the alignment of the slab
			t.Errorf("the keys from %d to %d take %d words of %d", b.j0, b.j1, taken, size)
		}
	}
	if s.Bytes() != 8*int64(size) {
		t.Errorf("%d bytes of %d", s.Bytes(), 8*size)
	}
	c := s.Clone().(*multipoleIndex)
	if got, want := c.Bytes(), 8*int64(size-s.far.Size()); got > want+64*int64(len(s.pass.blocks)+1) { // alignment again
		t.Errorf("the blocks of a clone have %d bytes, had %d", got, want)
	}
}
