package factorised

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/costmodel"
	"github.com/farfield-ml/farfield/internal/attention/engine"
)

// TallyOf counts the work of a key head of s where Forward runs in the linear
// form, whatever Backward does.
func TallyOf(m attention.Mechanism, s attention.Shape, back bool) costmodel.Tally {
	c := &attention.Call{Causal: s.Causal, Chunk: s.Chunk, Form: attention.Linear}
	c.Q.H, c.Q.D, c.K.H, c.V.D = s.H, s.D, s.Hkv, s.Dv
	return m.(*engine.Engine).Tally(c, &engine.SequenceTask{Sequence: attention.Sequence{N: s.N, M: s.M, Offset: s.M - s.N}}, back)
}
