package calltest

import (
	"math/rand/v2"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/oracle"
)

// GivenDrop returns a Drop with random masks, and the same dropout for the reference.
func GivenDrop(r *rand.Rand, kind attention.DropKind, rate float64, c *oracle.Call) (*attention.Drop, *oracle.Drop) {
	d := &attention.Drop{Kind: kind, Rate: rate}
	q, k := &d.QTok, &d.KTok
	switch kind {
	case attention.ElementDrop:
		q, k = &d.Q1, &d.K1
	case attention.ProductDrop:
		q, k = &d.Q2, &d.K2
	}
	width := headtask.BitsOf(kind, c.Q.D)
	*q, *k = Flags(r, c.Q.B*c.Q.H*c.Q.N*width), Flags(r, c.K.B*c.K.H*c.K.N*width)
	factors := func(mask []bool) []float64 {
		list := []float64{}
		for _, keep := range mask {
			f := 0.0
			if keep {
				f = 1 / (1 - rate)
			}
			list = append(list, slices.Repeat([]float64{f}, max(c.Q.D/width, 1))...)
		}
		return list
	}
	if kind == attention.ProductDrop {
		return d, &oracle.Drop{QQ: factors(*q), KK: factors(*k)}
	}
	return d, &oracle.Drop{Q: factors(*q), K: factors(*k)}
}
