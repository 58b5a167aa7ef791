package engine

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// At degree 1 the features of a token are its prepared row, after a 1 if the kernel has
// a constant. A head's step is less work than setting up its task. Its bits equal the
// bits of longer pieces.

// isDegree1 reports whether single tokens use stepDegree1.
func (s *RecurrentState) isDegree1() bool {
	return s.Engine.Spec.IsDegree1() && !s.HasDecay()
}

// stepDegree1 absorbs one key for each of heads lo ≤ i < hi, if c has keys, and then sets the
// outputs of their queries, if it has queries.
func (s *RecurrentState) stepDegree1(lo, hi int, out tensor.Heads, c *attention.Call, n, m int, rows tokenRows) {
	ar := arena.Acquire()
	defer ar.Release()
	u := s.Heads[lo].Task
	u.Arena = ar
	f := u.NewDegree1Step(s.Shape.Chunk)
	group := s.Shape.H / s.Shape.Hkv
	for i := lo; i < hi; i++ {
		st, b, kh := s.Heads[i], i/s.Shape.Hkv, i%s.Shape.Hkv
		if m > 0 {
			st.AbsorbToken(rows.key(i), c.V.Head(b, kh).Row(0), c.KeyMask == nil || c.KeyMask[b])
		}
		for g := 0; g < group && n > 0; g++ {
			st.AnswerDegree1(&f, rows.query(i*group + g)[:u.PreparedWidth], out.Head(b, kh*group+g).Row(0))
		}
		if st.Count == st.ChunkSize {
			st.Task.Arena = ar
			st.CloseChunk()
		}
	}
	for _, st := range s.Heads[lo:hi] {
		st.Task.Arena = nil
	}
}
