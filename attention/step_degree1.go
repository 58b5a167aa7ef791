package attention

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// At degree 1 the features of a token are its prepared row, after a 1 if the kernel has
// a constant. A head's step is less work than setting up its task. Its bits equal the
// bits of longer pieces.

// isDegree1 reports that single tokens take stepDegree1.
func (s *recurrentState[T]) isDegree1() bool {
	return s.e.spec.IsDegree1() && !s.decays()
}

// stepDegree1 takes in one key of each of heads lo ≤ i < hi, if c has any, and
// then answers their queries, if it has any.
func (s *recurrentState[T]) stepDegree1(lo, hi int, out tensor.Heads[T], c *Call[T], n, m int, rows tokenRows[T]) {
	ar := arena.Acquire()
	defer ar.Release()
	u := s.heads[lo].Task
	u.Arena = ar
	f := u.NewDegree1Step(s.shape.Chunk)
	group := s.shape.H / s.shape.Hkv
	for i := lo; i < hi; i++ {
		st, b, kh := s.heads[i], i/s.shape.Hkv, i%s.shape.Hkv
		if m > 0 {
			st.AbsorbToken(rows.key(i), c.V.At(b, kh).Row(0), c.KeyMask == nil || c.KeyMask[b])
		}
		for g := 0; g < group && n > 0; g++ {
			st.AnswerDegree1(&f, rows.query(i*group + g)[:u.PreparedWidth], out.At(b, kh*group+g).Row(0))
		}
		if st.Count == st.ChunkSize {
			st.Task.Arena = ar
			st.CloseChunk()
		}
	}
}
